# SPDX-License-Identifier: GPL-2.0-only
"""What a packet costs in time, see packets/guest.py: in User-Mode Linux, on one
CPU.  All kinds of packets are sent in turns in one machine, so ratios are of
the same round.
"""

import json

import bench

COUNTED, NATIVE = "6.1", "uml"
CLOCKS = {COUNTED: "instructions", NATIVE: "ns"}
KERNELS = (NATIVE,)
SECONDS = {"quick": 220, "full": 900}
KINDS = [{}, {"family": 6}, {"method": "ipip"}, {"method": "masquerading"}]
CASES = {
    "quick": [*KINDS, {"servers": 1000}, {"services": 1000}],
    "full": [*KINDS, {"protocol": "udp"}, {"servers": 1000},
             {"services": 1000}, {"live": 10000}, {"live": 100000}]}
CROWDS = {
    "quick": [{"live": 1000000}],
    "full": [{"live": 500000}, {"live": 1000000}, {"live": 1500000}]}
ROUNDS = {"quick": 9, "full": 51}
KINDS_OF_CASE = ("method", "family", "protocol", "services", "servers", "live")


def guest(kernel, cases, timeout, *options, bits=12, rounds, packets, new,
          slots=65521, more=()):
    """Rows of packets/guest.py."""
    here = bench.HERE / "packets"
    blast = bench.compile_c("blast", here / "blast.c", here / "packet.c")
    if kernel == NATIVE:
        options = (*options, "--memory", "4G", "--append",
                   f"ip_vs.conn_tab_bits={bits}")
    lines = bench.machine(
        kernel, [here / "guest.py", "--blast", blast,
                 "--cases", json.dumps(cases), "--rounds", rounds,
                 "--packets", packets, "--new", new, "--table-size", slots,
                 "--modules", f"conn_tab_bits={bits}", *more],
        timeout, *options)
    return bench.parse_csv(lines, kernel=bench.release(kernel),
                           clock=CLOCKS[kernel], table=1 << bits)


def measure(docs, mode):
    bench.write_csv(docs / "packets.csv",
                    guest(NATIVE, CASES[mode], 1500, rounds=ROUNDS[mode],
                          packets=10000, new=1000))
    rows = []
    for bits in (12, 20):
        rows += guest(NATIVE, CROWDS[mode], 1500, bits=bits,
                      rounds=ROUNDS[mode], packets=10000, new=500,
                      more=("--crowd", 1000 if bits == 12 else 10000))
        bench.write_csv(docs / "packets-crowded.csv", rows)


class Costs:
    """Cost of a packet by case and kind, from all rounds."""

    def __init__(self, rows):
        self.cost = {}
        for row in rows:
            key = (row["clock"], int(row["table"]),
                   tuple(row[k] for k in KINDS_OF_CASE))
            self.cost.setdefault(key, {}).setdefault(row["what"], []).append(
                int(row["ns"]) / int(row["packets"]))

    def cases(self, clock):
        return [key for key in self.cost if key[0] == clock]

    def of(self, key, what):
        """Instructions are those of the least round: what else the kernel
        did meanwhile, in one of them, is no cost of a packet."""
        rounds = self.cost[key][what]
        return min(rounds) if key[0] == "instructions" else \
            bench.median(rounds)

    def ratio(self, key, what, to):
        """[ratio of each round]"""
        return [a / b for a, b in zip(self.cost[key][what],
                                      self.cost[key][to])]

    def net_ratio(self, key, what, to):
        """The same without what the sender takes."""
        cost = self.cost[key]
        return [(a - sender) / (b - sender) for a, b, sender in
                zip(cost[what], cost[to], cost["generator"]) if b > sender]


def case_name(key, plain="direct routing, IPv4"):
    method, family, protocol, services, servers, live = key[2]
    words = []
    if method != "routing":
        words.append({"ipip": "IPIP", "masquerading": "masquerading"}[method])
    if family != "4":
        words.append("IPv6")
    if protocol != "tcp":
        words.append(protocol.upper())
    if services != "1":
        words.append(f"{int(services):,} services")
    if servers != "4":
        words.append(f"{int(servers):,} servers")
    if live != "0":
        words.append(f"{int(live):,} entries, {key[1]:,} buckets")
    return ", ".join(words) or plain


MEASURED = ("route", "mh established", "mhs established", "mh new", "mhs new",
            "held", "unstable entry", "unstable new", "pin")


def spread_text(ratios):
    low, high = bench.quartiles(ratios)
    return f"{bench.median(ratios):.2f} ({low:.2f}-{high:.2f})"


