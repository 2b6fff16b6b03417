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
        self.as_json, self._quiet = as_json, quiet or as_json

    @staticmethod
    def warn(text, name="qdisc_tool: "):
        """Trouble is never quiet, and never mixed into the JSON object."""
        with suppress(OSError):    # nobody reads; the command still matters
            print(f"{name}{text}", file=sys.stderr, flush=True)

    def note(self, text):
        if not self._quiet:
            self.warn(text)


def report(reporter, outcome):
    """The end of a protect; @outcome as built by protect.py."""
    waited, warn, note = outcome["waited"], reporter.warn, reporter.note
    if waited["in_vain"]:
        warn(f"the hold ended with {waited['in_vain']}, so connections may be lost: give it "
             "more time (--max-hold), or say what to wait for (--until, --until-new-port)")
    elif waited["for"]:
        note(f"waited {waited['ms']:g} ms after the command: {waited['for']}")
    for hold in outcome["holds"]:
        device = hold["device"]
        if "held" not in hold:
            warn(f"{device}: no report of the hold ({hold['ended_by']})")
            continue
        for remark in hold["remarks"]:
            (note if hold["held"] else warn)(f"{device}: {remark}")
        if hold["dropped"]:
            warn(f"{device}: {hold['dropped']} dropped by the plug: raise --limit")
        note(f"{device}: held {hold['held']} for at most {hold['hold_ms']:g} ms, "
             f"{hold['dropped']} dropped")
    for device, count in outcome["passed"].items():
        ended_by = [hold["ended_by"] for hold in outcome["holds"] if hold["device"] == device]
        warn(f"{count} new connections came by {device} and were not held: " + (
            "it is not set up" if not ended_by else "the deadline was over"
            if "deadline" in ended_by else "a filter or a program of somebody else takes them "
            "before, they have a VLAN tag (--vlan), or the filters of the hold were removed"))
    if not outcome["passed_is_sure"]:
        warn("too many connections came to tell whether all were held")
    if reporter.as_json:
        warn(json.dumps(outcome), "")
