# SPDX-License-Identifier: GPL-2.0-only
"""Exit statuses, and the exception that ends a command with a message."""

EXIT_OK = 0
EXIT_PROBLEM = 1      # check: something is wrong
EXIT_USAGE = 2        # argparse's
EXIT_FAILED = 125     # real_server could not do what was asked
EXIT_SIGNAL = 128     # plus the number of the signal


class ToolError(Exception):
    """What went wrong, and what to do about it, in words for the user."""


class UsageError(ToolError):
    """Options that do not fit together."""
