# SPDX-License-Identifier: GPL-2.0-only
"""Flows broken when servers or directors change, see availability/guest.sh."""

import bench

KERNELS = ("uml",)
# 150 of them are naps; the rest, on 10,000 flows, takes twice as long on a host
# that has other things to do
SECONDS = {"quick": 180, "full": 500}
FLOWS = {"quick": 500, "full": 10000}
NAMES = {"mh": "mh", "mh-sloppy": "mh, sloppy_tcp=1", "mhs": "mhs",
         "wlc-sync": "wlc, sync daemon"}
COLOURS = {"mh": "mh", "mh-sloppy": "published", "mhs": "mhs",
           "wlc-sync": "wlc"}
SCENARIOS = {"rolling": "rolling update",
             "flap": "a server flaps", "drain": "a server is drained",
             "delete": "a server is deleted",
             "restart": "director restarted",
             "failover": "another director"}


def measure(docs, mode):
    lines = bench.machine(
        "uml", [bench.HERE / "availability" / "guest.sh", FLOWS[mode]],
        8 * SECONDS[mode], "--memory", "2G")
    bench.write_csv(docs / "availability.csv", bench.parse_csv(lines))


def draw(docs):
    rows = {(row["scenario"], row["by"]): row
            for row in bench.read_csv(docs / "availability.csv")}
    lines = []
    for scenario, text in SCENARIOS.items():
        cells = [text]
        for by in NAMES:
            row = rows[scenario, by]
            cells.append(f"{int(row['broken']):,} of {int(row['flows']):,}, "
                         f"{int(row['failed'])} of {int(row['new']):,}")
        lines.append(cells)
    bench.write_table(docs, "availability",
                      ["event", *NAMES.values()], lines)
    drawing, axes = bench.figure(7.5, 3.8)
    for place, by in enumerate(NAMES):
        broken = [int(rows[scenario, by]["broken"]) for scenario in SCENARIOS]
        bars = axes.bar(
            [i + (place - 1.5) * 0.2 for i in range(len(SCENARIOS))],
            [100 * count / int(rows[scenario, by]["flows"])
             for count, scenario in zip(broken, SCENARIOS)], 0.18,
            label=NAMES[by], color=bench.COLOURS[COLOURS[by]])
        # a bar of none is not to be seen
        for label, count in zip(
                axes.bar_label(bars, padding=2, fontsize=8,
                               labels=[f"{count:,}" for count in broken]),
                broken):
            label.set_rotation(90 if count else 0)
    axes.set_xticks(range(len(SCENARIOS)), SCENARIOS.values(), rotation=20,
                    ha="right")
    axes.set_ylim(0, 125)
    axes.set_yticks(range(0, 101, 20))
    axes.set_ylabel("flows broken, %, and their number")
    axes.grid(True, axis="y", alpha=0.3)
    axes.legend(frameon=False, fontsize=8, loc="lower left", ncols=4,
                bbox_to_anchor=(0, 1))
    bench.save(drawing, docs / "availability.svg")
