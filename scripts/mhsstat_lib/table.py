# SPDX-License-Identifier: GPL-2.0-only
"""Lookup tables, computed by mhs_table from the kernel's own table code."""

import os
import subprocess
from dataclasses import dataclass

from .errors import ToolError

SIZES = (251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521, 131071)

_HERE = os.path.dirname(os.path.realpath(__file__))
# where it is installed, and where 'make tools' puts it
_PLACES = (f"{_HERE}/mhs_table",
           os.path.join(_HERE, "../../build/tools/mhs_table"))


@dataclass
class Table:
    """The server of each slot, by name; None for no server."""

    fingerprint: str
    slots: list


def find_program(path=None):
    """mhs_table."""
    for place in (path,) if path else _PLACES:
        if os.access(place, os.X_OK):
            return place
    raise ToolError(f"{path or 'mhs_table'} is not there: build it with 'make "
                    "tools', or say where it is with --table-program")


def compute(program, size, key, servers):
    """The table of @servers, each with name, address, port and weight."""
    lines = "".join(f"{s.address} {s.port} {s.weight}\n" for s in servers)
    try:
        # Everybody may read the arguments of a process, hence the key is not
        # among them.
        done = subprocess.run([program, str(size), str(len(servers))],
                              input=f"{key}\n{lines}", capture_output=True,
                              text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"{program}: {error}") from error
    if done.returncode:
        raise ToolError(done.stderr.strip() or
                        f"{program} failed ({done.returncode})")
    fingerprint, *slots = done.stdout.split()
    names = [s.name for s in servers] + [None]
    return Table(fingerprint, [names[int(n)] for n in slots])
