# SPDX-License-Identifier: GPL-2.0-only
"""What the patch series costs packets of other schedulers, in instructions: two
builds of IPVS in one emulated machine that counts them, without and with the
series, see packets/series.py.
"""

import collections
import math

import bench
import functions
import packets

KERNEL = "newest"
KERNELS = (KERNEL,)
SECONDS = {"quick": 600, "full": 600}
PACKETS = {"counts": 7 * 64, "functions": 64}
MODULES = "0xffffffffc0000000+0x3e000000"  # where all of them are, nokaslr
HOOK = "ip_vs_in_hook"
# What runs now and then, and what takes more for more entries in its bucket
WORKS = ("_work", "estimation", "_rht_", "defense")
CHAINS = ("__ip_vs_conn_in_get", "ip_vs_conn_out_get",
          "ip_vs_conn_hashkey_conn", "ip_vs_conn_hashkey_param")
STEPS = ("stock", "series", "mhs elsewhere", "mhs beside")
ROWS = {"route": "routed, no service",
        "route past rr": "routed, beside services of rr",
        "local": "local, beside services of rr",
        "rr": "rr", "mh": "mh", "mhs": "mhs",
        "rr new": "rr, new flow", "mh new": "mh, new flow",
        "mhs new": "mhs, new flow"}


def guest(packets_each, *options, rounds, more=()):
    modules = bench.TOP / "build" / "kernel" / KERNEL / "ipvs"
    return packets.guest(KERNEL, [], 3000, *options, bits=20, rounds=rounds,
                         packets=packets_each, program="series",
                         more=("--sets", modules, *more))


def measure(docs, mode):
    del mode
    bench.write_csv(docs / "series.csv", guest(
        PACKETS["counts"], "--icount", "--memory", "2G", rounds=2))
    counted = functions.trace(None, lambda options, directory: guest(
        PACKETS["functions"], *options, "--logged", MODULES,
        rounds=2, more=("--trace", directory)))
    bench.write_csv(docs / "series-functions.csv", [
        {"step": step, "what": what, "function": name, "module": module,
         "instructions": f"{number / PACKETS['functions']:.3f}"}
        for (step, what), counts in counted.items()
        for (name, module), number in sorted(counts.items())
        if module.startswith("ip_vs")])
    judge(docs)


def draw(docs):
    cost = collections.defaultdict(lambda: float("inf"))
    for row in bench.read_csv(docs / "series.csv"):
        what, step = row["what"].split(": ")
        key = what, row["family"], step
        cost[key] = min(int(row["ns"]) / int(row["packets"]), cost[key])
    bench.write_table(
        docs, "series", ["packets", *STEPS],
        [[f"{name}, IPv{family}", *cells(lambda step, of=(what, family): (
            cost[*of, step] - cost["generator", family, step]))]
         for family in "46" for what, name in ROWS.items()])
    of_ipvs(docs)


def cells(value):
    """One for each step, and in parentheses what is added to the first."""
    values = [value(step) for step in STEPS]
    texts = ["" if math.isinf(each) else f"{each:,.0f}"
             for each in values]
    return texts[:1] + [
        text + (f" ({round(each - values[0]):+,})"
                if text and texts[0] else "")
        for text, each in zip(texts[1:], values[1:])]


def spent(docs):
    """{(family, what): {function: {step: instructions of a packet}}}"""
    found = collections.defaultdict(lambda: collections.defaultdict(
        lambda: collections.defaultdict(float)))
    for row in bench.read_csv(docs / "series-functions.csv"):
        what, family = row["what"].split(", IPv")
        if not any(word in row["function"] for word in WORKS):
            found[family, what][row["function"]][row["step"]] += float(
                row["instructions"])
    return found


def dearer(functions_of, step):
    """By how many instructions a packet takes more than in the first step."""
    return round(sum(of[step] - of["stock"]
                     for function, of in functions_of.items()
                     if function not in CHAINS))


def judge(docs):
    """Other schedulers pay for a branch that is not taken, one in each hook, and
    for more where a service of mhs is elsewhere, or this would not see it."""
    for (family, what), of in spent(docs).items():
        if what.split()[0] == "mhs":
            continue
        hooks = 2 if what == "local" else 1
        if dearer(of, "series") > hooks or (
                HOOK in of and dearer({HOOK: of[HOOK]}, "mhs elsewhere")
                <= hooks):
            raise SystemExit(f"bench: {what}, IPv{family}: " + ", ".join(
                f"{dearer(of, step):+} with {step}" for step in STEPS[1:]))


def of_ipvs(docs):
    """By the record: what differs between the first two steps."""
    found = spent(docs)
    lines = []
    for family in "46":
        for what, name in ROWS.items():
            for function, of in sorted(found[family, what].items()):
                if function == HOOK or function not in CHAINS and \
                        abs(of["stock"] - of["series"]) >= 1:
                    lines.append([f"{name}, IPv{family}", f"``{function}``",
                                  *(f"{of[step]:,.0f}" if of[step] else ""
                                    for step in STEPS)])
    bench.write_table(docs, "series-functions",
                      ["packets", "function", *STEPS], lines)
