# SPDX-License-Identifier: GPL-2.0-only
"""Print the latencies of the ways in a table.

usage: plot.py DIR, with WAY.json and WAY.csv for each way in it.
"""

import csv
import json
import os
import sys

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
         "outside-protect": "from outside: qdisc_tool protect",
         "outside-protect-new": "from outside: protect --until-new-port"}
PERCENTILES = (50, 99)


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


def main():
    print(bench.rst_table(*table(read_all(sys.argv[1]))))


if __name__ == "__main__":
    main()
