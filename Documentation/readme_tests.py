# SPDX-License-Identifier: GPL-2.0-only
"""README.md is short and begins soon; what documents refer to is there."""

import re
import sys
import unittest
from pathlib import Path
from unittest import mock

TOP = Path(__file__).resolve().parent.parent
README = TOP / "README.md"
LINES = 110
WORDS = 300  # before the first command
PAGES = sorted((TOP / "Documentation/networking").glob("*.rst"))


def faults(text):
    """What is too long in a README."""
    wrong = []
    if text.count("\n") > LINES:
        wrong.append("lines")
    before, command, _ = re.split(r"(?m)^( {4}\w.*)$", text, maxsplit=1)
    if len(before.split()) > WORDS:
        wrong.append(f"words before {command.strip()}")
    return wrong


def headings(path):
    """Of a page: lines that have a line of marks below them."""
    return [title.replace("``", "") for title, _ in re.findall(
        r"(?m)^(\S.*)\n([=-])\2{2,}$", path.read_text())]


def lost_headings(text):
    """Headings of which docutils makes a part of the paragraph above."""
    return re.findall(r"(?m)^(?![=-]{3})\S.*\n(\S.*)\n(?:-{3,}|={3,})\n\n", text)


def anchor(heading):
    return re.sub("[^a-z0-9]+", "-", heading.lower()).strip("-")


def broken_links(text, base):
    """Links of Markdown that lead nowhere, as path or path#anchor."""
    wrong = []
    for link in re.findall(r"\]\(([^)]+)\)", text):
        name, _, place = link.partition("#")
        path = base / name
        if not path.exists() or place and place not in map(
                anchor, headings(path)):
            wrong.append(link)
    return wrong


def broken_references(text):
    """Pages that are not there; sections that a page does not have."""
    wrong = [name for name in re.findall(r"Documentation/[\w/.-]+\.(?:rst|[78])",
                                         text) if not (TOP / name).exists()]
    for title, name in re.findall(
            r'"([^"]+)"\s+(?:in|of)\s+(Documentation/networking/[\w-]+\.rst)', text):
        title = " ".join(title.split())
        if name not in wrong and not any(
                title in heading for heading in headings(TOP / name)):
            wrong.append(f"{title} in {name}")
    return wrong


class Short(unittest.TestCase):
    def test_the_readme_is_short_and_its_first_command_is_near(self):
        self.assertEqual(faults(README.read_text()), [])

    def test_control_one_line_more(self):
        text = README.read_text()
        more = LINES + 1 - text.count("\n")
        self.assertEqual(faults(text + "\n" * (more - 1)), [])
        self.assertEqual(faults(text + "\n" * more), ["lines"])

    def test_control_a_command_that_comes_late(self):
        self.assertEqual(faults("word " * WORDS + "\n\n    make demo\n"), [])
        self.assertEqual(faults("word " * (WORDS + 1) + "\n\n    make demo\n"),
                         ["words before make demo"])

    def test_the_readme_names_the_test_command(self):
        self.assertIn("`make check`", README.read_text())

    def test_the_first_command_is_a_target(self):
        first = re.search(r"(?m)^ {4}make (\w+)$", README.read_text())[1]
        self.assertRegex((TOP / "Makefile").read_text(), rf"(?m)^{first}:")


class Figures(unittest.TestCase):
    """The README's table is what `make bench BENCH="--publish demo"` writes."""

    def test_they_are_the_demo_s(self):
        with mock.patch.object(sys, "path", [str(TOP / "tools/testing/bench"),
                                             *sys.path]):
            import demo
        run = (PAGES[0].parent / "ipvs-mhs-benchmarks/demo.txt").read_text()
        text = README.read_text()
        self.assertEqual(demo.readme(text, run), text)
        other = re.sub(r"(?m)^(  \S.*?  +)[\d,]+( / .* / )", r"\g<1>71\2", run)
        self.assertEqual(re.findall(r"\| +(71.*?) \|", demo.readme(text, other)),
                         ["71", "71 of 200", "71 of 200"])


class References(unittest.TestCase):
    def test_links_of_readmes_lead_somewhere(self):
        paths = [README, *TOP.glob("examples/**/*.md")]
        self.assertGreater(len(paths), 1)
        for path in paths:
            self.assertEqual(broken_links(path.read_text(), path.parent), [], path)

    def test_control_a_link_that_does_not(self):
        page = "Documentation/networking/ipvs-mhs.rst"
        good = f"[a]({page}) [b]({page}#draining-a-server)"
        self.assertEqual(broken_links(good, TOP), [])
        self.assertEqual(broken_links(f"[a]({page}#draining) [b](a.rst)", TOP),
                         [f"{page}#draining", "a.rst"])

    def test_pages_and_sections_that_are_referred_to_are_there(self):
        paths = [*PAGES, *sorted(TOP.glob("Documentation/man/*.[78]")),
                 TOP / "CONTRIBUTING.rst", TOP / "MAINTAINERS", TOP / "CHANGELOG.rst",
                 TOP / "packaging/container/Dockerfile",
                 *TOP.glob("examples/**/*.md")]
        self.assertGreater(len(paths), 10)
        for path in paths:
            self.assertEqual(broken_references(path.read_text()), [], path)

    def test_control_a_reference_to_nothing(self):
        page = "Documentation/networking/ipvs-mhs.rst"
        self.assertEqual(broken_references(f'"Draining a\nserver" in\n{page}'), [])
        self.assertEqual(broken_references(
            f'"Drain it" in {page}, Documentation/networking/none.rst'),
            ["Documentation/networking/none.rst", f"Drain it in {page}"])

    def test_no_heading_is_lost(self):
        self.assertEqual([title for page in PAGES
                          for title in lost_headings(page.read_text())], [])

    def test_control_a_heading_without_a_blank_line_above(self):
        self.assertEqual(lost_headings("text\nLimits\n======\n\ntext\n"),
                         ["Limits"])
        self.assertEqual(lost_headings("text\n\nLimits\n======\n\n"), [])

    def test_every_page_is_reached_from_the_readme(self):
        """By links, or by way of pages that have them."""
        seen, left = set(), [README]
        while left:
            path = left.pop()
            for name in re.findall(r"Documentation/networking/([\w-]+\.rst)",
                                   path.read_text()):
                page = TOP / "Documentation/networking" / name
                if page not in seen:
                    seen.add(page)
                    left.append(page)
        self.assertEqual(seen, set(PAGES))
