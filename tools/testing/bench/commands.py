# SPDX-License-Identifier: GPL-2.0-only
"""Commands that change many services at once, see commands/guest.sh."""

import bench

KERNELS = ("uml",)
SECONDS = {"quick": 60, "full": 150}
SERVICES, SERVERS = 800, 20
ROUNDS = {"quick": 2, "full": 5}
COMMANDS = {"restore": "all made (``ipvsadm -R``)",
            "drain": "one server drained in all"}


def measure(docs, mode):
    lines = bench.machine(
        "uml", [bench.HERE / "commands" / "guest.sh", SERVICES, SERVERS,
                ROUNDS[mode]], 8 * SECONDS[mode], "--memory", "2G")
    bench.write_csv(docs / "commands.csv", bench.parse_csv(lines))


def draw(docs):
    rows = bench.read_csv(docs / "commands.csv")
    lines = []
    for command, text in COMMANDS.items():
        cells = [text]
        for scheduler in ("mh", "mhs"):
            for column in ("us", "built_us"):
                cells.append(bench.spread_text(
                    [int(row[column]) / 1e6 for row in rows
                     if row["command"] == command and
                     row["scheduler"] == scheduler],
                    "{:.2f}".format, bench.extremes))
        lines.append(cells)
    bench.write_table(docs, "commands",
                      ["command", "mh, s", "with tables", "mhs, s",
                       "with tables"], lines)
