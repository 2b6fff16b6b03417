# SPDX-License-Identifier: GPL-2.0-only
"""The published experiment: entries under short connections while servers flap,
see state/guest.py.

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
    shutil.copyfile(bench.WORK / "state-time.csv", docs / "state-time.csv")


def by_run(path):
    """{(flapping, rate): {director: [row]}}, all rounds together."""
    runs = {}
    for row in bench.read_csv(path):
        key = int(row["flapping"]), int(row["rate"])
        runs.setdefault(key, {}).setdefault(row["director"], []).append(row)
    return dict(sorted(runs.items()))


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
    samples = by_run(docs / "state-time.csv")
    lines = []
    for key, rows in by_run(docs / "state.csv").items():
        lines.append(
            [f"{key[0]} %", rate_text(key[1], rows),
             *(entries_text(samples[key][name]) for name in DIRECTORS),
             *("/".join(str(sum(int(row[what]) + int(row[f"long_{what}"])
                                for row in rows[name])) for name in DIRECTORS)
               for what in ("moved", "lost"))])
    bench.write_table(docs, "state",
                      ["flapping", "requests/s", "entries: mh", "published",
                       "mhs", "moved: mh/pub./mhs", "lost a packet"], lines)
