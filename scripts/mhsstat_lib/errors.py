# SPDX-License-Identifier: GPL-2.0-only
"""Exit statuses, and the exception that ends a command with a message."""

# 124 and 125 mean what they mean to timeout(1) and env(1).
EXIT_OK = 0
# check: there are findings; compare: they differ; plan: the kernel has another table, or new
# connections are refused; show --prometheus:
# the module is missing
EXIT_PROBLEM = 1
EXIT_USAGE = 2        # argparse's; the command line is wrong
EXIT_TIMEOUT = 124    # wait: not over in time
EXIT_FAILED = 125     # mhsstat could not do what was asked
EXIT_SIGNAL = 128     # plus the number of the signal


class ToolError(Exception):
    """What went wrong, and what to do about it, in words for the user."""


class UsageError(ToolError):
    """The command line is wrong."""


class NotThere(ToolError):
    """The module, or a service, is not there; it may come yet."""
