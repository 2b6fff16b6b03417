# SPDX-License-Identifier: GPL-2.0-only
"""What mhsstat and real_server share: exit statuses, the exception that reaches
the user, options, the running of programs, the way from the command line to the
exit status."""

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys

# 124 and 125 mean what they mean to timeout(1) and env(1).
EXIT_OK = 0
EXIT_PROBLEM = 1      # the answer is no, as the man page of the tool says
EXIT_USAGE = 2        # argparse's; the command line is wrong
EXIT_TIMEOUT = 124
EXIT_FAILED = 125     # the tool could not do what was asked
EXIT_SIGNAL = 128     # plus the number of the signal

_COMMAND_TIMEOUT_S = 20


class ToolError(Exception):
    """What went wrong, and what to do about it, in words for the user."""


class UsageError(ToolError):
    """The command line is wrong."""


class Parser(argparse.ArgumentParser):
    """Takes no half-written options, and says where to read more."""

    def __init__(self, **arguments):
        super().__init__(allow_abbrev=False, **arguments)

    def error(self, message):
        unknown = re.match(r"unrecognized arguments: (--[^ =]+)", message)
        if unknown:
            message += _meant(unknown[1], self.options())
        self.exit(EXIT_USAGE, f"{self.prog}: {message}\n"
                              f"Try '{self.prog} --help'.\n")

    def options(self):
        """Long ones, also those of its commands."""
        found = {o for o in self._option_string_actions if o.startswith("--")}
        for action in self._actions:
            if isinstance(action.choices, dict):
                for sub in action.choices.values():
                    found |= sub.options()
        return found


def _meant(word, words):
    """'; did you mean ...?', if one of @words is like @word."""
    from difflib import get_close_matches
    like = get_close_matches(word, words, 1)
    return f"; did you mean {like[0]}?" if like else ""


class _Version(argparse.Action):
    """Reads the version only when it is asked for."""

    def __call__(self, parser, namespace, values, option_string=None):
        from ipvs_mhs_version import version
        print(parser.prog, version())
        parser.exit()


def commands_of(prog, description):
    """(the parser of the whole command line, where its commands are added)"""
    top = Parser(prog=prog, description=description)
    top.add_argument("-V", "--version", action=_Version, nargs=0,
                     help="show the version")
    return top, top.add_subparsers(dest="action", metavar="command",
                                   required=True, parser_class=Parser)


def json_of(value):
    """A document, which has a field "format"; each field and each object of a list
    has a line.  Indentation by json takes six times as long."""
    from json import dumps
    fields = [dumps(name) + ": " + (
        "[\n  " + ",\n  ".join(map(dumps, field)) + "]"
        if isinstance(field, list) and field else dumps(field))
        for name, field in value.items()]
    return "{\n " + ",\n ".join(fields) + "\n}\n"


def quoted(argv):
    """A command as a shell reads it."""
    return " ".join(map(shlex.quote, argv))


def run(argv, text=None, check=True):
    """A program that has ended, with its output; ToolError with its own words
    if it fails, unless its status does not matter."""
    try:
        done = subprocess.run(argv, input=text, text=True, check=False, errors="replace",
                              capture_output=True, timeout=_COMMAND_TIMEOUT_S)
    except FileNotFoundError as error:
        raise ToolError(f"{argv[0]} is not installed, or not in PATH"
                        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"{quoted(argv)}: {error}") from error
    if check and done.returncode:
        words = " ".join((done.stderr or done.stdout).split())
        raise ToolError(f"{quoted(argv)}: "
                        f"{words or f'exit status {done.returncode}'}")
    return done


def _end_output():
    """What cannot be written is dropped: Python would complain at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _said(parser, actions, argv):
    """The command line in full: the command is 'show' if there is none, may be
    abbreviated, and help is a command, too."""
    if not argv:
        return ["show"]
    if argv[0] == "help":
        return [*argv[1:2], "--help"]
    if argv[0] in ("-h", "--help", "-V", "--version"):
        return argv
    if argv[0].startswith("-"):
        return ["show", *argv]
    those = [argv[0]] if argv[0] in actions else \
        [name for name in actions if name.startswith(argv[0])]
    if len(those) == 1:
        return [those[0], *argv[1:]]
    parser.error(f"{argv[0]!r} is {', '.join(sorted(those))}: write more of it"
                 if those else f"no command {argv[0]!r}" +
                 (_meant(argv[0], actions) or
                  f": there are {', '.join(sorted(actions))}"))


def main(parser, actions, argv):
    """One command; its exit status."""
    if sys.stdout is None:      # closed by the caller
        sys.stdout = open(os.devnull, "w", encoding="utf-8")
    try:
        try:
            options = parser.parse_args(_said(parser, actions, argv))
            status = actions[options.action](options)
        except SystemExit as end:
            status = end.code
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return EXIT_SIGNAL + signal.SIGINT
    except BrokenPipeError:     # the reader has seen enough
        _end_output()
        return EXIT_SIGNAL + signal.SIGPIPE
    except (ToolError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        _end_output()
        return EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED
