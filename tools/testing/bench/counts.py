# SPDX-License-Identifier: GPL-2.0-only
"""What a packet costs in instructions: on the stock kernel, in an emulated
machine that counts them.  From run to run they differ by less than a hundredth,
on any host; caches are not seen.
"""

import bench
import packets

KERNELS = (packets.COUNTED,)
SECONDS = {"quick": 210, "full": 430}
# The core's connection table is one for all directors here: with entries of
# unstable slots there were more than "live" of them
CASES = {
    "quick": packets.KINDS,
    "full": [*packets.KINDS, {"protocol": "udp"}, {"servers": 1000},
             {"live": 100000, **packets.STABLE}]}
# A thousand tables of the default size would take minutes to fill
MANY, SLOTS = [{"services": 1000}], 4093
PACKETS = 7 * 64  # bursts, as in packets.py


def measure(docs, mode):
    rows = count(CASES[mode])
    if mode == "full":
        rows += count(MANY, slots=SLOTS)
    rows += count([], program="others")
    bench.write_csv(docs / "counts.csv", rows)


def count(cases, **more):
    return packets.guest(packets.COUNTED, cases, 3000, "--icount", "--memory",
                         "2G", rounds=2, packets=PACKETS, **more)


draw = packets.draw
