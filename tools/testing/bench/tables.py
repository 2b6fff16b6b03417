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
PICTURED = ("a server goes", "a tenth of them go", "a server comes",
            "a weight is halved")
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
    """Slots that move, each scheduler with the table that it has by default."""
    drawing, axes = bench.figure(8.8, 3.6, ncols=2, sharey=True)
    bars = {"mh": ("mh", "4093", "moved", "mh, 4,093 slots"),
            "mhs": ("mhs", "65521", "moved", "mhs, 65,521 slots"),
            "floor": ("mhs", "65521", "floor", "the least possible")}
    for plot, servers in zip(axes, ("100", "1000")):
        for place, (colour, (fill, size, column, name)) in enumerate(
                bars.items()):
            rows = {row["event"]: row for row in moved
                    if (row["fill"], row["size"], row["servers"])
                    == (fill, size, servers)}
            for i, event in enumerate(EVENTS):
                share, at = float(rows[event][column]), i + (place - 1) * 0.27
                plot.barh(at, share, 0.25, color=bench.COLOURS[colour],
                          label="" if i else name)
                plot.text(share, at, f" {share:.1f} %" if share >= 0.95 else
                          f" {share:.2f} %", va="center", fontsize=8)
        plot.set_title(f"{int(servers):,} servers", fontsize=10)
        plot.margins(x=0.15)
        plot.locator_params(axis="x", integer=True)
        plot.xaxis.set_major_formatter("{x:.0f} %")
        plot.set_xlabel("slots that move")
    axes[0].set_yticks(range(len(EVENTS)), PICTURED)
    axes[0].invert_yaxis()
    drawing.legend(*axes[0].get_legend_handles_labels(), frameon=False,
                   loc="lower center", ncols=len(bars),
                   bbox_to_anchor=(0.5, 0.97))
    bench.save(drawing, docs / "tables.svg")
