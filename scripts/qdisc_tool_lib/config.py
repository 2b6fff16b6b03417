# SPDX-License-Identifier: GPL-2.0-only
"""The configuration file: a section is a device, and its keys are the long
options of 'setup', so that both are read by one parser and refused by one
rule."""

from configparser import Error, RawConfigParser

from .errors import ToolError
from .options import parse

# Keys that would belong to the whole call, not to a device.
_NO_KEYS = ("device", "netns", "state-dir", "config", "json", "quiet", "help")


def read_config(path):
    """The options of each section of the file at @path."""
    config = RawConfigParser(default_section="", allow_no_value=True,
                             inline_comment_prefixes=("#",))
    try:
        with open(path, encoding="utf-8") as file:
            config.read_file(file)
    except FileNotFoundError as error:
        raise ToolError(f"no --device given, and there is no {path}") from error
    except (OSError, UnicodeDecodeError, Error) as error:
        raise ToolError(f"{path}: {error}") from error
    if not config.sections():
        raise ToolError(f"{path}: no [device] section in it")
    return [_setup(config[device], f"{path}: [{device}]", device) for device in config.sections()]


def _setup(section, where, device):
    argv = ["setup", f"--device={device}"]
    for key, value in section.items():
        if key in _NO_KEYS:
            raise ToolError(f"{where}: {key!r} cannot be said for a device; "
                            "give it on the command line")
        if value is None or value.lower() in ("yes", "true", "on"):
            argv.append(f"--{key}")
        elif value.lower() not in ("no", "false", "off"):
            argv.append(f"--{key}={value}")
    try:
        return parse(argv)
    except ToolError as error:
        raise ToolError(f"{where}: {error}") from error
