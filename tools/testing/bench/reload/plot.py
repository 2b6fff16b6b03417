# SPDX-License-Identifier: GPL-2.0-only
"""Draw the latencies of the ways, and say them in a table.

usage: plot.py DIR, with WAY.json and WAY.csv for each way in it.  The data of
the page, in qdisc-tool/ and in its directories default/ and quiet/, make its
tables and its picture; of other data the table is printed.
"""

import csv
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

import bench  # noqa: E402

NAMES = {"nothing": "a reload of nothing",
         "none": "no protection",
         "drop": "SYNs dropped during reloads",
         "recipe": "a plug shut and opened by tc",
         "protect": "qdisc_tool protect",
         "protect-new": "protect --until-new-port",
         "sockets": "haproxy passes its sockets",
         "outside-nothing": "from outside: a reload of nothing",
         "outside-none": "from outside: no protection",
         "outside-recipe": "from outside: a plug shut and opened by tc",
         "outside-protect": "from outside: qdisc_tool protect",
         "outside-protect-new": "from outside: protect --until-new-port"}
COLOURS = {"nothing": "#999999", "none": "#d55e00", "drop": "#e69f00",
           "recipe": "#cc79a7", "protect": "#56b4e9",
           "protect-new": "#0072b2", "sockets": "#009e73"}
PERCENTILES = (50, 99)
PAGE = bench.TOP / "Documentation" / "networking" / "qdisc-tool"


def read(directory, way):
    """(result, [(microseconds, count)]) of one way."""
    with open(f"{directory}/{way}.json", encoding="utf-8") as file:
        result = json.load(file)
    with open(f"{directory}/{way}.csv", encoding="utf-8") as file:
        rows = [(int(row["microseconds"]), int(row["count"]))
                for row in csv.DictReader(file)]
    return result, rows


def read_all(directory):
    return {way: read(directory, way) for way in NAMES
            if os.path.exists(f"{directory}/{way}.json")}


def percentile_ms(rows, percent, longest_us):
    """A row counts what took its time or less, but more than the last row's."""
    wanted = sum(count for _, count in rows) * percent / 100
    for microseconds, count in rows:
        wanted -= count
        if wanted <= 0:
            return min(microseconds, longest_us) / 1000
    return float("nan")


def table(results):
    """Its head, and a line for each way."""
    head = ["", "requests", "failed", "reloads",
            *(f"{percent:g} % within" for percent in PERCENTILES), "longest",
            "longest reload", "beyond it"]
    lines = []
    for way, (result, rows) in results.items():
        longest_ms = result["longest_us"] / 1000
        reload_ms = result["reload_ms"]["longest"]
        lines.append([
            NAMES[way], f"{result['answered'] + result['failed']:,}",
            f"{result['failed']:,}", f"{result['reloads']:,}",
            *(f"{percentile_ms(rows, percent, result['longest_us']):,.0f} ms"
              for percent in PERCENTILES),
            f"{longest_ms:,.0f} ms", f"{reload_ms:,.0f} ms",
            # of the others no request waits for the reload
            f"{longest_ms - reload_ms:,.0f} ms"
            if way.endswith(("protect", "new", "nothing")) else ""])
    return head, lines


def draw(results, path):
    """Failed requests on the left, times of the answered ones on the right."""
    figure, (failures, times) = bench.figure(8.8, 3.6, ncols=2, sharey=True)
    for place, (way, (result, rows)) in enumerate(results.items()):
        colour = COLOURS[way.removeprefix("outside-")]
        longest_us = result["longest_us"]
        failed = 100 * result["failed"] / result["reloads"]
        failures.barh(place, failed, color=colour)
        failures.text(failed, place, f" {failed:.0f}" if failed else " none",
                      va="center")
        at = [percentile_ms(rows, percent, longest_us)
              for percent in PERCENTILES] + [longest_us / 1000]
        times.plot(at, [place] * len(at), "-", color=colour)
        for marker, x in zip("|os", at):
            times.plot(x, place, marker, color=colour, markersize=6)
    failures.set_yticks(range(len(results)), [NAMES[way] for way in results])
    failures.invert_yaxis()
    failures.margins(x=0.2)
    failures.set_xlabel("requests that failed in 100 reloads")
    times.set_xscale("log")
    times.xaxis.set_major_formatter("{x:,.0f}")
    times.set_xlabel("ms until answered: | half, \N{BLACK CIRCLE} 99 %, "
                     "\N{BLACK SQUARE} all")
    times.grid(True, axis="x", alpha=0.3)
    bench.save(figure, path)


def main():
    directory = Path(sys.argv[1]).resolve()
    if directory in (PAGE, *PAGE.iterdir()):
        draw_all(PAGE)
    else:
        print(bench.rst_table(*table(read_all(directory))))


def draw_all(directory):
    results = read_all(directory)
    bench.write_table(directory, "the measured ways", *table(results))
    draw(results, f"{directory}/latency.svg")
    for name in "quiet", "default":
        bench.write_table(directory, f"the {name} run",
                          *table(read_all(directory / name)))


if __name__ == "__main__":
    main()
