# SPDX-License-Identifier: GPL-2.0-only
"""From the command line to the exit status."""

import sys
import _signal as signal      # see __init__.py

from .backlog import Backlog
from .errors import (EXIT_FAILED, EXIT_OK, EXIT_PROBLEM, EXIT_SIGNAL,
                     EXIT_USAGE, ToolError, UsageError)
from .options import (COMMANDS, DEFAULT_CONFIG, finish_setup, help_text,
                      parse)
from .report import Reporter
from .state import DEFAULT_DIRECTORY, State
from .system import (Namespace, may_administer, namespace_path,
                     namespace_prefix, quoted)

# What 'protect' does not need is imported where it is needed.


class Tool:
    """One run of the program, in the namespace it was told to act in."""

    def __init__(self, options):
        self.options = options
        self.reporter = Reporter(options.json, options.quiet)
        self.state = State(options.state_dir or DEFAULT_DIRECTORY)
        # Before the namespace is entered, where this file does not exist.
        self.backlog = Backlog(self.state)
        self.namespace = None
        self._prefix = []

    def enter_namespace(self):
        """Go where --netns says."""
        if self.options.netns:
            path = namespace_path(self.options.netns)
            self._prefix = namespace_prefix(path)
            self.namespace = Namespace(path)
            self.namespace.enter()
            self.state = State(self.options.state_dir or DEFAULT_DIRECTORY)

    def lanes(self):
        """The lanes meant: those named, or all that are set up."""
        if not self.options.device:
            return self.state.lanes(self.reporter.warn)
        lanes = []
        for device in self.options.device:
            lane = self.state.load(device)
            if lane is None:
                raise ToolError(f"{device} is not set up here: run "
                                f"'qdisc_tool setup --device {device}' with "
                                "what to hold (--address, --port)")
            lanes.append(lane)
        return lanes

    def some_lanes(self):
        lanes = self.lanes()
        if not lanes:
            raise ToolError("nothing is set up here: run 'qdisc_tool setup' "
                            "first")
        return lanes

    def show(self, argv_list):
        for argv in argv_list:
            print(quoted(self._prefix + argv))

    def each(self, items, function):
        """Do it for every one, also behind one that fails; exit status."""
        status = EXIT_OK
        for item in items:
            try:
                function(item)
            except (ToolError, OSError) as error:
                self.reporter.warn(str(error))
                status = EXIT_FAILED
        return status

    # The commands.

    def setup(self):
        from . import setup
        if self.options.device:
            requests = [self.options]
        else:
            from .config import read_config
            requests = read_config(self.options.config or DEFAULT_CONFIG)
        lanes = [lane for request in requests for lane in _lanes_of(request)]
        if self.options.dry_run:
            return self.each(lanes, lambda lane: self.show(
                setup.planned(lane)))
        return self.each(lanes, lambda lane: setup.setup(
            self.state, lane, self.reporter))

    def clear(self):
        from . import commands, setup
        if self.options.dry_run:
            for lane in self.lanes():
                self.show([commands.open_command(lane),
                           *commands.clear_commands(lane)])
            return EXIT_OK
        devices = self.options.device or [lane.device for lane in self.lanes()]
        status = self.each(devices, lambda device: setup.clear(
            self.state, device, self.reporter))
        self.backlog.restore()
        return status

    def protect(self):
        from .protect import Protect, settle_of
        if not self.options.command:
            raise UsageError("which command? 'qdisc_tool protect -- systemctl "
                             "reload haproxy', for example")
        if self.options.dry_run:
            lanes = self.lanes_to_protect()
            self._show_begin(lanes)
            settle_ms = settle_of(self.options, lanes)
            if settle_ms > 0:
                print(f"sleep {settle_ms / 1000:g}")
            print(quoted(self.options.command))
            return self._show_end(lanes)
        return Protect(self).run()

    def lanes_to_protect(self):
        """A reload is never refused for want of protection, unless that was
        asked for: the running configuration may be the one that is broken."""
        try:
            if not self.options.dry_run and not may_administer():
                raise ToolError("holding connections needs root "
                                "(CAP_NET_ADMIN)")
            self.enter_namespace()
            return self.some_lanes()
        except ToolError as error:
            if self.options.require:
                raise
            self.reporter.warn(f"running the command unprotected: {error}")
            return []

    def hold(self):
        from . import setup
        from .holder import Holder
        lanes = self.some_lanes()
        if self.options.dry_run:
            return self._show_begin(lanes)
        holders = []
        try:
            for lane in lanes:
                holder = Holder(self.state, lane, self.backlog)
                holder.acquire(self.options.max_hold_ms or lane.max_hold_ms,
                               keep=True)
                holders.append(holder)
        except (ToolError, OSError):
            for holder in holders:  # all or none
                setup.release(self.state, holder.lane)
            raise
        for holder in holders:
            holder.detach()
        return EXIT_OK

    def release(self):
        from . import setup
        lanes = self.lanes()
        if self.options.dry_run:
            return self._show_end(lanes)
        status = self.each(lanes, lambda lane: setup.release(self.state, lane))
        self.backlog.restore()
        return status

    def _show_begin(self, lanes):
        from . import commands, flower
        for lane in lanes:
            self.show([*flower.commands(lane), commands.shut_command(lane)])
        return EXIT_OK

    def _show_end(self, lanes):
        from . import commands, flower
        for lane in lanes:
            self.show([commands.open_command(lane),
                       *flower.removal_commands(lane)])
        return EXIT_OK

    def status(self):
        from . import setup
        states = [setup.status(self.state, lane) for lane in self.lanes()]
        if self.options.json:
            _print_json(states)
        else:
            for state in states:
                _print_status(state)
            if not states:
                print("nothing is set up")
        return (EXIT_PROBLEM if any(state["problems"] or
                                    state["condition"] == "stuck"
                                    for state in states) else EXIT_OK)

    def check(self):
        from . import setup
        found = [{"device": lane.device, "severity": severity,
                  "text": text} for lane in self.some_lanes()
                 for severity, text in setup.check(self.state, lane,
                                                   self.backlog)]
        if self.options.json:
            _print_json(found)
        else:
            for item in found:
                print(f"{item['device']}: {item['severity']}: {item['text']}")
            if not found:
                self.reporter.note("a hold would work")
        return (EXIT_PROBLEM if any(item["severity"] == "error"
                                    for item in found) else EXIT_OK)


