# SPDX-License-Identifier: GPL-2.0-only
"""Which source a figure is of: a fingerprint of the files that it depends on, without
comments and blanks.  A section has them in SOURCES, or depends on the packet path."""

import functools
import hashlib
import re

import bench

# without the lane's files, which lane.py names, and what the second chance alone runs
PACKET_PATH = ("net/netfilter/ipvs/ip_vs_mhs.h", "net/netfilter/ipvs/ip_vs_mhs_[!cl]*.[ch]",
               "net/netfilter/ipvs/ip_vs_mhs_change.c", "net/netfilter/ipvs/ip_vs_mhs_lane.h",
               "include/*.h")
CHANCE = "net/netfilter/ipvs/ip_vs_mhs_chance.c"
CONTROL = "ip_vs_mhs_ctl.h"  # no file of the packet path includes it


def of(section):
    """The files of a section."""
    found = {path for pattern in getattr(section, "SOURCES", PACKET_PATH)
             for path in bench.TOP.glob(pattern)}
    return tuple(sorted(
        path for path in found if not path.name.endswith(".mod.c") and
        path.name != CONTROL and f'"{CONTROL}"' not in path.read_text()))


@functools.cache
def fingerprint(paths):
    """Of the words of files, without comments.  A function that moves to another place
    or file costs what it did, so what stands between blank lines is sorted."""
    text = re.sub(r'''("(?:\\.|[^"\\])*")|^[ \t]*/\*.*?\*/[ \t]*\n|//[^\n]*|/\*.*?\*/''',
                  lambda found: found[1] or " " * (found[0][-1] != "\n"),
                  "\n\n".join(path.read_text() for path in paths), flags=re.S | re.M)
    parts = sorted(" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
