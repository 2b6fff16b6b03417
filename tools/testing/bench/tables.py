# SPDX-License-Identifier: GPL-2.0-only
"""Lookup tables: how evenly they spread, what a change moves, what they cost.

The C programs in tables/ run in user space, with the ip_vs_mhs_table.c that
the kernel compiles.
"""

import subprocess

import bench

KERNELS = ()
SECONDS = {"quick": 5, "full": 20}
SETS = {"quick": "7", "full": "99"}
EVENTS = ("remove 1", "remove 10 %", "add 1", "halve 1")
FILLS = ("mh", "mhs")
SOURCES = ("net/netfilter/ipvs/ip_vs_mhs_table.[ch]",
           "net/netfilter/ipvs/ip_vs_mhs_decide.h")
EXACT = {"tables-moved": 0}


def measure(docs, mode):
    unit = bench.TOP / "tools" / "testing" / "unit"
    ipvs = bench.TOP / "net" / "netfilter" / "ipvs"
    here = bench.HERE / "tables"
    program = bench.compile_c(
        "tables", here / "tables.c", here / "fills.c", unit / "tables.c",
        unit / "recipes.c", unit / "unit.c", ipvs / "ip_vs_mhs_table.c",
        flags=[f"-I{unit}/include", f"-I{unit}", f"-I{ipvs}"])
    for what in ("moved", "build"):
        done = subprocess.run([program, what, SETS[mode]], check=True,
                              stdout=subprocess.PIPE, text=True)
        (docs / f"tables-{what}.csv").write_text(done.stdout)


def cell(row, name):
    return f"{float(row[name]):.2f}"


def draw(docs):
    moved = bench.read_csv(docs / "tables-moved.csv")
    built = bench.read_csv(docs / "tables-build.csv")
    cases = list(dict.fromkeys((row["size"], row["servers"]) for row in built))
    lines = []
    for size, servers in cases:
        for fill in FILLS:
            rows = {row["event"]: row for row in moved
                    if (row["fill"], row["size"], row["servers"])
                    == (fill, size, servers)}
            lines.append([
                f"{int(size):,}", f"{int(servers):,}", fill,
                *(f"{cell(rows[e], 'moved')} ({cell(rows[e], 'floor')})"
                  for e in EVENTS),
                f"{float(rows['remove 1']['imbalance']):.3f}"])
    bench.write_table(docs, "tables-moved",
                      ["slots", "servers", "fill", *EVENTS, "load"], lines)
    lines = []
    for size, servers in cases:
        ms = {row["fill"]: row for row in built
              if (row["size"], row["servers"]) == (size, servers)}
        lines.append([f"{int(size):,}", f"{int(servers):,}",
                      *(f"{float(ms[fill]['ms']):.2f} "
                        f"({float(ms[fill]['ms_low']):.2f}-"
                        f"{float(ms[fill]['ms_high']):.2f})"
                        for fill in FILLS)])
    bench.write_table(docs, "tables-build",
                      ["slots", "servers", "mh, ms", "mhs, ms"], lines)
