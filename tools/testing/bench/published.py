# SPDX-License-Identifier: GPL-2.0-only
"""The case of packets.py with as many live flows as the authors of the algorithm
had: what mhs saves there.
"""

import bench
import packets

KERNELS = (packets.NATIVE,)
SECONDS = {"quick": 40, "full": 120}
CASES = [{"live": 250000, **packets.STABLE}]


def measure(docs, mode):
    bench.write_csv(docs / "packets-published.csv",
                    packets.crowds(CASES, packets.ROUNDS[mode]))


draw = packets.draw
