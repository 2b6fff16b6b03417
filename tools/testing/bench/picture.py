# SPDX-License-Identifier: GPL-2.0-only
"""What a packet costs, from the data of two sections: with a sender in the machine,
and from card to card."""

import bench
import lane
import packets

BARS = {"route": ("plain routing", "floor"),
        "mhs established": ("mhs, known flow", "mhs"),
        "mh established": ("mh, known flow", "mh"),
        "mhs new": ("mhs, new flow", "mhs"),
        "unstable new": ("mhs, new flow that a\nchange of servers moves", "mhs"),
        "mh new": ("mh, new flow", "mh")}


def draw(docs):
    if not all((docs / f"{name}.csv").exists() for name in ("counts", "lane")):
        return
    costs = packets.read(docs / "counts.csv")
    key = costs.cases("instructions")[0]
    floor = costs.of(key, "generator")
    drawing, plots = bench.figure(7.5, 5.4, nrows=2)
    bars(plots[0], [(name, costs.of(key, what) - floor, colour)
                    for what, (name, colour) in BARS.items()],
         "instructions for a packet")
    bars(plots[1], lane.heights(docs), "instructions from card to card, known flow")
    bench.save(drawing, docs / "packets.svg")


def bars(axes, heights, label):
    for place, (_, value, colour) in enumerate(heights):
        axes.barh(place, value, color=bench.COLOURS[colour])
        axes.text(value, place, f" {value:,.0f}", va="center")
    axes.set_yticks(range(len(heights)), [name for name, *_ in heights])
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel(label)
