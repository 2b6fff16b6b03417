# SPDX-License-Identifier: GPL-2.0-only
"""What documents say of tests must be so."""

import importlib.util
import re
import subprocess
import sys
import tempfile
import unittest
from importlib.machinery import SourceFileLoader
from pathlib import Path
from unittest import mock

from docutils import nodes
from docutils.core import publish_doctree

TOP = Path(__file__).resolve().parent.parent
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

    def names(self, pattern):
        found = [name for path in self.SOURCES.glob("*.c")
                 for name in re.findall(pattern, path.read_text())]
        self.assertGreater(len(found), 3)
        return found

    def test_parameters(self):
        for name in self.names(r"MODULE_PARM_DESC\((\w+)"):
            self.assertRegex(self.TEXT, rf"(?m)^{name} - ")
            self.assertIn(f".It Va {name}\n", self.PAGE)

    def test_sysctls(self):
        for name in self.names(
                r'(?:procname\s*= "|NET_SYSCTL\()([a-z]\w+)'):
            self.assertRegex(self.TEXT, rf"(?m)^{name} - (INTEGER|BOOLEAN|"
                             r"STRING)$")
            self.assertIn(f".It Va {name}\n", self.PAGE)

    LANE = (TOP / "Documentation/networking/ipvs-mhs-lane.rst").read_text()

    def array(self, name):
        found = [re.search(rf"{name}\[\] = {{(.*?)}};", path.read_text(), re.S)
                 for path in self.SOURCES.glob("*.c")]
        text, = (match[1] for match in found if match)
        return re.findall(r'"(.*?)"', text)

    def rows(self, text):
        return re.findall(r"(?m)^([A-Z][\w:]+)  +\S", text)

    def test_columns_in_their_order(self):
        table = self.TEXT.split("/proc/net/ip_vs_mhs\n===")[1]
        self.assertEqual(self.array("proc_columns"), self.rows(table))

    def test_reasons_and_remedies_of_the_lane(self):
        table = self.LANE.split("Which packets take it\n===")[1]
        table = table.split("Switch it on\n===")[0].split("remedy\n")[1]
        self.assertEqual(self.array("api_names")[1:], self.rows(table))


class Measured(unittest.TestCase):
    """Figures say which source they are of; functions that pages name exist."""

    BENCH = TOP / "tools/testing/bench"

    def setUp(self):
        path = mock.patch.object(sys, "path", [str(self.BENCH), *sys.path])
        path.start()
        self.addCleanup(path.stop)
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.docs = Path(directory.name)

    def program(self, name):
        loader = SourceFileLoader("measured", str(self.BENCH / name))
        module = importlib.util.module_from_spec(
            importlib.util.spec_from_loader("measured", loader))
        loader.exec_module(module)
        return module

    def test_figures_are_of_a_source(self):
        """Comments and blanks change no figure; code does."""
        import bench
        import source
        path = self.docs / "net/netfilter/ipvs/ip_vs_mhs_a.c"
        path.parent.mkdir(parents=True)

        def fingerprint(text):
            path.write_text(text)
            source.fingerprint.cache_clear()
            with mock.patch.object(bench, "TOP", self.docs):
                return source.fingerprint(source.of(None))

        was = fingerprint('int a; /* b\n * c */ char *d = "/* e */"; // f\n')
        self.assertEqual(was, fingerprint('int a;\n\tchar *d = "/* e */"; /*g*/'))
        self.assertNotEqual(was, fingerprint('int a; char *d = "/* g */";'))
        self.assertNotEqual(was, fingerprint('int b; char *d = "/* e */";'))
        self.assertNotEqual(was, fingerprint(f'#include "{source.CONTROL}"\n'))
        names = {path.name for path in source.of(None)}
        self.assertIn("ip_vs_mhs_decide.c", names)
        self.assertNotIn("ip_vs_mhs_ctl.c", names)

    def test_published_figures_have_their_source(self):
        """check-release ONLY=figures compares it."""
        program = self.program("run")
        import bench
        rows = bench.read_csv(program.DOCS / "conditions.csv")
        self.assertEqual([row["section"] for row in rows],
                         [*program.SECTIONS])
        self.assertNotIn("", [row["source"] for row in rows])
        for name, text in program.tables(
                program.DOCS.with_suffix(".rst").read_text()).items():
            self.assertIn("====", text, name)

    def test_functions_that_are_named_exist(self):
        source = "\n".join(path.read_text() for path in
                           (TOP / "net/netfilter/ipvs").glob("*.[ch]"))
        named = {name for path in [TOP / "CONTRIBUTING.rst", *(
            TOP / "Documentation/networking").glob("*.rst")]
            for name in re.findall(r"``((?:ip_vs_mhs|mhs|hook|lane|xdp|net)_\w+)"
                                   r"\(\)``", path.read_text())}
        self.assertGreater(len(named), 5)
        self.assertEqual([name for name in sorted(named)
                          if f"{name}(" not in source], [])

    def test_nothing_is_included(self):
        """Hosts of sources show no files that a page includes."""
        pages = list((TOP / "Documentation/networking").glob("*.rst"))
        self.assertGreater(len(pages), 5)
        wrong = [page.name for page in pages if re.search(
            r"(?m)^\.\. include::|^\s+:file:", page.read_text())]
        self.assertEqual(wrong, [])


