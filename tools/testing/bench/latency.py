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
# (colour, mark); masquerading takes as long as routing
SHOWN = {"nginx": (bench.COLOURS["other"], "^"),
         "haproxy": (bench.COLOURS["other"], "v"),
         "wlc-dr": (bench.COLOURS["wlc"], "D"),
         "mh-dr": (bench.COLOURS["mh"], "o"),
         "mhs-dr": (bench.COLOURS["mhs"], "s")}
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
    """In how long nine of ten requests to slow servers were answered: the
    median of the rounds."""
    drawing, axes = bench.figure(7.5, 3.2)
    for place, (by, (colour, mark)) in enumerate(SHOWN.items()):
        axes.plot([bench.median([run["p90_ms"] for run
                                 in runs["slow", by, clients]])
                   for clients in CLIENTS],
                  [i + (place - 2) * 0.12 for i in range(len(CLIENTS))], mark,
                  color=colour, markersize=8, label=NAMES[by].split(",")[0])
    axes.set_yticks(range(len(CLIENTS)), [f"{clients} connections"
                                          for clients in CLIENTS])
    axes.invert_yaxis()
    axes.set_xscale("log", subs=())
    ticks = (20, 50, 100, 200, 500, 1000)
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.set_xlabel("ms until 90 % of the requests were answered")
    axes.grid(True, axis="x", alpha=0.3)
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1),
                ncols=len(SHOWN))
    bench.save(drawing, docs / "latency.svg")
