# SPDX-License-Identifier: GPL-2.0-only
"""Flows broken when servers or directors change, see availability/guest.sh."""

import bench
import source

KERNELS = ("uml",)
SOURCES = (*source.PACKET_PATH, source.CHANCE)
# 250 of them are naps; the rest, on 10,000 flows, takes twice as long on a host
# that has other things to do
SECONDS = {"quick": 400, "full": 1100}
FLOWS = {"quick": 500, "full": 10000}
NAMES = {"mh": "mh", "mh-sloppy": "mh, sloppy_tcp=1", "mhs": "mhs",
         "mhs-chance": "mhs, second chance",
         "wlc-sync": "wlc, sync daemon"}
SCENARIOS = {"rolling": "rolling update",
             "flap": "a server of ten flaps", "drain": "a server is drained",
             "delete": "a server is deleted",
             "add": "a server is added", "weight": "a weight is changed",
             "restart": "director restarted",
             "failover": "another director",
             "disagree": "directors that disagree",
             "killed": "director killed in mid-change"}


SHOWN = {"mh": ("mh", "mh"), "mhs": ("mhs", "mhs"),
         "mhs-chance": ("mhs, second chance", "other")}


def measure(docs, mode):
    lines = bench.machine(
        "uml", [bench.HERE / "availability" / "guest.sh", FLOWS[mode]],
        8 * SECONDS[mode], "--memory", "2G")
    samples = [line[1:] for line in lines if line.startswith("@")]
    bench.write_csv(docs / "entries.csv", bench.parse_csv(
        ["by,time_ms,entries", *samples]))
    bench.write_csv(docs / "availability.csv", bench.parse_csv(
        line for line in lines if not line.startswith("@")))


def draw(docs):
    rows = {(row["scenario"], row["by"]): row
            for row in bench.read_csv(docs / "availability.csv")}
    lines = []
    for scenario, text in SCENARIOS.items():
        cells = [text]
        for by in NAMES:
            row = rows[scenario, by]
            cells.append(f"{int(row['broken']):,}; {int(row['failed'])}; "
                         f"{int(row['entries']):,}")
        lines.append(cells)
    bench.write_table(docs, "availability",
                      ["event", *NAMES.values()], lines)
    picture(docs, rows)
    entries(docs)


def picture(docs, rows):
    """A cell for each event and scheduler: the more flows broke, the darker."""
    drawing, axes = bench.figure(6.5, 4)
    share = [[int(rows[scenario, by]["broken"]) / int(rows[scenario, by]["flows"])
              for by in SHOWN] for scenario in SCENARIOS]
    axes.pcolormesh(share, cmap="Oranges", vmin=0, vmax=1.4, edgecolors="white",
                    linewidth=3)
    for y, scenario in enumerate(SCENARIOS):
        for x, by in enumerate(SHOWN):
            axes.text(x + 0.5, y + 0.5, f"{int(rows[scenario, by]['broken']):,}",
                      ha="center", va="center",
                      weight="bold" if share[y][x] else "normal")
    axes.set_xticks([x + 0.5 for x in range(len(SHOWN))],
                    [name.replace(", ", "\n") for name, _ in SHOWN.values()])
    axes.set_yticks([y + 0.5 for y in range(len(SCENARIOS))], SCENARIOS.values())
    axes.xaxis.tick_top()
    axes.invert_yaxis()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    flows = next(iter(rows.values()))["flows"]
    axes.set_xlabel(f"flows broken, of {int(flows):,}; mh with the default, "
                    "sloppy_tcp=0")
    bench.save(drawing, docs / "availability.svg")


def entries(docs):
    """Over a change: a server is drained at 0 s."""
    drawing, axes = bench.figure(7.5, 3)
    samples = bench.read_csv(docs / "entries.csv")
    for by, (name, colour) in SHOWN.items():
        of = [(int(row["time_ms"]) / 1000, int(row["entries"])) for row in samples
              if row["by"] == by]
        axes.plot(*zip(*of), color=bench.COLOURS[colour])
        axes.text(*of[-1], f"  {name}", va="center", color=bench.COLOURS[colour])
    axes.set_ylim(0)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylabel("connection entries")
    axes.set_xlabel("seconds since a server of four was drained "
                    "(hold_ms=1000, pin_ms=12000)")
    axes.grid(True, alpha=0.3)
    bench.save(drawing, docs / "entries.svg")
