# SPDX-License-Identifier: GPL-2.0-only
"""Lookup tables, computed by mhs_table from the kernel's own table code."""

import os
from collections import namedtuple

from ipvs_mhs_tool import ToolError, run

_HERE = os.path.dirname(os.path.realpath(__file__))
# where it is installed, and where 'make tools' puts it
_PLACES = (f"{_HERE}/mhs_table",
           os.path.join(_HERE, "../../build/tools/mhs_table"))


# slots: the server of each slot, by name; None for no server
Table = namedtuple("Table", "fingerprint slots")


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
    # Everybody may read the arguments of a process, hence the key is not among
    # them.
    done = run([program, str(size), str(len(servers))], f"{key}\n{lines}",
               check=False)
    if done.returncode:
        raise ToolError(done.stderr.strip() or
                        f"{program} failed ({done.returncode})")
    fingerprint, *slots = done.stdout.split()
    names = [s.name for s in servers] + [None]
    return Table(fingerprint, [names[int(n)] for n in slots])
