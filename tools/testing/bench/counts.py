# SPDX-License-Identifier: GPL-2.0-only
"""What a packet costs in instructions: on the stock kernel, in an emulated
machine that counts them.  The same to a thousandth from run to run, on any
host; caches are not seen.
"""

import bench
import packets

KERNELS = (packets.COUNTED,)
SECONDS = {"quick": 240, "full": 900}
# fewer slots, which are filled in less time: the path is the same
SLOTS = 4093
CASES = {
    "quick": packets.KINDS,
    "full": [*packets.KINDS, {"protocol": "udp"}, {"servers": 1000},
             {"services": 1000}, {"live": 100000}]}


def measure(docs, mode):
    bench.write_csv(docs / "counts.csv", packets.guest(
        packets.COUNTED, CASES[mode], 3000, "--icount", "--memory", "2G",
        rounds=2, packets=1000, new=250, slots=SLOTS))


draw = packets.draw
