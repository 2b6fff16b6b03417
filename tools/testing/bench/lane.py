# SPDX-License-Identifier: GPL-2.0-only
"""What a packet costs in instructions from a card to a card: XDP by itself,
routing, mh, mhs, mhs in the lane; see lane/guest.py.
"""

import bench

KERNELS = ("6.1", "6.12")
SECONDS = {"quick": 300, "full": 300}
HERE = bench.HERE / "lane"
PACKETS = 15 * 64  # whole bursts, an odd number: the median is one of them
FLOOR = "drop"
# (row, what the page calls it, what it is compared with)
ROWS = (
    (FLOOR, "dropped by XDP: the card itself", None),
    ("tx", "sent back by XDP", None),
    ("redirect", "redirected by XDP", None),
    ("route", "routed, IPVS not loaded", None),
    ("xdp-forward", "routed by xdp-forward", None),
    ("mh", "mh, with an entry", None),
    ("mhs", "mhs, direct routing", None),
    ("mhs-ipip", "mhs, tunnel", None),
    ("ingress", "mhs in the ingress hook, direct routing", None),
    ("ingress-ipip", "mhs in the ingress hook, tunnel", None),
    ("lane-tx", "mhs in the lane, one arm, direct routing", None),
    ("lane-tx-ipip", "mhs in the lane, one arm, tunnel", None),
    ("lane-redirect", "mhs in the lane, two arms, direct routing", None),
    ("lane-redirect-ipip", "mhs in the lane, two arms, tunnel", None),
    ("route-beside-mhs", "routed, mhs has services", None),
    ("route-past-pass", "the same after XDP that passes", "route-beside-mhs"),
    ("route-past-ingress", "the same, left by the hook", "route-beside-mhs"),
    ("route-past-lane", "the same, left by the lane", "route-beside-mhs"),
)
# of the picture
BARS = (("route", "plain routing", "floor"),
        ("xdp-forward", "xdp-forward, routing", "floor"),
        ("mh", "mh, entry", "mh"),
        ("mhs", "mhs, stable", "mhs"),
        ("ingress", "mhs, ingress hook", "other"),
        ("lane-redirect", "mhs, lane, two arms", "other"),
        ("lane-tx", "mhs, lane, one arm", "other"))


def guest(kernel, *options, rounds, more=(), timeout=3000):
    """Lines of lane/guest.py."""
    modules = bench.TOP / "build" / "kernel" / kernel
    return bench.machine(
        kernel, [HERE / "guest.py",
                 "--card", modules / "module-card" / "card.ko",
                 "--bare", bench.compile_bpf("bare.o", HERE / "bare.bpf.c"),
                 "--router", bench.TOP / "build" / "xdp-tools",
                 "--lane", modules / "module" / "lane.bpf.o",
                 "--rounds", rounds, "--packets", PACKETS, *more],
        timeout, "--icount", "--memory", "2G",
        # see packets.py
        "--append", "cryptomgr.notests=1", *options)


def measure(docs, mode):
    del mode
    rows = []
    for kernel in KERNELS:
        rows += bench.parse_csv(guest(kernel, rounds=2),
                                kernel=bench.release(kernel))
    bench.write_csv(docs / "lane.csv", rows)


class Costs:
    """Of a packet, in the least round, by kernel, family and row."""

    def __init__(self, rows):
        self.cost = {}
        for row in rows:
            key = row["kernel"], row["family"], row["what"]
            self.cost[key] = min(int(row["ns"]) / int(row["packets"]),
                                 self.cost.get(key, float("inf")))
        self.columns = list(dict.fromkeys(key[:2] for key in self.cost))

    def has(self, what):
        return any(key[2] == what for key in self.cost)


def draw(docs):
    costs = Costs(bench.read_csv(docs / "lane.csv"))
    lines = []
    for what, name, base in ROWS:
        if costs.has(what):
            lines.append([name, *(cell(costs.cost, (*column, what),
                                       (*column, base))
                                  for column in costs.columns)])
    bench.write_table(docs, "lane", ["packets", *(
        f"IPv{family}, {version(kernel)}"
        for kernel, family in costs.columns)], lines)
    picture(docs, costs)


def version(release):
    return ".".join(release.split(".")[:2])


def cell(cost, key, base):
    if key not in cost:
        return ""
    return f"{cost[key]:,.0f}" + (f" ({cost[key] - cost[base]:+,.0f})"
                                  if base in cost else "")


def picture(docs, costs):
    """The first kernel, IPv4; what the card takes is paler."""
    column = costs.columns[0]
    bars = [bar for bar in BARS if (*column, bar[0]) in costs.cost]
    floor = costs.cost[(*column, FLOOR)]
    drawing, axes = bench.figure(7.5, 0.7 + 0.36 * len(bars))
    for place, (what, _, colour) in enumerate(bars):
        value = costs.cost[(*column, what)]
        axes.barh(place, floor, color=bench.COLOURS[colour], alpha=0.5)
        axes.barh(place, value - floor, left=floor,
                  color=bench.COLOURS[colour])
        axes.text(value, place, f" {value:,.0f}", va="center")
    axes.set_yticks(range(len(bars)), [name for _, name, _ in bars])
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel(f"instructions for a packet, Linux {version(column[0])}; "
                    f"paler: the card's own {floor:,.0f}")
    bench.save(drawing, docs / "lane.svg")
