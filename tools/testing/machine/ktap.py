# SPDX-License-Identifier: GPL-2.0-only
"""Read the KTAP that a test printed, and trust none of it.

A report has its plan first, as many cases as the plan says, numbered from
one, each name once.  Whatever departs from that is an error of the report.
"""

import re
from dataclasses import dataclass, field

VERSION = re.compile(r"(K?TAP) version \d+$")
PLAN = re.compile(r"1\.\.(\d+)(?:\s*#\s*SKIP\b\s*(.*))?$", re.I)
CASE = re.compile(r"(ok|not ok)\b\s*(\d+)?\s*(?:- )?([^#]*?)\s*(?:#\s*(.*))?$")
DIRECTIVE = re.compile(r"(SKIP|XFAIL|TODO)\b:?\s*(.*)", re.I)


@dataclass
class Case:
    name: str
    status: str  # "ok", "not ok" or "skip"
    text: str = ""
    cases: list = field(default_factory=list)

    def leaves(self):
        """The cases below this one that have no cases of their own."""
        if not self.cases:
            return [self]
        return [leaf for case in self.cases for leaf in case.leaves()]


@dataclass
class Report:
    cases: list = field(default_factory=list)
    errors: list = field(default_factory=list)
    skip: str | None = None

    def leaves(self):
        return [leaf for case in self.cases for leaf in case.leaves()]


class _Level:
    """The cases of one indentation."""

    def __init__(self, indent):
        self.indent = indent
        self.plan = None
        self.cases = []
        self.errors = []

    def add_plan(self, count):
        if self.plan is not None:
            self.errors.append("second plan")
        elif self.cases:
            self.errors.append("plan after the first result")
        self.plan = count

    def add_case(self, number, case):
        self.cases.append(case)
        if number != len(self.cases):
            self.errors.append(
                f"result {len(self.cases)} ({case.name}) has number {number}")
        if not case.name:
            self.errors.append(f"result {len(self.cases)} has no name")
        elif case.name in (other.name for other in self.cases[:-1]):
            self.errors.append(f"duplicate name: {case.name}")

    def close(self):
        if self.plan is None:
            self.errors.append("no plan")
        elif self.plan != len(self.cases):
            self.errors.append(
                f"planned {self.plan} results, got {len(self.cases)}")
        return self.errors


def _case(match):
    status, number, name, text = match.groups()
    directive = DIRECTIVE.match(text or "")
    if directive:
        status, text = "skip", directive[2] or directive[1]
    return int(number or 0), Case(name, status, text or "")


def parse(text):
    """Parse the output of one test."""
    report = Report()
    stack = [_Level(0)]

    def climb(indent):
        """Close the levels deeper than indent; return the last of them."""
        closed = None
        while stack[-1].indent > indent:
            closed = stack.pop()
            report.errors += [f"subtest: {e}" for e in closed.close()]
        if stack[-1].indent < indent:
            stack.append(_Level(indent))
        return closed

    for raw in text.splitlines():
        line = raw.strip()
        indent = len(raw) - len(raw.lstrip(" "))
        if VERSION.match(line):
            climb(indent)
        elif match := PLAN.match(line):
            if climb(indent):
                report.errors.append("subtest without a result of its own")
            stack[-1].add_plan(int(match[1]))
            if indent == 0 and match[2] is not None:
                report.skip = match[2] or "no reason given"
        elif match := CASE.match(line):
            below = climb(indent)
            number, case = _case(match)
            if below:
                case.cases = below.cases
                if case.status == "ok" and any(
                        leaf.status == "not ok" for leaf in case.leaves()):
                    report.errors.append(f"ok with a failed case: {case.name}")
            stack[-1].add_case(number, case)
        elif line.startswith("Bail out!"):
            report.errors.append(line)
    if climb(0):
        report.errors.append("subtest without a result of its own")
    report.errors += stack[0].close()
    report.cases = stack[0].cases
    return report
