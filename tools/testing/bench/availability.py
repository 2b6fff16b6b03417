# SPDX-License-Identifier: GPL-2.0-only
"""Flows broken when servers or directors change, see availability/guest.sh."""

import bench

KERNELS = ("uml",)
SECONDS = {"quick": 130, "full": 480}
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
    drawing, axes = bench.figure(7.5, 3.4)
    for place, by in enumerate(NAMES):
        axes.bar([i + (place - 1.5) * 0.2 for i in range(len(SCENARIOS))],
                 [100 * int(rows[s, by]["broken"]) / int(rows[s, by]["flows"])
                  for s in SCENARIOS], 0.18, label=NAMES[by],
                 color=bench.COLOURS[COLOURS[by]])
    axes.set_xticks(range(len(SCENARIOS)), SCENARIOS.values(), rotation=20,
                    ha="right")
    axes.set_ylabel("flows broken, %")
    axes.grid(True, axis="y", alpha=0.3)
    axes.legend(frameon=False, fontsize=8, loc="lower left", ncols=4,
                bbox_to_anchor=(0, 1))
    bench.save(drawing, docs / "availability.svg")
