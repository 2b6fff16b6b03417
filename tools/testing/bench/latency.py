# SPDX-License-Identifier: GPL-2.0-only
"""Two servers behind nginx, haproxy, mh and mhs, see latency/guest.sh: many
connections to servers that are fast, and a few to servers that take one request
at a time.
"""

import csv

import bench

KERNELS = ("uml",)
SECONDS = {"quick": 130, "full": 500}
RUN_S = {"quick": 3, "full": 15}
NAMES = {"nginx": "nginx", "haproxy": "haproxy", "mh-dr": "mh, routing",
         "mhs-dr": "mhs, routing", "mh-nat": "mh, masquerading",
         "mhs-nat": "mhs, masquerading"}
COLOURS = {"nginx": "#009e73", "haproxy": "#cc79a7", "mh-dr": "#d55e00",
           "mhs-dr": "#0072b2", "mh-nat": "#e69f00", "mhs-nat": "#56b4e9"}
CLIENTS = ("3", "10", "30", "200")


def measure(docs, mode):
    load = bench.compile_c("load", bench.HERE / "reload" / "load.c")
    out = bench.WORK / "latency"
    out.mkdir(parents=True, exist_ok=True)
    lines = bench.machine(
        "uml", [bench.HERE / "latency" / "guest.sh", out, load, RUN_S[mode]],
        5 * SECONDS[mode], "--memory", "2G")
    bench.write_csv(docs / "latency.csv", bench.parse_csv(lines))
    rows = []
    for by in NAMES:
        for clients in CLIENTS:
            with open(out / f"latency-{by}-{clients}.csv",
                      encoding="ascii") as file:
                rows += [{"by": by, "clients": clients, **row}
                         for row in csv.DictReader(file)]
    bench.write_csv(docs / "latency-cdf.csv", rows)


def percentile(points, percent):
    left = sum(count for _, count in points) * percent / 100
    for ms, count in points:
        left -= count
        if left <= 0:
            return ms
    return float("nan")


def draw(docs):
    rows = bench.read_csv(docs / "latency.csv")
    points = {}
    for row in bench.read_csv(docs / "latency-cdf.csv"):
        points.setdefault((row["by"], row["clients"]), []).append(
            (int(row["microseconds"]) / 1000, int(row["count"])))
    fast = {row["by"]: row for row in rows if row["load"] == "wrk"}
    slow = {(row["by"], row["clients"]): row for row in rows
            if row["load"] == "slow"}
    bench.write_table(
        docs, "latency-fast",
        ["200 connections", "requests/s", "average latency", "proxy, CPUs"],
        [[name, f"{float(fast[by]['rate']):,.0f}", fast[by]["latency"],
          fast[by]["proxy_cpu"] if by in ("nginx", "haproxy") else "none"]
         for by, name in NAMES.items()])
    lines = []
    for clients in CLIENTS:
        for by, name in NAMES.items():
            row = slow[by, clients]
            lines.append([clients, name, f"{float(row['rate']):,.0f}",
                          row["failed"].strip(),
                          *(f"{percentile(points[by, clients], p):,.0f} ms"
                            for p in (50, 90, 99))])
    bench.write_table(docs, "latency-slow",
                      ["connections", "by", "requests/s", "failed", "50 %",
                       "90 %", "99 %"], lines)
    drawing, axes = bench.figure(9, 3.4, ncols=len(CLIENTS), sharey=True)
    for plot, clients in zip(axes, CLIENTS):
        for by, name in NAMES.items():
            total = sum(count for _, count in points[by, clients])
            done, x, y = 0, [], []
            for ms, count in points[by, clients]:
                done += count
                x.append(ms)
                y.append(done / total)
            plot.step(x, y, where="post", color=COLOURS[by], label=name)
        plot.set_xscale("log")
        plot.minorticks_off()
        plot.set_title(f"{clients} connections", fontsize=10)
        plot.set_xlabel("ms")
        plot.grid(True, alpha=0.3)
    axes[0].set_ylabel("share of requests answered")
    drawing.legend(*axes[0].get_legend_handles_labels(), frameon=False,
                   fontsize=8, loc="lower center", ncols=3,
                   bbox_to_anchor=(0.5, 0.97))
    bench.save(drawing, docs / "latency.svg")
