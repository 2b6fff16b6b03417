# SPDX-License-Identifier: GPL-2.0-only
"""What the benchmarks share: machines, progress, CSV, tables, pictures."""

import csv
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]
HERE = TOP / "tools" / "testing" / "bench"
MACHINE = TOP / "tools" / "testing" / "machine"
WORK = TOP / "build" / "run" / "bench"  # where machines may write

# Colours that the colour-blind can tell apart (Okabe and Ito)
COLOURS = {"mh": "#d55e00", "mhs": "#0072b2", "published": "#e69f00",
           "floor": "#999999", "wlc": "#cc79a7", "other": "#009e73"}


class Progress:
    """Says what runs and when the whole run is going to end."""

    def __init__(self, steps):
        self.steps = steps  # [(name, expected seconds)]
        self.began = time.monotonic()
        self.expected = self.done = 0.0

    def begin(self, name):
        spent = time.monotonic() - self.began
        pace = spent / self.done if self.done > 30 else 1.0
        left = sum(seconds for _, seconds in self.steps) - self.done
        end = time.strftime("%H:%M:%S", time.localtime(time.time()
                                                       + left * pace))
        at = [step for step, _ in self.steps].index(name)
        self.say(f"[{at + 1}/{len(self.steps)}] {name}, about "
                 f"{self.steps[at][1] * pace:.0f} s; all ends about {end}")

    def end(self, name):
        self.done += dict(self.steps)[name]

    @staticmethod
    def say(text):
        print(f"bench: {text}", file=sys.stderr, flush=True)


def compile_c(name, *sources, flags=()):
    """Where the program is, for machines too."""
    WORK.mkdir(parents=True, exist_ok=True)
    subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-std=gnu11", *flags,
                    "-o", WORK / f"{name}.new", *sources, "-lm"], check=True)
    # in one piece: a machine may be running the old one
    (WORK / f"{name}.new").rename(WORK / name)
    return WORK / name


def compile_bpf(name, source):
    """The same of an XDP program, as ip link loads it."""
    WORK.mkdir(parents=True, exist_ok=True)
    subprocess.run(["clang", "-target", "bpf", "-O2", "-g", "-Wall",
                    "-I/usr/include/x86_64-linux-gnu",  # asm/types.h
                    "-c", source, "-o", WORK / f"{name}.new"], check=True)
    (WORK / f"{name}.new").rename(WORK / name)
    return WORK / name


def machine(kernel, command, timeout, *options):
    """Run a command in a machine; the lines that it printed.

    Those that begin with # are for whoever watches."""
    with subprocess.Popen(
            [MACHINE / "run", "--kernel", kernel, "--slow", "4",
             "--timeout", str(timeout),
             *options, "--exec", " ".join(map(shell_word, command))],
            stdout=subprocess.PIPE, text=True) as process:
        lines = []
        for line in process.stdout:
            if line.startswith("#"):
                Progress.say(line[1:].strip())
            else:
                lines.append(line.rstrip("\n"))
    if process.returncode:
        raise SystemExit(f"bench: {' '.join(map(str, command))} failed in the "
                         f"machine ({kernel}):\n" + "\n".join(lines[-20:]))
    return lines


def shell_word(word):
    return "'" + str(word).replace("'", "'\\''") + "'"


def write_csv(path, rows):
    """Rows are dictionaries with the same keys."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read_csv(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def parse_csv(lines, **more):
    return [{**more, **row} for row in csv.DictReader(lines)]


def rst_table(head, lines):
    """A table in reStructuredText, cells are texts."""
    widths = [max(len(line[column]) for line in [head, *lines])
              for column in range(len(head))]
    rule = "  ".join("=" * max(width, 2) for width in widths)
    text = [rule, *("  ".join(word.ljust(width) for word, width
                              in zip(line, widths)).rstrip()
                    for line in ([head[0] or "\\", *head[1:]], *lines)), rule]
    text.insert(2, rule)
    return "\n".join(text) + "\n"


def write_table(docs, name, head, lines):
    """Put it into the page that the directory of data belongs to, between
    comments with its name: hosts of sources show no files that are included."""
    page = docs.with_suffix(".rst")
    begin, end = f".. begin of {name}\n\n", f"\n.. end of {name}\n"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise SystemExit(f"bench: {page} has no lines \"{begin.strip()}\" and "
                         f"\"{end.strip()}\" to put the table between")
    page.write_text(before + begin + rst_table(head, lines) + end + after,
                    encoding="utf-8")


def median(values):
    return statistics.median(values)


def quartiles(values):
    """(first, last) quartile: the spread that tables show, and bars of times."""
    values = list(values)
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def extremes(values):
    return min(values), max(values)


def spread_text(values, show, ends=quartiles):
    """The median, and in parentheses the two ends, each as show() has it."""
    low, high = ends(values)
    return f"{show(median(values))} ({show(low)}-{show(high)})"


def figure(width=7.5, height=4.2, **more):
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "bench", "font.size": 10,
                                "svg.fonttype": "none",
                                "font.sans-serif": ["DejaVu Sans"],
                                "axes.spines.top": False,
                                "axes.spines.right": False})
    from matplotlib import pyplot
    return pyplot.subplots(figsize=(width, height), **more)


def save(drawing, path):
    from matplotlib import pyplot
    drawing.tight_layout()
    drawing.savefig(path, metadata={"Date": None},
                    bbox_inches="tight")
    pyplot.close(drawing)


def host():
    """The machine, as the report says it."""
    model = "unknown"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return f"{model}, {os.cpu_count()} CPUs"


def release(kernel):
    return (TOP / "build" / "kernel" / kernel / "release").read_text().strip()
