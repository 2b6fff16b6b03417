# SPDX-License-Identifier: GPL-2.0-only
"""What documents say of tests must be so."""

import re
import subprocess
import tempfile
import unittest
from pathlib import Path

TOP = Path(__file__).resolve().parents[4]
TESTS = TOP / "tools/testing/selftests/net/qdisc_tool"
TABLE = TOP / "Documentation/networking/qdisc-tool.rst"
ITEMS = [f"S{n}" for n in range(1, 19)] + [f"P{n}" for n in range(1, 26)]


def table():
    """Item -> {(file, test)} as the table has it."""
    text = TABLE.read_text()
    text = text.split(".. begin of the table")[1]
    text = text.split(".. end of the table")[0]
    rows = {}
    for item, row in re.findall(r"^([SP]\d+): (.*?)(?=^[SP]\d+: |\Z)", text,
                                re.M | re.S):
        rows[item], file = set(), None
        for word in re.findall(r"``\w+\.py``|\b[a-z0-9]+_\w+\b", row):
            if word.startswith("``"):
                file = word.strip("`")
            elif file:
                rows[item].add((file, word))
    return rows


def tests():
    return {(path.name, name) for path in TESTS.glob("*.py")
            for name in re.findall(r"^@test\ndef (\w+)", path.read_text(),
                                   re.M)}


class QdiscTable(unittest.TestCase):
    def test_every_item_has_a_row(self):
        self.assertEqual(list(table()), ITEMS)

    def test_every_test_named_exists(self):
        named = set().union(*table().values())
        self.assertGreater(len(named), 40)
        self.assertEqual(named - tests(), set())

    def test_every_test_of_an_item_is_named_there(self):
        rows = table()
        missing = [(item, name) for file, name in tests()
                   for item in re.findall(r"(?:^|(?<=_))([sp]\d+)(?=_)", name)
                   if (file, name) not in rows[item.upper()]]
        self.assertEqual(missing, [])


class Complete(unittest.TestCase):
    """Whatever the module lets users see is in its document."""

    SOURCES = TOP / "net/netfilter/ipvs"
    TEXT = (TOP / "Documentation/networking/ipvs-mhs.rst").read_text()
    PAGE = (TOP / "Documentation/man/ip_vs_mhs.7").read_text()

    def names(self, file, pattern):
        found = re.findall(pattern, (self.SOURCES / file).read_text())
        self.assertGreater(len(found), 3)
        return found

    def test_parameters(self):
        for name in self.names("ip_vs_mhs_main.c", r"MODULE_PARM_DESC\((\w+)"):
            self.assertRegex(self.TEXT, rf"(?m)^{name} - ")
            self.assertIn(f".It Va {name}\n", self.PAGE)

    def test_sysctls(self):
        for name in self.names("ip_vs_mhs_main.c", r'procname\s*= "(\w+)"'):
            self.assertRegex(self.TEXT, rf"(?m)^{name} - INTEGER$")
            self.assertIn(f".It Va {name}\n", self.PAGE)

    def test_columns_in_their_order(self):
        array = re.search(r"mhs_columns\[\] = {(.*?)};", (
            self.SOURCES / "ip_vs_mhs_proc.c").read_text(), re.S)[1]
        table = self.TEXT.split("/proc/net/ip_vs_mhs\n===")[1]
        self.assertEqual(re.findall(r'"(.*?)"', array),
                         re.findall(r"(?m)^([A-Z][\w:]+)  +\S", table))


class ManPages(unittest.TestCase):
    def lint(self, page):
        return subprocess.run(["mandoc", "-T", "lint", "-W", "warning", page],
                              capture_output=True, text=True).stdout

    def test_mandoc_has_no_complaint(self):
        pages = list((TOP / "Documentation/man").glob("*.[1-9]"))
        self.assertGreater(len(pages), 2)
        for page in pages:
            self.assertEqual(self.lint(page), "")

    def test_control_a_faulty_page(self):
        with tempfile.NamedTemporaryFile("w", suffix=".8") as page:
            page.write(".Dd today\n.Dt X 8\n.Os\n.Sh NAME\n.Ss Do it\n")
            page.flush()
            self.assertIn("ERROR", self.lint(page.name))


class Kselftest(unittest.TestCase):
    def test_its_makefile_names_every_file(self):
        here = TOP / "tools/testing/selftests/net/ipvs_mhs"
        lists = re.findall(r"^(TEST_\w+) := \\\n(.*?)^# end of \1$",
                           (here / "Makefile").read_text(), re.M | re.S)
        named = {kind: [line.rstrip("\\").strip() for line in
                        lines.splitlines()] for kind, lines in lists}
        files = {path.name: path.read_text() for path in here.iterdir()
                 if path.suffix in (".sh", ".py")}
        tests = sorted(name for name, text in files.items()
                       if re.search(r"^# weight: \d", text, re.M))
        self.assertEqual(named["TEST_PROGS"], tests)
        self.assertEqual(named["TEST_FILES"], sorted(set(files) - set(tests)))
