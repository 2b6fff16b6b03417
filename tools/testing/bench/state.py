# SPDX-License-Identifier: GPL-2.0-only
"""The published experiment: entries and CPU under short connections while
servers flap, see state/guest.py.

Requests/s are a 200th of the published ones, and all times are the defaults
divided by COMPRESSION: an entry of an ended connection lives for one second, as
in the published figures, where entries equal requests/s.
"""

import shutil

import bench

KERNELS = ("uml",)
SECONDS = {"quick": 170, "full": 580}
COMPRESSION = 120
PERIOD_S = 0.5  # of flapping: one minute without the compression
RATES = "250,500,1250"
# a run is longer than the longest life of an entry, 900 s / COMPRESSION
RUN_S = {"quick": 15, "full": 18}
ROUNDS = {"quick": 1, "full": 3}
STEADY = 0.6  # of a run: what began at the start is over
REACHED = 0.95  # of a rate: below it the table shows the real one
SHOWN = {"route": ("plain routing", "floor"), "mh": ("mh", "mh"),
         "published": ("published algorithm", "published"),
         "mhs": ("mhs", "mhs")}
DIRECTORS = ("mh", "published", "mhs")


def measure(docs, mode):
    packets = bench.HERE / "packets"
    program = bench.compile_c("requests", bench.HERE / "state" / "requests.c",
                              packets / "packet.c", flags=[f"-I{packets}"])
    lines = bench.machine(
        "uml", [bench.HERE / "state" / "guest.py", "--requests", program,
                "--rates", RATES, "--seconds", RUN_S[mode],
                "--rounds", ROUNDS[mode], "--compression", COMPRESSION,
                "--period", PERIOD_S, "--directory", bench.WORK],
        3 * SECONDS[mode], "--memory", "2G")
    bench.write_csv(docs / "state.csv", bench.parse_csv(lines))
    for name in ("state-time.csv", "state-cpu.csv"):
        shutil.copyfile(bench.WORK / name, docs / name)


def by_run(path):
    """{(flapping, rate): {director: [row]}}, all rounds together."""
    runs = {}
    for row in bench.read_csv(path):
        key = int(row["flapping"]), int(row["rate"])
        runs.setdefault(key, {}).setdefault(row["director"], []).append(row)
    return dict(sorted(runs.items()))


class Cpu:
    """Microseconds for a request, one value for each second of all rounds."""

    def __init__(self, rows):
        self.us = {name: [int(row["ns"]) / 1000 for row in rows[name]]
                   for name in SHOWN}

    def above(self, name):
        """Of the same second: plain routing is not in it, nor the sender."""
        return [us - floor for us, floor in zip(self.us[name],
                                                self.us["route"])]

    def ratio(self, name):
        return [a / b for a, b in zip(self.above(name), self.above("mh"))
                if b > 0]


def spread_text(values, digits):
    return bench.spread_text(values, lambda value: f"{value:.{digits}f}")


def steady(samples):
    """Entries in the last part of each run."""
    end_s = max(float(row["time_s"]) for row in samples)
    return [int(row["entries"]) for row in samples
            if float(row["time_s"]) > STEADY * end_s]


def entries_text(samples):
    return bench.spread_text(steady(samples), lambda value: f"{value:,.0f}",
                             bench.extremes)


def rate_text(rate, rows):
    """The real one where a round fell behind."""
    real = min(int(row["real_rate"]) for row in rows["mh"])
    if real >= REACHED * rate:
        return f"{rate:,}"
    bench.Progress.say(f"only {real} requests/s, not {rate}")
    return f"{real:,} instead of {rate:,}"


def draw(docs):
    runs = by_run(docs / "state.csv")
    samples = by_run(docs / "state-time.csv")
    cpu = {key: Cpu(rows) for key, rows
           in by_run(docs / "state-cpu.csv").items()}
    lines, cpu_lines = [], []
    for key, rows in runs.items():
        head = [f"{key[0]} %", rate_text(key[1], rows)]
        lines.append(
            [*head, *(entries_text(samples[key][name]) for name in DIRECTORS),
             *("/".join(str(sum(int(row[what]) + int(row[f"long_{what}"])
                                for row in rows[name])) for name in DIRECTORS)
               for what in ("moved", "lost"))])
        built = bench.median([int(row["build_us"]) for row in rows["mhs"]])
        cpu_lines.append(
            [*head, *(spread_text(cpu[key].us[name], 1) for name in SHOWN),
             *(spread_text(cpu[key].ratio(name), 2) for name in DIRECTORS[1:]),
             f"{built / 1000:.1f}" if key[0] else "none"])
    bench.write_table(docs, "state",
                      ["flapping", "requests/s", "entries: mh", "published",
                       "mhs", "moved: mh/pub./mhs", "lost a packet"], lines)
    bench.write_table(docs, "state-cpu",
                      ["flapping", "requests/s", "CPU, us: routing", "mh",
                       "published", "mhs", "above routing: published/mh",
                       "mhs/mh", "a rebuild, ms"], cpu_lines)
    picture(docs, samples)


def picture(docs, samples):
    """Entries at the highest rate, by the share of servers that flap."""
    highest = max(rate for _, rate in samples)
    shares = sorted({share for share, _ in samples})
    drawing, axes = bench.figure(7.5, 3.4)
    for place, name in enumerate(DIRECTORS):
        label, colour = SHOWN[name]
        middle = [bench.median(steady(samples[share, highest][name]))
                  for share in shares]
        bars = axes.barh([i + (place - 1) * 0.27 for i in range(len(shares))],
                         middle, 0.25, color=bench.COLOURS[colour], label=label)
        axes.bar_label(bars, [f"{value:,.0f}" for value in middle], padding=3)
    axes.set_yticks(range(len(shares)), [
        f"{share} % of the servers\nflap" if share else "servers stay\nthe same"
        for share in shares])
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel(f"connection entries, {highest:,} short connections a second")
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=3)
    bench.save(drawing, docs / "state.svg")