def _print_json(value):
    import json
    print(json.dumps(value))


def _lanes_of(options):
    """The lanes one set of setup options describes."""
    from .lane import UNTIL_ACCEPTED, Lane
    lanes = []
    for device in options.device:
        values = {name: getattr(options, name) for name in Lane.FIELDS
                  if hasattr(options, name)}
        values.update(
            device=device,
            mode=options.mode or ("egress" if device == "lo" else "ingress"))
        if options.settle_ms is None:
            values["settle_ms"] = UNTIL_ACCEPTED
        lanes.append(Lane(**values))
    return lanes


def _print_status(state):
    what = "packets" if state["all_packets"] else "new connections"
    to = ", ".join(state["addresses"]) or "any address"
    ports = ", ".join(state["ports"]) or "any"
    print(f"{state['device']}: {state['condition']} ({state['mode']}, "
          f"{state['plug_kind']})")
    print(f"  holds {what} to {to}, ports {ports}")
    print(f"  room for {state['limit_packets']} packets "
          f"({state['limit_bytes']} bytes), {state['waiting']} wait, "
          f"{state['dropped']} were dropped")
    if state["watchdog"]:
        print("  held for {held_for_ms} ms by {sharers}, at most "
              "{ends_in_ms} ms more".format(**state["watchdog"]))
    if state["condition"] == "stuck":
        print("  packets wait and nobody owns the hold: run 'qdisc_tool "
              "release'")
    for problem in state["problems"]:
        print(f"  {problem}")


def main(argv):
    try:
        if argv == ["--version"]:
            from ipvs_mhs_version import version
            print("qdisc_tool", version())
            return EXIT_OK
        options = parse(argv)
        if options is None or options.help:
            print(help_text(options and options.action), end="")
            return EXIT_OK
        if options.action == "setup" and options.device:
            try:
                finish_setup(options)
            except ToolError as error:
                raise UsageError(str(error)) from error
        if options.action != "protect" and not options.dry_run and \
                not may_administer():
            raise ToolError(f"'{options.action}' needs root (CAP_NET_ADMIN)")
        tool = Tool(options)
        if options.action != "protect":
            tool.enter_namespace()
        return getattr(tool, options.action)()
    except KeyboardInterrupt:
        return EXIT_SIGNAL + signal.SIGINT
    except UsageError as error:
        print(f"qdisc_tool: {error}\nTry 'qdisc_tool "
              f"{argv[0] + ' ' if argv[:1] and argv[0] in COMMANDS else ''}"
              "--help'.", file=sys.stderr)
        return EXIT_USAGE
    except (ToolError, OSError) as error:
        print(f"qdisc_tool: {error}", file=sys.stderr)
        return EXIT_FAILED
