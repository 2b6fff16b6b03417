# SPDX-License-Identifier: GPL-2.0-only
"""The table of `make demo`, whose first lines README.md quotes."""

import re

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


def readme(text, demo):
    """README.md's @text with the figures of @demo."""
    rows = re.findall(r"(?m)^  \S.*?  +([\d,]+) / ([\d,]+) / ([\d,]+)( of \d+)?", demo)

    def row(found):
        *cells, of = rows.pop(0)
        mh, mhs, wlc = (cell + of * (cell != "0") for cell in cells)
        return f"{found[1]} | {mh:>10} | {mhs:>3} | {wlc:>16} |"

    return re.sub(r"(?m)^(\| (?:connection entries|a server is deleted|"
                  r"another director)\b[^|]*?) \|.*$", row, text)


def draw(_docs):
    """Nothing: the table is the data."""