def draw(docs):
    costs = Costs([row for name in ("counts", "packets", "packets-crowded")
                   if (docs / f"{name}.csv").exists()
                   for row in bench.read_csv(docs / f"{name}.csv")])
    lines = []
    for key in costs.cases("instructions"):
        if key[2][-1] != "0":
            continue
        floor = costs.of(key, "generator")
        lines.append([case_name(key), f"{floor:,.0f}",
                      *(f"{costs.of(key, what) - floor:,.0f}"
                        if what in costs.cost[key] else ""
                        for what in MEASURED)])
    bench.write_table(docs, "packets-instructions",
                      ["case", "sender", *MEASURED], lines)
    lines = []
    for key in costs.cases("ns"):
        if key[2][-1] != "0":
            continue
        lines.append([case_name(key),
                      f"{1e6 / costs.of(key, 'route'):,.0f}",
                      *(spread_text(costs.ratio(key, what, "route"))
                        if what in costs.cost[key] else ""
                        for what in MEASURED[1:])])
    bench.write_table(docs, "packets-time",
                      ["case", "route, 1,000/s", *MEASURED[1:]], lines)
    crowded(docs, costs)
    if costs.cases("instructions") and any(
            "mh crowd" in costs.cost[key] for key in costs.cases("ns")):
        bars(docs, costs)


def crowded(docs, costs):
    lines = []
    for clock in ("ns", "instructions"):
        for key in costs.cases(clock):
            if key[2][-1] == "0":
                continue
            unit = 1e9 if clock == "ns" else 1
            text = (lambda what, unit=unit, key=key:
                    f"{unit / costs.of(key, what):,.0f}/s" if unit > 1 else
                    f"{costs.of(key, what):,.0f} instr.")
            lines.append([
                f"{int(key[2][-1]):,}", f"{key[1]:,}", text("route"),
                text("mh crowd"), text("mhs crowd"),
                spread_text(costs.ratio(key, "mh crowd", "mhs crowd")),
                spread_text(costs.net_ratio(key, "mh crowd", "mhs crowd")),
                spread_text(costs.net_ratio(key, "mh crowd", "route")),
                text("mh new"), text("mhs new"),
                spread_text(costs.ratio(key, "mh new", "mhs new"))])
    bench.write_table(docs, "packets-crowded",
                      ["live flows", "buckets", "route", "mh", "mhs",
                       "times mh", "without sender", "route without sender",
                       "mh, new", "mhs, new", "times mh"], lines)


def bars(docs, costs):
    """Instructions above those of the sender, and packets/s with many flows."""
    drawing, (left, right) = bench.figure(9, 3.8, ncols=2)
    key = costs.cases("instructions")[0]
    floor = costs.of(key, "generator")
    names = {"route": ("plain routing", "floor"),
             "mh established": ("mh, established", "mh"),
             "mhs established": ("mhs, stable", "mhs"),
             "held": ("mhs, unstable, held", "mhs"),
             "unstable entry": ("mhs, unstable, entry", "mhs"),
             "mh new": ("mh, new flow", "mh"),
             "mhs new": ("mhs, new flow, stable", "mhs"),
             "unstable new": ("mhs, new flow, unstable", "mhs"),
             "pin": ("mhs, older flow is pinned", "mhs")}
    values = [costs.of(key, what) - floor for what in names]
    left.barh(range(len(names)), values,
              color=[bench.COLOURS[c] for _, c in names.values()])
    for place, value in enumerate(values):
        left.text(value, place, f" {value:,.0f}", va="center", fontsize=8)
    left.set_yticks(range(len(names)), [n for n, _ in names.values()])
    left.invert_yaxis()
    left.set_xlabel("instructions for a packet, Linux 6.1")
    crowd = [key for key in costs.cases("ns")
             if "mh crowd" in costs.cost[key] and key[2][-1] == "1000000"]
    place = 0
    ticks = []
    for key in sorted(crowd, key=lambda k: (k[1], int(k[2][-1]))):
        for what, colour in (("mh crowd", "mh"), ("mhs crowd", "mhs"),
                             ("route", "floor")):
            rate = 1e9 / costs.of(key, what)
            right.barh(place, rate, color=bench.COLOURS[colour])
            right.text(rate, place, f" {rate:,.0f}", va="center", fontsize=8)
            ticks.append(f"{what.split(' ', maxsplit=1)[0]}, "
                         f"{int(key[2][-1]) / 1e6:g} M flows, "
                         f"{key[1]:,} buckets")
            place += 1
    right.set_yticks(range(place), ticks, fontsize=8)
    right.invert_yaxis()
    right.set_xscale("log")
    right.set_xlabel("packets/s, one CPU, User-Mode Linux")
    bench.save(drawing, docs / "packets.svg")
