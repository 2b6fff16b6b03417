# SPDX-License-Identifier: GPL-2.0-only
"""What happened, as one line for people or one JSON object for programs.

Everything goes to standard error: standard output is the wrapped command's.
"""

import json
import sys
from contextlib import suppress


class Reporter:
    """Where messages go, and how many."""

    def __init__(self, as_json=False, quiet=False):
        self.as_json = as_json
        self._quiet = quiet

    @staticmethod
    def _write(text):
        with suppress(OSError):    # nobody reads; the command still matters
            print(text, file=sys.stderr, flush=True)

    def warn(self, text):
        """Trouble is never quiet, and never mixed into the JSON object."""
        self._write(f"qdisc_tool: {text}")

    def note(self, text):
        if not self._quiet and not self.as_json:
            self._write(f"qdisc_tool: {text}")

    def protect(self, outcome):
        """The end of a protect; @outcome as built by protect.py."""
        waited = outcome["waited"]
        if waited["in_vain"]:
            self.warn(f"the hold ended with {waited['in_vain']}, so "
                      "connections may be lost: give it more time "
                      "(--max-hold), or say what to wait for (--until, --until-new-port)")
        elif waited["for"]:
            self.note(f"waited {waited['ms']:g} ms after the command: {waited['for']}")
        for hold in outcome["holds"]:
            if hold["ended_by"].startswith("error"):
                self.warn(f"{hold['device']}: no report of the hold ({hold['ended_by']})")
            for remark in hold.get("remarks", []):
                (self.note if hold["held"] else self.warn)(f"{hold['device']}: {remark}")
            if hold.get("dropped"):
                self.warn(f"{hold['device']}: {hold['dropped']} dropped by the plug (raise "
                          "--limit; or its device was set down)")
        for device, count in outcome["passed"].items():
            held = any(hold["device"] == device for hold in outcome["holds"])
            self.warn(f"{count} new connections came by {device} and were not held: " + (
                "a filter or a program of somebody else takes them before, they have a "
                "VLAN tag, or the filters of the hold were removed" if held else
                "it is not set up"))
        if not outcome["passed_is_sure"]:
            self.warn("too many connections came to tell whether all were held")
        if self.as_json:
            self._write(json.dumps(outcome))
            return
        for hold in outcome["holds"]:
            if "held" in hold:
                self.note(
                    f"{hold['device']}: held {hold['held']} for at most "
                    f"{hold['longest_hold_ms']:g} ms, {hold['dropped']} dropped "
                    f"(hold of {hold['hold_ms']:g} ms)")
