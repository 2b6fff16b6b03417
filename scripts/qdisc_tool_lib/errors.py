# SPDX-License-Identifier: GPL-2.0-only
"""Exit statuses, and the exception that ends a command with a message."""

# A wrapped command's own status passes through.  These are ours; 125 to 127
# mean what they mean to env(1), 124 what it means to timeout(1).
EXIT_OK = 0
EXIT_PROBLEM = 1          # status and check: something is not as it should be
EXIT_USAGE = 2
EXIT_PASSED = 122         # it succeeded, but connections passed the hold by
EXIT_DROPPED = 123        # the command succeeded, but a packet was lost
EXIT_NOT_COVERED = 124    # it succeeded, but not under a hold to its end
EXIT_FAILED = 125         # qdisc_tool itself could not do what was asked
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
EXIT_SIGNAL = 128         # plus the number of the signal


class ToolError(Exception):
    """What went wrong, and what to do about it, in words for the user."""


class UsageError(ToolError):
    """The command line is wrong."""


def words(error):
    """What it says, of a file with its name."""
    return f"{error.filename}: {error.strerror}" if getattr(error, "filename", None) else str(error)
