# SPDX-License-Identifier: GPL-2.0-only
"""What a packet costs in time, see packets/guest.py: in User-Mode Linux, on one
CPU.  All kinds of packets are sent in turns in one machine, so ratios are of
the same round; those that may make entries are sent when the others are done,
with rounds of their own.
"""

import json

import bench

COUNTED, NATIVE = "6.1", "uml"
CLOCKS = {NATIVE: "ns"}  # others count instructions
KERNELS = (NATIVE,)
SECONDS = {"quick": 180, "full": 1100}
KINDS = [{}, {"family": 6}, {"method": "ipip"}]
# directors with unstable slots, see packets/guest.py; default: all of them
STABLE, YOUNG = {"unstable": []}, {"unstable": ["young"]}
CASES = {
    "quick": [*KINDS, {"servers": 1000, **YOUNG}, {"services": 1000, **YOUNG}],
    "full": [*KINDS, {"protocol": "udp"}, {"servers": 1000},
             {"services": 1000}]}
CROWDS = {
    "quick": [{"live": 1000000, **STABLE}],
    "full": [{"live": 10000, **STABLE}, {"live": 100000, **YOUNG},
             {"live": 500000, **STABLE}, {"live": 1000000, **YOUNG},
             {"live": 1500000, **STABLE}]}
ROUNDS = {"quick": 9, "full": 51}
# of each measurement, whatever it measures: whole bursts, an odd number, of
# which blast.c takes the median one
PACKETS = 15 * 64
BEYOND = 10000  # what no ratio of costs is
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


def crowds(cases, rounds):
    """Rows of cases with live flows, in both connection tables."""
    return [row for bits in (12, 20)
            for row in guest(NATIVE, cases, 1500, bits=bits, rounds=rounds,
                             packets=PACKETS)]


def measure(docs, mode):
    bench.write_csv(docs / "packets.csv",
                    guest(NATIVE, CASES[mode], 1500, rounds=ROUNDS[mode],
                          packets=PACKETS))
    bench.write_csv(docs / "packets-crowded.csv",
                    crowds(CROWDS[mode], ROUNDS[mode]))


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

    def net_ratio(self, key, what, to):
        """The same without what the sender takes.  Where it took all, as the
        host did something else meanwhile, the ratio is above all others: to
        leave such a round out would make the median too small."""
        cost, sender = self.cost[key], self.cost[key]["generator"]
        return [(a - sender[i]) / max(cost[to][i] - sender[i], 1 / BEYOND)
                for i, a in cost[what].items() if i in cost[to]]

    def taken_up(self, key, what, rounds_of):
        """In how many rounds the sender took all."""
        cost = self.cost[key]
        return sum(cost[what][i] <= cost["generator"][i]
                   for i in cost[rounds_of])


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


MEASURED = ("route", "mh established", "mhs established", "mh new", "mhs new",
            "held", "unstable entry", "unstable new", "pin")
# packets that are not for mhs, and what the director has, see packets/others.py
OTHERS = {"route": "forwarded", "wlc": "to a service of wlc"}
WITHOUT = "IPVS with wlc"
ADDED = ("mhs loaded", "service of mhs")
STEPS = ("no IPVS", WITHOUT, *ADDED)
UNSTABLE = (("unstable entry", "mh established"), ("unstable new", "mh new"))
UNSTABLE_HEAD = ("entry / mh", "new / mh")


def times(ratio):
    return f"{ratio:.2f}" if ratio < BEYOND else "\N{INFINITY}"


def spread_text(ratios):
    return bench.spread_text(ratios, times)


def read(docs, *names):
    return Costs([row for name in names if (docs / f"{name}.csv").exists()
                  for row in bench.read_csv(docs / f"{name}.csv")])


def draw(docs):
    names = ("counts", "packets", "packets-crowded")
    costs = read(docs, *names)
    instructions(docs, costs)
    others(docs, costs)
    in_time(docs, costs)
    crowded(docs, read(docs, *names, "packets-published"))
    if costs.cases("instructions"):
        bars(docs, costs)
    if costs.cases("ns"):
        flows(docs, costs)


def plain(costs, clock):
    """Cases without many live flows."""
    return [key for key in costs.cases(clock) if key[2][-1] == "0"]


def compared(costs, key, text):
    """Unstable with mh; plain UDP has no entries to compare."""
    return [text(what, to) if what in costs.cost[key] and "udp" not in key[2]
            else "" for what, to in UNSTABLE]


def instructions(docs, costs):
    lines = []
    for key in plain(costs, "instructions"):
        def above(what, key=key):
            return costs.of(key, what) - costs.of(key, "generator")

        stable = costs.of(key, "mhs established") / costs.of(key, "route")
        lines.append([
            case_name(key), f"{costs.of(key, 'generator'):,.0f}",
            *(f"{above(what):,.0f}" if what in costs.cost[key] else ""
              for what in MEASURED),
            times(stable), times(above("mhs established") / above("route")),
            *compared(costs, key, lambda what, to, above=above:
                      f"{above(what) / above(to):.3f}")])
    bench.write_table(docs, "packets-instructions",
                      ["case", "sender", *MEASURED, "stable, times route",
                       "without sender", *UNSTABLE_HEAD], lines)


