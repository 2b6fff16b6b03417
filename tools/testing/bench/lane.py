# SPDX-License-Identifier: GPL-2.0-only
"""What a packet costs in instructions from a card to a card: XDP by itself,
routing, mh, mhs, mhs in the lane; see lane/guest.py.
"""

import bench
import source

KERNELS = ("6.1", "6.12")
SECONDS = {"quick": 300, "full": 300}
HERE = bench.HERE / "lane"
PACKETS = 15 * 64  # whole bursts, an odd number: the median is one of them
FLOOR = "drop"
SOURCES = (*source.PACKET_PATH, "net/netfilter/ipvs/ip_vs_mhs_lane_*.[ch]",
           "tools/net/ipvs_mhs/lane.bpf.c")
EXACT = {"lane": 0.01}
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
        ("mh", "mh", "mh"),
        ("mhs", "mhs", "mhs"),
        ("ingress", "mhs, ingress hook", "other"),
        ("lane-tx", "mhs, XDP", "other"))


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


def version(release):
    return ".".join(release.split(".")[:2])


def cell(cost, key, base):
    if key not in cost:
        return ""
    return f"{cost[key]:,.0f}" + (f" ({cost[key] - cost[base]:+,.0f})"
                                  if base in cost else "")


def heights(docs):
    """Of the bars: the first kernel, IPv4."""
    costs = Costs(bench.read_csv(docs / "lane.csv"))
    column = costs.columns[0]
    return [(name, costs.cost[(*column, what)], colour)
            for what, name, colour in BARS if (*column, what) in costs.cost]