class Sentences(unittest.TestCase):
    """No paragraph has a sentence of more than 30 words."""

    def long(self, text):
        # roles that only Sphinx knows are words, too
        page = publish_doctree(text, settings_overrides={"report_level": 5})
        return [sentence for paragraph in page.findall(nodes.paragraph)
                for sentence in re.split(r"(?<=[.?!:])\s", paragraph.astext())
                if len(sentence.split()) > 30]

    def test_pages(self):
        for page in [*(TOP / "Documentation/networking").glob("ipvs-mhs*.rst"),
                     *TOP.glob("*.rst")]:
            self.assertEqual(self.long(page.read_text()), [], page.name)

    def test_control_one_word_more(self):
        self.assertEqual(self.long("A " * 29 + "b. " + "C " * 30), [])
        self.assertEqual(len(self.long("A " * 30 + "b.\n")), 1)


class Tools(unittest.TestCase):
    """Installed elsewhere, the tools are called where they are."""

    def make(self, target, root):
        subprocess.run(["make", "-s", "-C", TOP, target, f"DESTDIR={root}",
                        "PREFIX=/opt/mhs"], check=True, capture_output=True)

    def test_units_and_examples(self):
        with tempfile.TemporaryDirectory() as root:
            self.make("install-tools", root)
            called = {}
            for path in Path(root).rglob("*"):
                if path.suffix in (".conf", ".service"):
                    called[path.parent.name + "/" + path.name] = re.findall(
                        r"/[\w/-]+/(?:qdisc_tool|mhsstat|real_server|"
                        r"lane\.bpf\.o)(?= )", path.read_text())
            for name in ("haproxy.service.d/qdisc_tool.conf",
                         "balancer/keepalived.service.conf",
                         "system/qdisc_tool.service"):
                self.assertEqual(set(called[name]),
                                 {"/opt/mhs/sbin/qdisc_tool"})
            self.assertEqual(called["system/real_server.service"],
                             ["/opt/mhs/sbin/real_server"] * 3)
            self.assertEqual(called["system/mhs-lane@.service"],
                             ["/opt/mhs/lib/ipvs-mhs-tools/lane.bpf.o"])
            for program in sum(called.values(), []):
                self.assertTrue(Path(root + program).exists(), program)
            self.make("uninstall-tools", root)
            self.assertEqual([path for path in Path(root).rglob("*")
                              if not path.is_dir()], [])

    def test_without_clang_only_the_lane_is_missing(self):
        with tempfile.TemporaryDirectory() as work:
            lane = subprocess.run(["make", "-s", "-C", TOP / "tools/net/ipvs_mhs",
                                   "lane", f"O={work}", "CLANG=no-such-clang"],
                                  capture_output=True, text=True)
            self.assertNotEqual(lane.returncode, 0)
            self.assertIn("install clang and libbpf-dev", lane.stderr)
            self.assertEqual(list(Path(work).iterdir()), [])
            control = subprocess.run(["make", "-s", "-C",
                                      TOP / "tools/net/ipvs_mhs", "lane",
                                      f"O={work}"], check=True,
                                     capture_output=True, text=True)
            self.assertEqual(control.stderr, "")
            self.assertTrue((Path(work) / "lane.bpf.o").exists())


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


class Tags(unittest.TestCase):
    def test_tags_are_those_that_make_reads(self):
        here = TOP / "tools/testing/selftests/net/ipvs_mhs"
        known = re.findall(r"(?m)^#\t(\w+)\t", (TOP / "Makefile").read_text())
        lines = re.findall(r"^# tags: (.*)$", "\n".join(
            path.read_text() for path in here.glob("*.sh")), re.M)
        self.assertEqual(set(" ".join(lines).split()), set(known))
