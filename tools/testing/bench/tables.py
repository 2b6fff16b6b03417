# SPDX-License-Identifier: GPL-2.0-only
"""Lookup tables: how evenly they spread, what a change moves, what they cost.

The C programs in tables/ run in user space, with the ip_vs_mhs_table.c that
the kernel compiles.
"""

import subprocess

import bench

KERNELS = ()
SECONDS = {"quick": 50, "full": 280}
SETS = {"quick": "7", "full": "99"}
EVENTS = ("remove 1", "remove 10 %", "add 1", "halve 1")
COLOURS = {"mh": bench.COLOURS["mh"], "mhs": bench.COLOURS["mhs"],
           "bounded 0 %": "#56b4e9", "bounded 2 %": bench.COLOURS["other"],
           "rendezvous": bench.COLOURS["published"]}


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


def cell(row, name, unit=""):
    return f"{float(row[name]):.2f}{unit}"


def draw(docs):
    moved = bench.read_csv(docs / "tables-moved.csv")
    built = bench.read_csv(docs / "tables-build.csv")
    lines = []
    for size in ("4093", "16381", "65521"):
        for servers in ("10", "100", "1000"):
            for fill in ("mh", "mhs"):
                rows = {row["event"]: row for row in moved
                        if (row["fill"], row["size"], row["servers"])
                        == (fill, size, servers)}
                lines.append([
                    f"{int(size):,}", f"{int(servers):,}", fill,
                    *(f"{cell(rows[e], 'moved')} ({cell(rows[e], 'floor')})"
                      for e in EVENTS),
                    f"{float(rows['remove 1']['imbalance']):.3f}",
                    f"{float(rows['halve 1']['imbalance']):.3f}"])
    bench.write_table(docs, "tables-moved",
                      ["slots", "servers", "fill", *EVENTS, "load",
                       "load, one halved"], lines)
    lines = []
    for servers in ("10", "100", "1000"):
        for fill in COLOURS:
            rows = {row["event"]: row for row in moved
                    if (row["fill"], row["size"], row["servers"])
                    == (fill, "65521", servers)}
            ms = {row["fill"]: row["ms"] for row in built
                  if (row["size"], row["servers"]) == ("65521", servers)}
            lines.append([
                f"{int(servers):,}", fill,
                *(cell(rows[e], "moved") for e in EVENTS),
                f"{float(rows['remove 1']['imbalance']):.3f}",
                f"{float(ms[fill]):.1f}",
                f"{float(ms[fill + ' kept']):.1f}"
                if fill + " kept" in ms else ""])
    bench.write_table(docs, "tables-fills",
                      ["servers", "fill", *EVENTS, "load", "build, ms",
                       "change, ms"], lines)
    lines = []
    for size in ("4093", "65521", "131071"):
        for servers in ("10", "100", "1000"):
            ms = {row["fill"]: row for row in built
                  if (row["size"], row["servers"]) == (size, servers)}
            lines.append([f"{int(size):,}", f"{int(servers):,}",
                          *(f"{float(ms[fill]['ms']):.2f} "
                            f"({float(ms[fill]['ms_low']):.2f}-"
                            f"{float(ms[fill]['ms_high']):.2f})"
                            for fill in ("mh", "mhs"))])
    bench.write_table(docs, "tables-build",
                      ["slots", "servers", "mh, ms", "mhs, ms"], lines)
    picture(docs, moved)


def picture(docs, moved):
    """Slots moved for nothing: above what any fill must move."""
    drawing, axes = bench.figure(8.8, 3.6, ncols=3, sharey=True)
    bars = [("mh", "4093"), ("mh", "65521"), ("mhs", "65521"),
            ("bounded 0 %", "65521"), ("bounded 2 %", "65521")]
    for plot, servers in zip(axes, ("10", "100", "1000")):
        for place, (fill, size) in enumerate(bars):
            rows = {row["event"]: row for row in moved
                    if (row["fill"], row["size"], row["servers"])
                    == (fill, size, servers)}
            heights = [float(rows[e]["moved"]) - float(rows[e]["floor"])
                       for e in EVENTS]
            plot.bar([i + (place - 2) * 0.17 for i in range(len(EVENTS))],
                     heights, 0.16, color=COLOURS[fill],
                     alpha=0.5 if (fill, size) == ("mh", "65521") else 1,
                     label=f"{fill}, {int(size):,}")
        plot.set_title(f"{int(servers):,} servers", fontsize=10)
        plot.set_xticks(range(len(EVENTS)),
                        [event.replace(" ", "\n", 1) for event in EVENTS],
                        fontsize=9)
        plot.grid(True, axis="y", alpha=0.3)
    axes[0].set_ylabel("slots moved without need, %")
    axes[0].set_yscale("symlog", linthresh=0.1)
    axes[0].set_yticks((0, 0.1, 1, 10), ("0", "0.1", "1", "10"))
    drawing.legend(*axes[0].get_legend_handles_labels(), frameon=False,
                   fontsize=8, loc="lower center", ncols=len(bars),
                   bbox_to_anchor=(0.5, 0.97))
    bench.save(drawing, docs / "tables.svg")