def others(docs, costs):
    """In parentheses what mhs adds."""
    def cell(key, what, step):
        def above(step):
            return costs.of(key, f"{what}: {step}") - costs.of(
                key, f"generator: {step}")

        if f"{what}: {step}" not in costs.cost[key]:
            return ""
        added = round(above(step) - above(WITHOUT))
        return f"{above(step):,.0f}" + (f" ({added:+,})" if step in ADDED
                                        else "")

    bench.write_table(
        docs, "packets-others", ["packets", *STEPS],
        [[f"{name}, IPv{key[2][1]}", *(cell(key, what, step)
                                       for step in STEPS)]
         for what, name in OTHERS.items()
         for key in costs.cases("instructions")
         if f"{what}: {WITHOUT}" in costs.cost[key]])


def in_time(docs, costs):
    lines = [[case_name(key), f"{1e6 / costs.of(key, 'route'):,.0f}",
              *(spread_text(costs.ratio(key, what, "route"))
                if what in costs.cost[key] else "" for what in MEASURED[1:]),
              *compared(costs, key, lambda what, to, key=key:
                        spread_text(costs.ratio(key, what, to)))]
             for key in plain(costs, "ns")]
    bench.write_table(docs, "packets-time",
                      ["case", "route, 1,000/s", *MEASURED[1:],
                       *UNSTABLE_HEAD], lines)


def saved(costs, key):
    """Of what mh takes above routing, in percent."""
    route, mh, mhs = (costs.of(key, what)
                      for what in ("route", "mh crowd", "mhs crowd"))
    return f"{100 * (mh - mhs) / (mh - route):.1f} %"


def crowded(docs, costs):
    lines = []
    for clock in ("ns", "instructions"):
        for key in sorted(costs.cases(clock),
                          key=lambda key: (key[1], int(key[2][-1]))):
            if key[2][-1] == "0":
                continue
            unit = 1e9 if clock == "ns" else 1
            text = (lambda what, unit=unit, key=key:
                    f"{unit / costs.of(key, what):,.0f}/s" if unit > 1 else
                    f"{costs.of(key, what):,.0f} instr.")
            lines.append([
                f"{int(key[2][-1]):,}", f"{key[1]:,}", text("route"),
                text("mh crowd"), text("mhs crowd"), saved(costs, key),
                spread_text(costs.ratio(key, "mh crowd", "mhs crowd")),
                spread_text(costs.net_ratio(key, "mh crowd", "mhs crowd")),
                spread_text(costs.net_ratio(key, "mh crowd", "route")),
                ", ".join(str(costs.taken_up(key, what, "mh crowd"))
                          for what in ("mhs crowd", "route"))
                + f" of {len(costs.cost[key]['mh crowd'])}",
                text("mh new"), text("mhs new"),
                spread_text(costs.ratio(key, "mh new", "mhs new")),
                *(spread_text(costs.ratio(key, to, what))
                  if what in costs.cost[key] else ""
                  for what, to in (("unstable crowd", "mh crowd"),
                                   ("unstable new", "mh new")))])
    bench.write_table(docs, "packets-crowded",
                      ["live flows", "buckets", "route", "mh", "mhs",
                       "saved", "times mh", "without sender", "route without sender",
                       "sender took all", "mh, new", "mhs, new", "times mh",
                       "unstable, times mh", "unstable new, times mh"], lines)


def bars(docs, costs):
    """Instructions above those of the sender."""
    key = costs.cases("instructions")[0]
    floor = costs.of(key, "generator")
    names = {"route": ("plain routing", "floor"),
             "mhs established": ("mhs, known flow", "mhs"),
             "mh established": ("mh, known flow", "mh"),
             "mhs new": ("mhs, new flow", "mhs"),
             "mh new": ("mh, new flow", "mh"),
             "unstable new": ("mhs, new flow that a\nchange of servers moves",
                              "mhs")}
    drawing, axes = bench.figure(7.5, 3)
    for place, (what, (_, colour)) in enumerate(names.items()):
        value = costs.of(key, what) - floor
        axes.barh(place, value, color=bench.COLOURS[colour])
        axes.text(value, place, f" {value:,.0f}", va="center")
    axes.set_yticks(range(len(names)), [name for name, _ in names.values()])
    axes.invert_yaxis()
    axes.margins(x=0.1)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("instructions for a packet, Linux 6.1, direct routing, IPv4")
    bench.save(drawing, docs / "packets.svg")


def flows(docs, costs):
    """Packets/s by the number of live flows; mh in both connection tables, the
    others, which have no entries, in the default one."""
    drawing, axes = bench.figure(7.5, 3.6)
    keys = [key for key in costs.cases("ns") if key[2][-1] != "0"]
    small, large = sorted({key[1] for key in keys})
    for what, buckets, colour, style, name in (
            ("route", small, "floor", "o-", "plain routing"),
            ("mhs crowd", small, "mhs", "s-", "mhs"),
            ("mh crowd", large, "mh", "^--", f"mh, {large:,} buckets"),
            ("mh crowd", small, "mh", "v-", f"mh, {small:,}, the default")):
        of = sorted((int(key[2][-1]), 1e9 / costs.of(key, what))
                    for key in keys if key[1] == buckets)
        axes.plot(*zip(*of), style, color=bench.COLOURS[colour], markersize=5)
        axes.text(of[-1][0], of[-1][1], f"  {name}", va="center",
                  color=bench.COLOURS[colour])
    axes.set_ylim(0)
    axes.set_xlim(0, 2.15e6)
    axes.set_xticks([i * 500000 for i in range(4)],
                    ["0", "500,000", "1 million", "1.5 million"])
    axes.set_xlabel("live flows; the sender shares the CPU, User-Mode Linux")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylabel("packets/s, one CPU")
    axes.grid(True, alpha=0.3)
    bench.save(drawing, docs / "flows.svg")
