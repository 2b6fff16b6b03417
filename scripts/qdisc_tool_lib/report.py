# SPDX-License-Identifier: GPL-2.0-only
"""What happened, as one line for people or one JSON object for programs.

Everything goes to standard error: standard output is the wrapped command's.
"""

import sys

_DROP_NAMES = {
    "plug": "by the plug (raise --limit; or its device was set down)",
    "listeners": "by full queues of listeners (the server's listen backlog, "
                 "net.core.somaxconn, net.ipv4.tcp_max_syn_backlog)",
}


class Reporter:
    """Where messages go, and how many."""

    def __init__(self, as_json=False, quiet=False):
        self.as_json = as_json
        self._quiet = quiet

    @staticmethod
    def _write(text):
        try:
            print(text, file=sys.stderr, flush=True)
        except OSError:
            pass                   # nobody reads; the command still matters

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
                      "(--max-hold), or say what to wait for (--until, "
                      "--until-new-port)")
        elif waited["for"]:
            self.note(f"waited {waited['ms']:g} ms after the command: "
                      f"{waited['for']}")
        held = sum(hold.get("held", 0) for hold in outcome["holds"])
        for hold in outcome["holds"]:
            if hold["ended_by"].startswith("error"):
                self.warn(f"{hold['device']}: no report of the hold "
                          f"({hold['ended_by']})")
            said = "; ".join(hold.get("passed", []) + hold.get("remarks", []))
            if said and not held:
                self.warn(f"{hold['device']}: nothing to hold was seen: {said}")
            elif said and hold["held"]:
                self.note(f"{hold['device']}: {said}")
            for name, count in hold.get("drops", {}).items():
                if count:
                    self.warn(f"{hold['device']}: {count} dropped "
                              f"{_DROP_NAMES[name]}")
        if self.as_json:
            import json            # when nobody waits any more
            self._write(json.dumps(outcome))
        else:
            for hold in outcome["holds"]:
                if hold["others"] or "held" in hold:
                    self.note(_hold_line(hold))


def _hold_line(hold):
    if hold["others"]:
        return (f"{hold['device']}: others share this hold and will end it")
    return (f"{hold['device']}: held {hold['held']} for at most "
            f"{hold['longest_hold_ms']:g} ms, "
            f"{sum(hold['drops'].values())} dropped "
            f"(hold of {hold['hold_ms']:g} ms)")
