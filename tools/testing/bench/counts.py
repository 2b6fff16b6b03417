# SPDX-License-Identifier: GPL-2.0-only
"""What a packet costs in instructions: on the stock kernel, in an emulated
machine that counts them.  From run to run they differ by less than a hundredth,
on any host; caches are not seen.
"""

import bench
import packets

KERNELS = (packets.COUNTED,)
SECONDS = {"quick": 210, "full": 350}
KINDS = [{}, {"family": 6}, {"method": "ipip"}]
CASES = {"quick": KINDS,
         "full": [*KINDS, {"protocol": "udp"}, {"servers": 1000}]}
# A thousand tables of the default size would take minutes to fill
MANY, SLOTS = [{"services": 1000}], 4093
PACKETS = 7 * 64  # bursts, as in packets.py
EXACT = {"packets-instructions": 0.01, "packets-others": 0.01}
MEASURED = ("route", "mh established", "mhs established", "mh new", "mhs new",
            "held", "unstable entry", "unstable new", "pin")
# packets that are not for mhs, and what the director has, see packets/others.py
OTHERS = {"route": "forwarded", "wlc": "to a service of wlc"}
WITHOUT = "IPVS with wlc"
ADDED = ("mhs loaded", "service of mhs")
STEPS = ("no IPVS", WITHOUT, *ADDED)


def measure(docs, mode):
    rows = count(CASES[mode])
    if mode == "full":
        rows += count(MANY, slots=SLOTS)
    rows += count([], program="others")
    bench.write_csv(docs / "counts.csv", rows)


def count(cases, **more):
    return packets.guest(packets.COUNTED, cases, 3000, "--icount", "--memory",
                         "2G", rounds=2, packets=PACKETS, **more)


def draw(docs):
    costs = packets.read(docs / "counts.csv")
    keys = costs.cases("instructions")
    instructions(docs, costs, keys)
    others(docs, costs, keys)


def instructions(docs, costs, keys):
    """Above those of the sender."""
    lines = []
    for key in keys:
        if "route" not in costs.cost[key]:
            continue
        floor = costs.of(key, "generator")
        lines.append([packets.case_name(key), f"{floor:,.0f}",
                      *(f"{costs.of(key, what) - floor:,.0f}"
                        if what in costs.cost[key] else ""
                        for what in MEASURED),
                      packets.times(costs.of(key, "mhs established") /
                                    costs.of(key, "route"))])
    bench.write_table(docs, "packets-instructions",
                      ["case", "sender", *MEASURED, "stable / route"], lines)


def others(docs, costs, keys):
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
         for what, name in OTHERS.items() for key in keys
         if f"{what}: {WITHOUT}" in costs.cost[key]])
