# SPDX-License-Identifier: GPL-2.0-only
"""make demo: its verdict and table by figures, and no silence."""

import re
import subprocess
import tempfile
import unittest
from pathlib import Path

DEMO = Path(__file__).resolve().parents[2] / "bench/demo"
SPECIAL = {"quiet-entries": "2038 0 1999", "delete-held": "51 0 48",
           "fresh-broken": "200 0 1", "quiet-rate": "135/197 140/201 1/2",
           "plain-refused": "25 0 -"}


def table(**changed):
    rows = (DEMO / "table.py").read_text()
    names = set(re.findall(r'"((?:[a-z]+-[a-z0-9]+ ?)+)",', rows))
    names = {name for text in names for name in text.split()}
    names |= {"open-downloads", "drain-alive", "plain-tried", "delete-alive",
              "fresh-alive"}
    figures = {**dict.fromkeys(names, "200 200 200"), **SPECIAL, **changed}
    with tempfile.NamedTemporaryFile("w", suffix=".figures") as file:
        file.writelines(f"{n} {v}\n" for n, v in figures.items())
        file.flush()
        return subprocess.run([DEMO / "table.py", file.name, "10"],
                              capture_output=True, text=True, check=True).stdout


class Table(unittest.TestCase):
    def test_the_verdict_comes_first(self):
        lines = [" ".join(line.split()) for line in table().splitlines() if line]
        self.assertEqual(lines[1:4], [
            "connection entries 2,038 / 0 / 1,999 at most, while no server "
            "changes",
            "server deleted 51 / 0 / 48 of 200 downloads hang",
            "director replaced 200 / 0 / 1 of 200 downloads cut off"])

    def test_cells(self):
        text = table()
        self.assertRegex(text, r"requests/s, by round +135 / 197 +140 / 201 ")
        self.assertRegex(text, r"without mh-fallback +25 +0 +- ")
        self.assertRegex(text, r"requests failed or slow +400 +400 +400 ")

    def test_it_ends_with_what_to_do_next(self):
        self.assertIn("make shell", table().split("What next?")[1])

    def test_a_figure_that_is_missing_fails(self):
        with self.assertRaises(subprocess.CalledProcessError):
            table(**{"fresh-broken": ""})


class Silence(unittest.TestCase):
    """Lines go through shown() of run; here a second is a silence."""

    def shown(self, command):
        text = (DEMO / "run").read_text()
        function = re.search(r"^shown\(\) {.*?^}", text, re.M | re.S)[0]
        return subprocess.run(
            ["bash", "-c", "start=$SECONDS\n" + function.replace("-t 8", "-t 1")
             + f"\n{{ {command}; }} | shown"], capture_output=True, text=True,
            check=True).stdout.splitlines()

    def test_a_line_comes_in_a_silence(self):
        said = self.shown("echo a; until [ $SECONDS -ge 3 ]; do read -t 1 _ <> "
                          "<(:) || :; done; echo b")
        self.assertEqual((said[0], said[-1]), ("a", "b"))
        self.assertRegex(said[1], r"^ +\.\.\. \(\d+ s\)$")

    def test_a_line_that_comes_in_two_parts(self):
        said = self.shown("printf a; until [ $SECONDS -ge 3 ]; do read -t 1 _ <> "
                          "<(:) || :; done; echo b")
        self.assertEqual(said[-1], "ab")
        self.assertGreater(len(said), 1)

    def test_control_without_a_silence(self):
        self.assertEqual(self.shown("echo a; echo b"), ["a", "b"])
