# SPDX-License-Identifier: GPL-2.0-only
"""From the command line to the exit status."""

import signal

from . import actions
from .errors import (EXIT_FAILED, EXIT_SIGNAL, EXIT_USAGE, ToolError, UsageError, words)
from .options import parse
from .protect import Protect
from .report import Reporter
from .state import State
from .system import Namespace, may_administer


class Tool:
    """One run of the program, in the namespace it was told to act in."""

    def __init__(self, options):
        self.options = options
        self.reporter = Reporter(options.json, options.quiet)
        self.state = self.namespace = None

    def enter_namespace(self):
        """Go where --netns says."""
        if self.options.netns:
            self.namespace = Namespace(self.options.netns)
            self.namespace.enter()
        self.state = State(self.options.state_dir)

    def gates(self, some=False):
        """The gates meant: those named, or all that are set up."""
        named = self.options.device
        gates = [self.state.load(device) for device in named] if named else self.state.gates()
        if None in gates or some and not gates:
            raise ToolError(f"{' or '.join(named) or 'nothing'} is not set up here: run "
                            "'qdisc_tool setup' first, with what to hold (--address, --port)")
        return gates


def main(argv):
    try:
        options = parse(argv)
        tool = Tool(options)
        if options.action == "protect":
            return Protect(tool).run()
        if not may_administer():
            raise ToolError(f"'{options.action}' needs root (CAP_NET_ADMIN, "
                            "CAP_NET_RAW and CAP_BPF)")
        tool.enter_namespace()
        return getattr(actions, options.action)(tool)
    except KeyboardInterrupt:
        return EXIT_SIGNAL + signal.SIGINT
    except (ToolError, OSError) as error:
        Reporter.warn(words(error))
        return EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED
