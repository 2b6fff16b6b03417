# SPDX-License-Identifier: GPL-2.0-only
"""The table of `make demo`, as README.md quotes it."""

import bench

KERNELS = ("uml",)
SECONDS = {"quick": 200, "full": 200}


def measure(docs, _mode):
    lines = bench.machine(KERNELS[0], [bench.HERE / "demo" / "guest"], 600,
                          "--cpus", "2")
    head = next(i for i, line in enumerate(lines)
                if line.startswith("In this run, "))
    (docs / "demo.txt").write_text("\n".join([*lines[head:], ""]),
                                   encoding="utf-8")


def draw(_docs):
    """Nothing: the table is the data."""
