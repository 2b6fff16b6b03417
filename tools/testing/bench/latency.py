# SPDX-License-Identifier: GPL-2.0-only
"""Two servers behind nginx, haproxy, wlc, mh and mhs, see latency/guest.sh: many
connections to servers that are fast, and a few to servers that take one request
at a time.

In each round all of them have their turn, so that what else the host does hits
none alone.
"""

import bench

KERNELS = ("uml",)
SECONDS = {"quick": 125, "full": 600}
ROUNDS = {"quick": 2, "full": 3}
RUN_S = {"quick": 1, "full": 5}
NAMES = {"nginx": "nginx", "haproxy": "haproxy", "wlc-dr": "wlc, routing",
         "mh-dr": "mh, routing", "mhs-dr": "mhs, routing",
         "mh-nat": "mh, masquerading"}
CLIENTS = ("3", "30", "200")
PERCENTS = (50, 90)


def measure(docs, mode):
    load = bench.compile_c("load", bench.HERE / "reload" / "load.c")
    out = bench.WORK / "latency"
    out.mkdir(parents=True, exist_ok=True)
    rows = bench.parse_csv(bench.machine(
        "uml", [bench.HERE / "latency" / "guest.sh", out, load, RUN_S[mode],
                ROUNDS[mode]], 5 * SECONDS[mode], "--memory", "2G"))
    for row in rows:
        if row["load"] != "slow":
            continue
        points = [(int(point["microseconds"]), int(point["count"]))
                  for point in bench.read_csv(
                      out / "{round}-{by}-{clients}.csv".format(**row))]
        row.update({f"p{percent}_ms": percentile(points, percent) / 1000
                    for percent in PERCENTS})
    bench.write_csv(docs / "latency.csv", rows)


def percentile(points, percent):
    left = sum(count for _, count in points) * percent / 100
    for value, count in points:
        left -= count
        if left <= 0:
            return value
    return float("nan")


def figures(row):
    """Those of one run that tables show."""
    requests = int(row["requests"])
    rate = requests / float(row["seconds"])
    return {"rate": rate, "cpu_ms": int(row["busy_ms"]) / requests,
            **{name: float(row.get(name) or "nan") for name in
               ("failed", "p50_ms", "p90_ms", "p99_ms")}}


def spread_text(rounds, name):
    """The median of the rounds, with the lowest and the highest."""
    form = ",.2f" if "cpu" in name else ",.0f"
    return bench.spread_text([row[name] for row in rounds],
                             lambda value: format(value, form),
                             bench.extremes)


def draw(docs):
    runs = {}
    for row in bench.read_csv(docs / "latency.csv"):
        runs.setdefault((row["load"], row["by"], row["clients"]),
                        []).append(figures(row))
    failed = sum(row["failed"] for rows in runs.values() for row in rows)
    if failed:
        bench.Progress.say(f"{failed:.0f} requests failed")
    bench.write_table(
        docs, "latency-fast",
        ["fast servers", "requests/s", "99 %, ms", "CPU, ms a request"],
        [[name, *(spread_text(runs["fast", by, "200"], what)
                  for what in ("rate", "p99_ms", "cpu_ms"))]
         for by, name in NAMES.items()])
    bench.write_table(
        docs, "latency-slow",
        ["connections", "by", "requests/s",
         *(f"{percent} %, ms" for percent in PERCENTS)],
        [[clients, name, *(spread_text(runs["slow", by, clients], what)
                           for what in ("rate", *(f"p{percent}_ms" for percent
                                                  in PERCENTS)))]
         for clients in CLIENTS for by, name in NAMES.items()])
