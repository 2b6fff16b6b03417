# SPDX-License-Identifier: GPL-2.0-only
"""Packets a second with many live flows, see packets/guest.py: in User-Mode Linux,
on one CPU.  All kinds of packets are sent in turns in one machine, so ratios are
of the same round; those that may make entries are sent when the others are done,
with rounds of their own.
"""

import json

import bench

COUNTED, NATIVE = "6.1", "uml"
CLOCKS = {NATIVE: "ns"}  # others count instructions
KERNELS = (NATIVE,)
SECONDS = {"quick": 120, "full": 600}
# no directors with unstable slots, see packets/guest.py
CROWDS = [{"live": live, "unstable": []} for live in (100000, 250000, 1000000)]
ROUNDS = {"quick": 9, "full": 51}
# of each measurement, whatever it measures: whole bursts, an odd number, of
# which blast.c takes the median one
PACKETS = 15 * 64
KINDS_OF_CASE = ("method", "family", "protocol", "services", "servers", "live")


def guest(kernel, cases, timeout, *options, bits=12, rounds, packets,
          slots=65521, program="guest", more=()):
    """Rows of packets/guest.py, or of another program there."""
    here = bench.HERE / "packets"
    blast = bench.compile_c("blast", here / "blast.c", here / "packet.c")
    if kernel == NATIVE:
        options = (*options, "--memory", "6G", "--append",
                   f"ip_vs.conn_tab_bits={bits}")
    else:
        # The clock runs ahead while a busy host reads modules for the tests of
        # ciphers: udevd would end those who wait, and the kernel warn
        options = (*options, "--append",
                   "cryptomgr.notests=1 nokaslr")
    lines = bench.machine(
        kernel, [here / f"{program}.py", "--blast", blast,
                 "--cases", json.dumps(cases), "--rounds", rounds,
                 "--packets", packets, "--table-size", slots,
                 "--modules", f"conn_tab_bits={bits}", *more],
        timeout, *options)
    return bench.parse_csv(lines, kernel=bench.release(kernel),
                           clock=CLOCKS.get(kernel, "instructions"), table=1 << bits)


def measure(docs, mode):
    """With both connection tables."""
    bench.write_csv(docs / "packets-crowded.csv", [
        row for bits in (12, 20)
        for row in guest(NATIVE, CROWDS, 1500, bits=bits, rounds=ROUNDS[mode],
                         packets=PACKETS)])


class Costs:
    """Cost of a packet by case, kind and round."""

    def __init__(self, rows):
        self.cost = {}
        for row in rows:
            key = (row["clock"], int(row["table"]),
                   tuple(row[k] for k in KINDS_OF_CASE))
            self.cost.setdefault(key, {}).setdefault(row["what"], {})[
                int(row["round"])] = int(row["ns"]) / int(row["packets"])

    def cases(self, clock):
        return [key for key in self.cost if key[0] == clock]

    def of(self, key, what):
        """Instructions are those of the least round: what else the kernel
        did meanwhile, in one of them, is no cost of a packet."""
        rounds = self.cost[key][what].values()
        return min(rounds) if key[0] == "instructions" else \
            bench.median(rounds)

    def ratio(self, key, what, to):
        """[ratio of each round that has both]"""
        cost = self.cost[key]
        return [a / cost[to][i] for i, a in cost[what].items()
                if i in cost[to]]


def case_name(key, plain="direct routing, IPv4"):
    method, family, protocol, services, servers, live = key[2]
    words = []
    if method != "routing":
        words.append({"ipip": "IPIP"}[method])
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


def times(ratio):
    return f"{ratio:.2f}"


def spread_text(ratios):
    return bench.spread_text(ratios, times)


def read(path):
    return Costs(bench.read_csv(path))


def saved(costs, key):
    """Of what mh takes above routing, in percent."""
    route, mh, mhs = (costs.of(key, what)
                      for what in ("route", "mh crowd", "mhs crowd"))
    return f"{100 * (mh - mhs) / (mh - route):.1f} %"


def draw(docs):
    costs = read(docs / "packets-crowded.csv")
    lines = []
    for key in sorted(costs.cases("ns"),
                      key=lambda key: (key[1], int(key[2][-1]))):
        lines.append([
            f"{int(key[2][-1]):,}", f"{key[1]:,}",
            *(f"{1e9 / costs.of(key, what):,.0f}"
              for what in ("route", "mh crowd", "mhs crowd")),
            spread_text(costs.ratio(key, "mh crowd", "mhs crowd")),
            saved(costs, key),
            spread_text(costs.ratio(key, "mh new", "mhs new"))])
    bench.write_table(docs, "packets-crowded",
                      ["live flows", "buckets", "route", "mh", "mhs",
                       "mhs / mh", "saved", "new, mhs / mh"], lines)
