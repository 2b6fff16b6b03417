# SPDX-License-Identifier: GPL-2.0-only
"""Two servers behind nginx, haproxy, wlc, mh and mhs, see latency/guest.sh: many
connections to servers that are fast, and a few to servers that take one request
at a time.

In each round all of them have their turn, so that what else the host does hits
none alone.
"""

from collections import Counter

import bench

KERNELS = ("uml",)
SECONDS = {"quick": 125, "full": 600}
ROUNDS = {"quick": 2, "full": 3}
RUN_S = {"quick": 1, "full": 5}
NAMES = {"nginx": "nginx", "haproxy": "haproxy", "wlc-dr": "wlc, routing",
         "mh-dr": "mh, routing", "mhs-dr": "mhs, routing",
         "mh-nat": "mh, masquerading", "mhs-nat": "mhs, masquerading"}
COLOURS = {"nginx": "#009e73", "haproxy": "#cc79a7", "wlc-dr": "#000000",
           "mh-dr": "#d55e00", "mhs-dr": "#0072b2", "mh-nat": "#e69f00",
           "mhs-nat": "#56b4e9"}
PROXIES = ("nginx", "haproxy")
CLIENTS = ("3", "10", "30", "200")
PERCENTS = (50, 90, 99)


def measure(docs, mode):
    load = bench.compile_c("load", bench.HERE / "reload" / "load.c")
    out = bench.WORK / "latency"
    out.mkdir(parents=True, exist_ok=True)
    rows = bench.parse_csv(bench.machine(
        "uml", [bench.HERE / "latency" / "guest.sh", out, load, RUN_S[mode],
                ROUNDS[mode]], 5 * SECONDS[mode], "--memory", "2G"))
    rounds_together = {}
    for row in rows:
        if row["load"] != "slow":
            continue
        points = [(int(point["microseconds"]), int(point["count"]))
                  for point in bench.read_csv(
                      out / "{round}-{by}-{clients}.csv".format(**row))]
        row.update({f"p{percent}_ms": percentile(points, percent) / 1000
                    for percent in PERCENTS})
        counts = rounds_together.setdefault((row["by"], row["clients"]),
                                            Counter())
        for us, count in points:
            counts[us] += count
    bench.write_csv(docs / "latency.csv", rows)
    bench.write_csv(docs / "latency-cdf.csv",
                    [{"by": by, "clients": clients, "microseconds": us,
                      "count": counts[us]}
                     for (by, clients), counts in rounds_together.items()
                     for us in sorted(counts)])


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
    return {"rate": rate, "each_ms": 1000 * int(row["clients"]) / rate,
            "cpu_ms": int(row["busy_ms"]) / requests,
            "proxy_cpu_ms": int(row["proxy_ms"]) / requests,
            **{name: float(row[name] or "nan") for name in
               ("failed", "average_ms", "p50_ms", "p90_ms", "p99_ms")}}


def spread_text(rounds, name):
    """The median of the rounds, with the lowest and the highest."""
    form = ",.2f" if "cpu" in name else ",.0f"
    return bench.spread_text([row[name] for row in rounds],
                             lambda value: format(value, form),
                             bench.extremes)


def cells(by, rounds, *names):
    """Of a line of a table; all have the first two and the last two."""
    return [spread_text(rounds, "rate"),
            f"{sum(row['failed'] for row in rounds):,.0f}",
            *(spread_text(rounds, name) for name in names),
            spread_text(rounds, "cpu_ms"),
            spread_text(rounds, "proxy_cpu_ms") if by in PROXIES else "none"]


def draw(docs):
    runs = {}
    for row in bench.read_csv(docs / "latency.csv"):
        runs.setdefault((row["load"], row["by"], row["clients"]),
                        []).append(figures(row))
    cpu = ["CPU, ms a request", "of it the proxy"]
    bench.write_table(
        docs, "latency-fast",
        ["200 connections", "requests/s", "failed", "200 / rate, ms",
         "wrk: average, ms", "wrk: 99 %, ms", *cpu],
        [[name, *cells(by, runs["fast", by, "200"],
                       "each_ms", "average_ms", "p99_ms")]
         for by, name in NAMES.items()])
    bench.write_table(
        docs, "latency-slow",
        ["connections", "by", "requests/s", "failed",
         *(f"{percent} %, ms" for percent in PERCENTS), *cpu],
        [[clients, name, *cells(by, runs["slow", by, clients],
                                *(f"p{percent}_ms" for percent in PERCENTS))]
         for clients in CLIENTS for by, name in NAMES.items()])
    picture(docs, runs)


def picture(docs, runs):
    """How many requests were answered in how long, in all rounds, and what
    CPU one took, in the median of them."""
    points = {}
    for row in bench.read_csv(docs / "latency-cdf.csv"):
        points.setdefault((row["by"], row["clients"]), []).append(
            (int(row["microseconds"]) / 1000, int(row["count"])))
    drawing, axes = bench.figure(12, 3.4, ncols=len(CLIENTS) + 1)
    *curves, bars = axes
    for plot, clients in zip(curves, CLIENTS):
        for by, name in NAMES.items():
            total = sum(count for _, count in points[by, clients])
            done, x, y = 0, [], []
            for ms, count in points[by, clients]:
                done += count
                x.append(ms)
                y.append(done / total)
            plot.step(x, y, where="post", color=COLOURS[by], label=name)
        plot.set_xscale("log", subs=())
        low, high = plot.get_xlim()
        ticks = [tick for power in range(5) for tick in
                 (10 ** power, 2 * 10 ** power, 5 * 10 ** power)
                 if low <= tick <= high]
        plot.set_xticks(ticks, [f"{tick:,}" for tick in ticks], fontsize=8)
        plot.tick_params("y", labelleft=plot is curves[0])
        plot.set_title(f"{clients} connections", fontsize=10)
        plot.set_xlabel("ms")
        plot.grid(True, alpha=0.3)
    curves[0].set_ylabel("share of requests answered")
    for place, by in enumerate(NAMES):
        bars.bar([i + (place - 3) * 0.12 for i in range(len(CLIENTS))],
                 [bench.median([run["cpu_ms"] for run
                                in runs["slow", by, clients]])
                  for clients in CLIENTS], 0.11, color=COLOURS[by])
    bars.set_xticks(range(len(CLIENTS)), CLIENTS, fontsize=8)
    bars.set_title("CPU, ms a request", fontsize=10)
    bars.set_xlabel("connections")
    bars.grid(True, axis="y", alpha=0.3)
    drawing.legend(*curves[0].get_legend_handles_labels(), frameon=False,
                   fontsize=8, loc="lower center", ncols=4,
                   bbox_to_anchor=(0.5, 0.97))
    bench.save(drawing, docs / "latency.svg")
