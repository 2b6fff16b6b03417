# SPDX-License-Identifier: GPL-2.0-only
"""The published experiment: entries and CPU under short connections while
servers flap, see state/guest.py.

Requests/s are a 200th of the published ones, and all times are the defaults
divided by COMPRESSION: an entry of an ended connection lives for one second, as
in the published figures, where entries equal requests/s.
"""

import bench

KERNELS = ("uml",)
SECONDS = {"quick": 150, "full": 700}
COMPRESSION = 120
PERIOD_S = 0.5  # of flapping: one minute without the compression
RATES = {"quick": "250,500,1250", "full": "250,500,1250,2500"}
RUN_S = {"quick": 11, "full": 40}
SHOWN = {"route": ("plain routing", "floor"), "mh": ("mh", "mh"),
         "published": ("published algorithm", "published"),
         "mhs": ("mhs", "mhs")}


def measure(docs, mode):
    packets = bench.HERE / "packets"
    program = bench.compile_c("requests", bench.HERE / "state" / "requests.c",
                              packets / "packet.c", flags=[f"-I{packets}"])
    lines = bench.machine(
        "uml", [bench.HERE / "state" / "guest.py", "--requests", program,
                "--rates", RATES[mode], "--seconds", RUN_S[mode],
                "--compression", COMPRESSION, "--period", PERIOD_S],
        3 * SECONDS[mode], "--memory", "2G")
    bench.write_csv(docs / "state.csv", bench.parse_csv(lines))


def draw(docs):
    rows = bench.read_csv(docs / "state.csv")
    by = {(int(r["rate"]), int(r["flapping"]), r["director"]): r for r in rows}
    rates = sorted({key[0] for key in by})
    flapping = sorted({key[1] for key in by})
    lines = []
    for share in flapping:
        for rate in rates:
            cells = [f"{share} %", f"{rate:,}"]
            for name in ("mh", "published", "mhs"):
                row = by[rate, share, name]
                cells.append(f"{int(row['entries']):,} "
                             f"({int(row['entries_low']):,}-"
                             f"{int(row['entries_high']):,})")
            cells += [f"{int(by[rate, share, name]['ns']) / 1000:.1f}"
                      for name in SHOWN]
            cells += ["/".join(
                str(int(by[rate, share, name][k])
                    + int(by[rate, share, name]["long_" + k]))
                for name in ("mh", "published", "mhs"))
                for k in ("moved", "lost")]
            lines.append(cells)
    bench.write_table(
        docs, "state",
        ["flapping", "requests/s", "entries: mh", "published", "mhs",
         "CPU, us: routing", "mh", "published", "mhs",
         "moved: mh/pub./mhs", "lost a packet"], lines)
    drawing, (left, right) = bench.figure(8.5, 3.8, ncols=2)
    groups = [(share, rate) for share in flapping for rate in rates]
    for place, name in enumerate(("mh", "published", "mhs")):
        at = [i + (place - 1) * 0.27 for i in range(len(groups))]
        label, colour = SHOWN[name]
        left.bar(at, [int(by[rate, share, name]["entries"])
                      for share, rate in groups], 0.25,
                 color=bench.COLOURS[colour], label=label)
        right.bar(at, [(int(by[rate, share, name]["ns"])
                        - int(by[rate, share, "route"]["ns"])) / 1000
                       for share, rate in groups], 0.25,
                  color=bench.COLOURS[colour], label=label)
    for plot in (left, right):
        plot.set_xticks(range(len(groups)),
                        [f"{rate:,}" for _, rate in groups], rotation=60,
                        fontsize=8)
        for i, share in enumerate(flapping):
            plot.annotate(f"{share} % flap", (i * len(rates)
                                              + (len(rates) - 1) / 2, 1),
                          xycoords=("data", "axes fraction"), ha="center",
                          fontsize=8)
        plot.set_xlabel("requests/s")
        plot.grid(True, axis="y", alpha=0.3)
    left.set_yscale("symlog", linthresh=10)
    left.set_ylabel("connection entries")
    right.set_ylabel("CPU for a request\nabove plain routing, us")
    right.legend(frameon=False, fontsize=8, loc="lower right", ncols=3,
                 bbox_to_anchor=(1, 1.06))
    bench.save(drawing, docs / "state.svg")
