# SPDX-License-Identifier: GPL-2.0-only
"""mhsstat reads what it is given, and refuses what it cannot understand."""

import contextlib
import fcntl
import io
import ipaddress
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from prometheus_client.parser import text_string_to_metric_families

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

from mhsstat_lib import (check, cli, compare, lane, lookup, netlink, options,  # noqa: E402
                         plan, proc, prometheus, rules, servers, snapshot,
                         stateful, text, wait, watch)
from ipvs_mhs_tool import (EXIT_FAILED, EXIT_PROBLEM, ToolError,  # noqa: E402
                           run as tool_run)

RECORDED = Path(__file__).resolve().parent
EXAMPLES = TOP / "examples/mhsstat"
# As recorded, and as modules before and after it may have it.
NOW = (RECORDED / "ip_vs_mhs").read_text()
LANE = (RECORDED / "ip_vs_mhs_lane").read_text()


def columns(source, keep):
    """The same text with other columns."""
    lines = [line.split() for line in source.splitlines()]
    numbers = [i for i, name in enumerate(lines[0]) if keep(name)]
    return "\n".join(" ".join(line[i] for i in numbers)
                     for line in lines) + "\n"


def altered(source, row, **values):
    """The same text with other values in the row of that name."""
    head, *lines = [line.split() for line in source.splitlines()]
    for line in lines:
        if " ".join(line[:2]) == row:
            for name, value in values.items():
                line[head.index(name)] = str(value)
    return "\n".join(" ".join(line) for line in [head, *lines]) + "\n"


OLDER = columns(NOW, lambda name: name not in ("StableMs", "AddrOnly",
                                               "Stateful", "StatefulMs",
                                               "PktLane"))
NEWER = "\n".join(line + (" PktMoved" if n == 0 else f" {n}")
                  for n, line in enumerate(NOW.splitlines()))
TURNED = "\n".join(" ".join(reversed(line.split()))
                   for line in NOW.splitlines())


class Clock:
    """Time passes while wait sleeps, and at no other time."""

    def __init__(self):
        self.now = 0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def run(*argv):
    """(status, standard output, standard error) of mhsstat."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), \
            mock.patch("mhsstat_lib.progress.time", Clock()):
        try:
            status = cli.main(list(argv))
        except SystemExit as end:
            status = end.code
    return status, out.getvalue(), err.getvalue()


class Files(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def file(self, name, content):
        path = self.directory / name
        path.write_text(content if isinstance(content, str)
                        else json.dumps(content))
        return str(path)


class Watch(unittest.TestCase):
    def test_packets_of_servers(self):
        self.assertEqual(watch.server_rates(
            {"a": 0, "b": 50, "gone": 1}, {"a": 10, "b": 70, "new": 9}, 2),
            [("b", 10), ("a", 5)])
        self.assertEqual(watch.server_rates({"a": 9}, {"a": 1}, 2), [])
        self.assertEqual(watch.server_rates({}, {"a": 1}, 0), [])

    def block(self, colours):
        service = next(s for s in proc.parse(NOW) if s["state"] == "transition")
        return watch.block(service, {"packets_stateless": 30,
                                     "packets_tracked": 10, "new_entries": 2},
                           [(f"10.2.0.{n}:80", 10) for n in range(1, 9)],
                           watch.Paint(colours))

    def test_colours_change_no_word(self):
        coloured = self.block(True)
        self.assertIn("\x1b[33m", coloured)
        self.assertEqual(re.sub("\x1b\\[\\d+m", "", coloured),
                         self.block(False))

    def test_where_colours_are(self):
        class Terminal(io.StringIO):
            def isatty(self):
                return True
        for stream, environment, want in (
                (Terminal(), {"TERM": "xterm"}, True),
                (Terminal(), {"TERM": "xterm", "NO_COLOR": ""}, True),
                (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False),
                (Terminal(), {"TERM": "dumb"}, False),
                (io.StringIO(), {"TERM": "xterm"}, False)):
            self.assertEqual(text.may_colour(stream, environment), want)


class Terminal(Files):
    """No line is wider than the terminal; elsewhere each is whole."""

    SERVICE = "[2001:db8:1111:2222:3333:4444:5555:6666]:8443"

    def setUp(self):
        super().setUp()
        self.path = self.file("proc", NOW.replace("[fd09::1]:80", self.SERVICE))

    def run_in(self, width, *argv, stream="stdout"):
        """The lines that mhsstat writes to a terminal of that width."""
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ,
                    struct.pack("HHHH", 24, width, 0, 0))
        with open(leader, "rb", buffering=0) as screen:
            with subprocess.Popen([TOP / "scripts/mhsstat", *argv], **{
                    "stdout": subprocess.DEVNULL,
                    "stderr": subprocess.DEVNULL, stream: follower}):
                os.close(follower)
                text = b""
                with contextlib.suppress(OSError):  # its end
                    while part := screen.read(4096):
                        text += part
        return re.split("[\r\n]+", re.sub("\x1b\\[\\d*[A-Za-z]", "",
                                          text.decode()))

    def test_show(self):
        full = run("show", "--file", self.path)[1].splitlines()
        self.assertGreater(max(map(len, full)), 120)
        for width in 200, 132, 100, 80, 60, 0:
            lines = self.run_in(width, "show", "--file", self.path)
            with self.subTest(width=width):
                self.assertLessEqual(max(map(len, lines)), width or 80)
                self.assertIn("TCP " + self.SERVICE, "".join(lines))
                # GONE and PIN are 0 here
                for name in {*full[0].split()} - {"GONE", "PIN"}:
                    self.assertIn(name, " ".join(lines))
        self.assertEqual(self.run_in(200, "show", "--file", self.path)[:4],
                         full[:4])

    def test_columns_that_say_nothing_go_first(self):
        quiet = NOW
        for name in "TCP 10.9.0.1:80", "TCP [fd09::1]:80":
            quiet = altered(quiet, name, State="stable", Stable=65521, Hold=0,
                            StableMs=0)
        quiet = proc.parse(quiet)
        shown = text.show(quiet, None, text.Screen(80)).split("\n")
        self.assertEqual(shown[0].split(), ["SERVICE", "STATE", "SERVERS",
                                            "ENTRIES", "STATELESS", "LANE"])
        self.assertNotIn("no room", "".join(shown))
        self.assertIn("GONE", text.show(quiet, None, text.Screen(120)))

    def test_what_changes_comes_first_and_the_rest_is_counted(self):
        head, *lines = NOW.splitlines()
        moving = next(line for line in lines if "transition" in line)
        calm = next(line for line in lines if " stable " in line and "UDP" in line)
        services = proc.parse("\n".join(
            [head, *(calm.replace(":53 ", f":{n} ") for n in range(1, 5000)),
             moving]))
        room = text.Screen(200, 22)
        shown = text.show(services, None, room).split("\n")
        self.assertLessEqual(len(shown), room.rows + 1)
        self.assertIn("transition", shown[1])
        self.assertRegex("".join(shown), r"and \d+ more service\(s\), all stable")
        self.assertGreater(text.show(services).count("\n"), 4999)
        found = [check.Finding("route", f"TCP 10.9.0.1:{n}", (), "text " * 30, "none")
                 for n in range(1000)]
        found.append(found[0]._replace(kind="names"))
        said = check.render(found, room)
        self.assertLessEqual(said.count("\n"), room.rows + 1)
        self.assertIn("more finding(s): --all", said)
        self.assertEqual(check.render(found).count("\n"), len(found))

    def test_watch(self):
        for service in proc.parse(Path(self.path).read_text()):
            rates = {f: 123456 for f in service if f.startswith("packets_")}
            said = [watch.block({**service, "capped": 3}, rates,
                                [(f"[2001:db8::{n}]:80", 10 ** n)
                                 for n in range(1, 9)],
                                watch.Paint(False), width)
                    for width in (None, 80, 60)]
            self.assertEqual(len({"".join(one.split()) for one in said}), 1)
            for one, width in zip(said, (1000, 80, 60)):
                self.assertLessEqual(max(map(len, one.split("\n"))), width)

    def test_progress(self):
        items = [f"TCP {self.SERVICE}: transition, at most 14 min 23 s left, "
                 "12.3 % of the slots unstable"] * 3
        self.assertEqual(text.fit(items, None), "; ".join(items))
        self.assertEqual(text.fit(items[:1], 79), items[0][:76] + "...")
        short = ["TCP 10.9.0.1:80: settling"] * 4
        self.assertEqual(text.fit(short, 79), "; ".join(short[:2]) + "; 2 more")
        self.assertEqual(text.fit(short, 200), "; ".join(short))

    def test_wait(self):
        lines = self.run_in(60, "wait", "--settled", "--timeout", "30ms", "-i",
                            "10ms", "-t", self.SERVICE, stream="stderr")
        progress = [line for line in lines if line.startswith("there is no")]
        self.assertTrue(progress)
        self.assertLessEqual(max(map(len, progress)), 59)


class Version(unittest.TestCase):
    """One source, debian/changelog; lookup.sh compares the module's."""

    SOURCE = re.match(r"ipvs-mhs \((.*?)\)",
                      (TOP / "debian/changelog").read_text())[1]

    def test_of_each_tool(self):
        for tool in ("mhsstat", "qdisc_tool", "real_server"):
            done = subprocess.run([TOP / "scripts" / tool, "--version"],
                                  capture_output=True, text=True, check=True)
            self.assertEqual(done.stdout, f"{tool} {self.SOURCE}\n")

    def test_of_the_packages(self):
        done = subprocess.run(
            ["make", "-s", "-C", str(TOP), "-f", "Makefile", "-f", "-", "print"],
            input="print: ; @echo $(VERSION)\n", capture_output=True, text=True,
            check=True)
        self.assertEqual(done.stdout.strip(), self.SOURCE)

    def test_nothing_else_names_one(self):
        for path in ("dkms.conf", "scripts/ipvs_mhs_version.py",
                     "net/netfilter/ipvs/ip_vs_mhs_main.c",
                     "packaging/rpm/ipvs-mhs.spec"):
            self.assertNotIn(self.SOURCE, (TOP / path).read_text(), path)

    def test_installed(self):
        with tempfile.TemporaryDirectory() as root:
            subprocess.run(["make", "-s", "-C", str(TOP), "install-tools",
                            f"DESTDIR={root}"], check=True, capture_output=True)
            for tool in ("mhsstat", "qdisc_tool", "real_server"):
                done = subprocess.run([f"{root}/usr/local/sbin/{tool}",
                                       "--version"], capture_output=True,
                                      text=True, check=True)
                self.assertEqual(done.stdout, f"{tool} {self.SOURCE}\n")


class Lookup(unittest.TestCase):
    CONNS = """\
Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData
TCP 0A010002 9C40 0A090001 0050 0A02000B 0050 ESTABLISHED     899
UDP 0A010002 9C40 0A090001 0050 0A02000C 0050 UDP             120
TCP 0A010003 9C40 0A090001 0050 0A02000D 0050 FIN_WAIT         60
TCP fd01:0000:0000:0000:0000:0000:0000:0002 9C40 \
fd09:0000:0000:0000:0000:0000:0000:0001 0050 \
fd02:0000:0000:0000:0000:0000:0000:000b 0050 SYN_RECV        59
"""

    def test_question(self):
        for name, client, want in (
                ("TCP 192.0.2.1:80", ("198.51.100.7", 40000),
                 "TCP 192.0.2.1 80 198.51.100.7 40000\n"),
                ("UDP [2001:db8::1]:53", ("2001:db8::7", 1),
                 "UDP 2001:db8::1 53 2001:db8::7 1\n"),
                ("FWM 7", ("198.51.100.7", 9), "FWM 7 0 198.51.100.7 9\n")):
            self.assertEqual(lookup.question(name, client), want)
        self.assertEqual(
            lookup.question("UDP 192.0.2.1:443", ("127.0.0.1", 1), "07ab"),
            "UDP 192.0.2.1 443 127.0.0.1 1 07ab\n")

    def test_connection_ids(self):
        for cid in ("", "0", "xx", "00" * 21, "0x07"):
            self.assertEqual(run("lookup", "--cid", cid)[0],
                             2)
        self.assertEqual(lookup.parse(
            "Slot 1\nPhase hold\nTracked 0\nOld -\nCandidate -\n"
            "ById 10.0.0.1:443\n")["byid_server"], "10.0.0.1:443")
        lines = lookup.render({"cid": "07", "services": [
            {"service": "UDP 192.0.2.1:443", "server": "10.0.0.1:443"}]})
        self.assertEqual(lines.split("\n")[0], "07 -> 10.0.0.1:443")

    def test_answer(self):
        self.assertEqual(lookup.parse(
            "Slot 12\nPhase hold\nTracked 1\nOld 10.0.0.1:80\nCandidate -\n"),
            {"slot": 12, "phase": "hold", "tracked": 1,
             "old_server": "10.0.0.1:80", "candidate_server": None})
        for broken in ("", "Slot x\n", "Slot 1\nPhase\n"):
            with self.assertRaisesRegex(ToolError, "cannot be understood"):
                lookup.parse(broken)

    def test_entries_of_the_client(self):
        found = lookup.entries(self.CONNS, (ipaddress.ip_address("10.1.0.2"),
                                            40000))
        self.assertEqual([(kind, virtual, e["server"], e["state"])
                          for kind, virtual, e in found], [
            ("TCP", "10.9.0.1:80", "10.2.0.11:80", "ESTABLISHED"),
            ("UDP", "10.9.0.1:80", "10.2.0.12:80", "UDP")])
        [(_, virtual, entry)] = lookup.entries(
            self.CONNS, (ipaddress.ip_address("fd01::2"), 40000))
        self.assertEqual((virtual, entry["server"], entry["expires_s"]),
                         ("[fd09::1]:80", "[fd02::b]:80", 59))

    def test_the_answer_comes_first(self):
        entry = {"server": "10.0.0.11:80", "state": "ESTABLISHED",
                 "expires_s": 899}
        for phase, candidate, mine, answer in (
                ("stable", "10.0.0.12:80", entry, "10.0.0.11:80, by its entry"),
                ("stable", "10.0.0.12:80", None, "10.0.0.12:80, by its slot"),
                ("stable", None, None, "no server, by its slot"),
                ("hold", "10.0.0.12:80", None, "10.0.0.13:80 for an older flow, "
                 "10.0.0.12:80 for a new one, which gets an entry"),
                ("moon", "10.0.0.12:80", None, "10.0.0.12:80, or "
                 "10.0.0.13:80")):
            lines = lookup.render({"client": "198.51.100.7:36390", "services": [
                {"service": "TCP 192.0.2.1:80", "slot": 12, "phase": phase,
                 "tracked": 0, "old_server": "10.0.0.13:80",
                 "candidate_server": candidate, "entry": mine}]}).split("\n")
            self.assertEqual(lines[0], f"198.51.100.7:36390 -> {answer}")

    def test_a_full_server_takes_no_new_connection(self):
        for said, active, want in (
                ("", 4, None), ("", 5, "is refused"), (" -b flag-1", 9,
                                                       "goes to another server")):
            one = Kernel.of(f"-A -t 10.9.0.1:80 -s mhs{said}\n-a -t 10.9.0.1:80 -r "
                            f"10.2.0.1:80 -g -w 1 -x 5 -y 3 # {active} 0\n")
            full = lookup._full(one["TCP 10.9.0.1:80"], "10.2.0.1:80")
            self.assertEqual(full, want)
            self.assertIsNone(lookup._full(one["TCP 10.9.0.1:80"], "10.2.0.2:80"))
            words = lookup._answer({"full": full, "entry": None, "phase": "stable",
                                    "candidate_server": "10.2.0.1:80",
                                    "old_server": None, "service": "TCP x"})
            self.assertIn(want or "by its slot", words)

    MARKS = """\
-A -f 7 -s mhs -p 300 -M 255.255.255.0
-a -f 7 -r 10.2.0.11:0 -g -w 1
-a -f 7 -r 10.2.0.14:0 -g -w 0
-A -f 8 -s mhs
-a -f 8 -r 10.2.0.12:0 -g -w 1
-A -t 10.9.0.3:80 -s mhs -p 300
-a -t 10.9.0.3:80 -r 10.2.0.11:80 -g -w 1
-A -t [fd09::1]:80 -s mhs -p 300 -M 64
-a -t [fd09::1]:80 -r [fd02::b]:80 -g -w 1
"""

    def test_a_mark_has_no_entries_of_others(self):
        core = servers.parse(self.MARKS, "")
        entry = {"server": "10.2.0.11:80", "to": "10.9.0.1:80"}
        other = {"server": "10.2.0.12:80", "to": "10.9.0.1:80"}
        gone = {"server": "10.2.0.99:80", "to": "10.9.0.1:80"}
        for known, seven, eight in (
                ([("TCP", "10.9.0.1:80", entry)], entry, None),
                ([("TCP", "10.9.0.1:80", other)], None, other),
                ([("TCP", "10.9.0.1:80", gone)], gone, gone),
                ([("TCP", "10.9.0.3:80", entry)], None, None),
                ([("TCP", "10.9.0.1:80", entry), ("UDP", "10.9.0.1:80", other)],
                 entry, other),
                ([("TCP", "10.9.0.1:80", entry), ("UDP", "10.9.0.1:80", gone)],
                 None, gone)):
            self.assertEqual([lookup._entry(f"FWM {mark}", known, core)
                              for mark in (7, 8)], [seven, eight])
        words = lookup.render({"client": "198.51.100.7:1", "services": [
            {"service": "FWM 7", "slot": 1, "phase": "stable", "old_server": None,
             "candidate_server": None, "entry": {**entry, "state": "UDP",
                                                 "expires_s": 1}}]})
        self.assertIn("by its entry to 10.9.0.1:80\n", words)

    def test_persistence_comes_before_the_slot(self):
        client = (ipaddress.ip_address("10.1.0.2"), 40000)
        six = (ipaddress.ip_address("fd01::2"), 40000)
        line = "{} {} 0000 {} {} {} 0050 NONE 9\n"
        mark = line.format("IP", "0A010000", "00000007", "0000", "0A02000B")
        for name, who, conns, quiesces, want in (
                ("FWM 7", client, mark, 0, "10.2.0.11:80"),
                ("FWM 7", client, mark.replace("0A010000", "0A010002"), 0, ""),
                ("FWM 7", client, mark.replace("7 0000", "8 0000"), 0, ""),
                ("FWM 7", client, mark.replace("0B", "0E"), 0, "10.2.0.14:80"),
                ("FWM 7", client, mark.replace("0B", "0E"), 1, ""),
                ("FWM 7", client, mark.replace("0B", "99"), 0, ""),
                ("FWM 8", client, mark, 0, None),
                ("TCP 10.9.0.3:80", client, line.format(
                    "TCP", "0A010002", "0A090003", "0050", "0A02000B"), 0,
                 "10.2.0.11:80"),
                ("TCP 10.9.0.3:80", client, self.CONNS[80:], 0, ""),
                ("TCP [fd09::1]:80", six, line.format(
                    "TCP", *(str(ipaddress.ip_address(a).exploded) for a in (
                        "fd01::", "fd09::1")), "0050", ipaddress.ip_address(
                            "fd02::b").exploded), 0, "[fd02::b]:80")):
            with mock.patch.object(lookup.module, "quiesces", lambda: quiesces), \
                    self.subTest(conns):
                self.assertEqual(lookup._remembered(
                    name, who, servers.parse(self.MARKS, ""), "head\n" + conns),
                    want)
        for remembered, words in (("10.2.0.11:80", "10.2.0.11:80 for a new "
                                   "connection, by persistence"),
                                  ("", "10.0.0.1:80 for a new connection, by its "
                                   "slot; all later")):
            self.assertIn(f"-> {words}", lookup.render({
                "client": "198.51.100.7:1", "services": [
                    {"service": "TCP 10.9.0.3:80", "slot": 1, "phase": "stable",
                     "old_server": None, "candidate_server": "10.0.0.1:80",
                     "entry": None, "persistent": remembered}]}))

    def test_older_module(self):
        with mock.patch.object(lookup, "read_services",
                               lambda names: proc.parse(NOW)), \
                mock.patch.object(lookup, "PROC_LOOKUP", "/nonexistent"):
            status, _, err = run("lookup", "10.1.0.2:40000")
        self.assertEqual(status, EXIT_FAILED)
        self.assertIn("the loaded module is older than this mhsstat", err)


class ReadProc(unittest.TestCase):
    def test_recorded_text(self):
        those = {proc.name_of(s): s for s in proc.parse(NOW)}
        self.assertEqual(sorted(those), [
            "FWM 7", "TCP 10.9.0.1:80", "TCP [fd09::1]:80",
            "UDP 10.9.0.1:53"])
        one = those["TCP 10.9.0.1:80"]
        self.assertEqual(one["state"], "transition")
        self.assertEqual(one["table_size"], 65521)
        self.assertEqual(one["stable_slots"] + one["hold_slots"] +
                         one["pin_slots"], 65521)
        self.assertRegex(one["candidate_print"], "^[0-9a-f]{16}$")

    def test_order_of_columns_does_not_matter(self):
        self.assertEqual(proc.parse(TURNED), [
            dict(reversed(s.items())) for s in proc.parse(NOW)])

    def test_older_module_lacks_fields(self):
        for service in proc.parse(OLDER):
            self.assertNotIn("stable_ms", service)
            self.assertIn("entries", service)
        self.assertIn("FWM 7", text.show(proc.parse(OLDER)))
        self.assertNotIn("ipvs_mhs_stable_seconds",
                         prometheus.render(proc.parse(OLDER)))

    def test_time_left_of_an_older_module(self):
        service = next(s for s in proc.parse(OLDER)
                       if s["state"] == "transition")
        self.assertEqual(proc.left_ms(service), service["next_merge_ms"])

    def test_least_columns(self):
        least = columns(NOW, lambda name: name in ("Prot", "Address:Port",
                                                   "State"))
        for service in proc.parse(least):
            text.show([service])
            watch.block(service, {})
            prometheus.render([service])

    def test_newer_module_has_more(self):
        self.assertEqual([s["pkt_moved"] for s in proc.parse(NEWER)],
                         [1, 2, 3, 4])

    def test_no_service(self):
        self.assertEqual(proc.parse(NOW.splitlines()[0] + "\n"), [])

    def test_malformed_text_is_refused(self):
        head, first = NOW.splitlines()[:2]
        for broken, words in (
                ("", "no column 'Prot'"),
                ("\n", "no column 'Prot'"),
                ("hello world\n", "no column 'Prot'"),
                (head.replace("State ", ""), "no column 'State'"),
                (f"{head}\n{first.rsplit(' ', 1)[0]}\n", "line 2 has"),
                (f"{head}\n{first}\n{first} 1\n", "line 3 has"),
                (f"{head}\n\n", "line 2 has 0 fields"),
                (f"{head}\n" + first.replace(" 65521 ", " -1 ", 1),
                 "'-1' is no number"),
                (f"{head}\n" + first.replace(" 65521 ", " ٣ ", 1),
                 "is no number"),
                (f"{head}\n" + first.replace("TCP", "TPC"), "no protocol"),
                (f"{head}\n" + first.replace(":80", ":80000"),
                 "no address and port"),
                (f"{head}\n" + first.replace("10.9.0.1:80", "x:80"),
                 "no address and port")):
            with self.subTest(words=words):
                with self.assertRaisesRegex(ToolError, re.escape(words)):
                    proc.parse(broken)


class ReadServers(unittest.TestCase):
    # The kernel's answer for a server of GUE at 10.2.0.13:80, weight 4, -x 60 -y 40;
    # 20 connections, 300 packets, 2 and 30 a second
    SERVER = {1: "0a02000d" + 24 * "0", 2: "0050", 3: 2, 4: 4, 5: 60, 6: 40, 7: 7,
              8: 1, 11: "0200", 13: "01", 14: "1770", 15: "0100", 12: {
                  1: "1400000000000000", 2: "2c01000000000000",
                  6: "0200000000000000", 7: "1e00000000000000"}}

    @classmethod
    def packed(cls, those):
        """Attributes; a number is 32 bits wide, in this little-endian test."""
        return b"".join(netlink.attribute(kind, bytes.fromhex(
            value) if isinstance(value, str) else cls.packed(value) if isinstance(
                value, dict) else struct.pack("<I", value))
            for kind, value in those.items())

    def test_what_the_kernel_says_is_what_ipvsadm_was_told(self):
        its = netlink.attributes(self.packed(self.SERVER))
        server = servers._server(("-t", "10.9.0.1:80"), its)
        self.assertEqual(" ".join(server.editing(4)), "ipvsadm -e -t 10.9.0.1:80 -r "
                         "10.2.0.13:80 -i -w 4 --tun-type gue --tun-port 6000 "
                         "--tun-csum -x 60 -y 40")
        self.assertEqual((server.active, server.inactive, server.counts),
                         (7, 1, (20, 300, 2, 30, 0)))
        mark = {1: "0a00", 5: 7, 6: "6d687300", 7: "09000000ffffffff", 8: 300, 9: 64}
        four = {1: "0200", 2: "0600", 3: "0a090001" + 24 * "0", 4: "0050",
                6: "6d687300", 7: "12000000ffffffff", 8: 0, 9: "ffffffff"}
        for those, want in (
                (mark, "FWM 7 mhs -6 -p 300 -M 64 -b flag-1"),
                ({**mark, 1: "0200", 9: "ffffff00"},
                 "FWM 7 mhs -p 300 -M 255.255.255.0 -b flag-1"),
                (four, "TCP 10.9.0.1:80 mhs -b flag-2"),
                ({**four, 7: "04000000ffffffff", 11: "73697000"},
                 "TCP 10.9.0.1:80 mhs --pe sip -o")):
            one = servers._service(netlink.attributes(self.packed(those)))
            self.assertEqual(" ".join((one.name, one.scheduler, *one.options)), want)
            self.assertEqual(one.persistent, " -p " in want)
        # and the question for one service is in the same words
        [asked] = servers._asked("TCP 10.9.0.1:80")
        self.assertEqual(asked, self.packed({n: four[n] for n in (1, 2, 3, 4)}))
        self.assertEqual(len(servers._asked("FWM 7")), 2)

    def test_a_server_keeps_what_its_line_says(self):
        line = "-a -f 7 -6 -r [fd02::b]:0 -i -w 1 --tun-type gre --tun-csum -x 5 -y 3"
        [[one]] = servers.parse(f"-A -f 7 -6 -s mhs\n{line}\n", "x").values()
        [server] = one.servers
        self.assertEqual(" ".join(["-a", *server.editing(1)[2:]]), line)
        self.assertEqual(" ".join(server.editing(0, False)[2:]), line.replace(
            "-w 1", "-w 0").replace(" -x 5 -y 3", "").replace("-a ", ""))
        self.assertEqual(server.tunnel, "gre")

    def test_nothing(self):
        self.assertEqual(servers.parse("", "x"), {})

    def test_malformed_text_is_refused(self):
        saved = "-A -t 10.9.0.1:80 -s mhs\n"
        for broken, words in (
                ("hello\n", "line 1"),
                ("-A -t\n", "line 1"),
                (saved + "-a -t 10.9.0.2:80 -r 10.2.0.1:80 -g -w 1\n",
                 "line 2: no -A of TCP 10.9.0.2:80"),
                (saved + "-a -t 10.9.0.1:80 -g -w 1\n", "line 2"),
                (saved + "-a -t 10.9.0.1:80 -r 10.2.0.1 -g -w -1\n",
                 "'-1' is no number"),
                (saved + "-C\n", "line 2"),
                (saved + "-a 'x\n", "line 2")):
            with self.subTest(text=broken):
                with self.assertRaisesRegex(ToolError, re.escape(words)):
                    servers.parse(broken, "x")


class Metrics(unittest.TestCase):
    def test_page_is_read_by_another_parser(self):
        for source in (NOW, OLDER, NEWER):
            page = prometheus.render(proc.parse(source))
            families = list(text_string_to_metric_families(page))
            samples = {(s.name, tuple(sorted(s.labels.items()))): s.value
                       for f in families for s in f.samples}
            self.assertEqual(len(samples), sum(len(f.samples)
                                               for f in families))
            self.assertEqual(samples["ipvs_mhs_slots", (
                ("local_address", "10.9.0.1"), ("local_port", "53"),
                ("phase", "stable"), ("proto", "UDP"), ("protocol", "UDP"),
                ("service", "10.9.0.1:53"))], 65521)
            self.assertEqual({f.type for f in families}, {"counter", "gauge"})

    def test_labels_join_with_node_exporter_s(self):
        """Those of its node_ipvs_backend_connections_active."""
        page = prometheus.render(proc.parse(NOW))
        for labels in (
                'proto="TCP",local_address="fd09::1",local_port="80",',
                'proto="FWM",local_address="",local_port="0",'
                'local_mark="00000007",'):
            self.assertIn(f"\nipvs_mhs_servers{{{labels}", page)

    def test_zeros_are_left_out_where_no_alarm_asks_for_them(self):
        idle = prometheus.render(proc.parse(altered(
            NOW, "TCP 10.9.0.1:80", **{c: 0 for c in (
                "Servers", "Capped", "Entries", "PktStateless", "Pin")})))
        values = {}
        for line in idle.splitlines():
            if 'proto="TCP",local_address="10' in line:
                values.setdefault(line.split("{")[0], []).append(line.split()[-1])
        zeros = {name for name, those in values.items() if "0" in those}
        self.assertEqual(zeros, {
            "ipvs_mhs_servers", "ipvs_mhs_unsettled_packets_total",
            "ipvs_mhs_capped_total", "ipvs_mhs_no_memory_total",
            "ipvs_mhs_state"})
        self.assertNotIn("ipvs_mhs_entries", values)

    def test_units_are_seconds(self):
        service = next(s for s in proc.parse(NOW)
                       if s["state"] == "transition")
        page = prometheus.render([service])
        value = re.search(r"^ipvs_mhs_stable_seconds{.*} (.*)$", page, re.M)
        self.assertAlmostEqual(float(value[1]), service["stable_ms"] / 1000)

    def test_a_service_that_is_made_stateful(self):
        row = "TCP 10.9.0.1:80"
        labels = '{proto="TCP",local_address="10.9.0.1",local_port="80",' \
            'protocol="TCP",service="10.9.0.1:80"}'
        page = prometheus.render(proc.parse(
            altered(NOW, row, Stateful=1, StatefulMs=61500)))
        self.assertIn(f"\nipvs_mhs_stateful{labels} 1\n", page)
        self.assertIn(f"\nipvs_mhs_stateful_seconds{labels} 61.5\n", page)
        control = prometheus.render(proc.parse(NOW))
        self.assertNotIn("ipvs_mhs_stateful", control)

    def test_tables_are_told_apart_by_what_they_hash(self):
        for source, labels in ((NOW, {"0"}), (OLDER, {None})):
            families = text_string_to_metric_families(
                prometheus.render(proc.parse(source)))
            self.assertEqual(labels, {
                s.labels.get("address_only") for f in families
                for s in f.samples if s.name == "ipvs_mhs_table_info"})

    def test_module_is_there_or_not(self):
        for services, value in ((None, 0), ([], 1), (proc.parse(NOW), 1)):
            samples = [s for f in text_string_to_metric_families(
                prometheus.render(services)) for s in f.samples]
            self.assertEqual([s.value for s in samples
                              if s.name == "ipvs_mhs_up"], [value])
            self.assertEqual(len(samples) > 1, bool(services))

    def test_unit_writes_where_debian_reads_and_without_the_module(self):
        unit = (EXAMPLES / "mhsstat-prometheus.service").read_text()
        command = re.search(r"(?m)^ExecStart=/usr/sbin/(mhsstat .*)", unit)[1]
        page = (TOP / "Documentation/man/mhsstat.8").read_text()
        self.assertIn(f"\n{command}\n", page)
        self.assertIn(".It Pa " + command.split()[-1], page)
        # the old file would stay
        self.assertNotIn("Condition", unit)
        self.assertIn(f"SuccessExitStatus={EXIT_PROBLEM}\n", unit)

    def test_two_services_of_one_mark(self):
        head, *lines = NOW.splitlines()
        mark = next(line for line in lines if line.startswith("FWM"))
        page = prometheus.render(proc.parse("\n".join([head, mark, mark])))
        series = [line.rsplit(" ", 1)[0] for line in page.splitlines()
                  if line[0] != "#"]
        self.assertEqual(len(series), len(set(series)))

    def test_dashboard_names_metrics_there_are(self):
        board = json.loads((EXAMPLES / "grafana-dashboard.json").read_text())
        names = set(re.findall(r"\bipvs_mhs_\w+", json.dumps(board)))
        self.assertGreater(len(names), 8)
        self.assertEqual(names - set(prometheus.NAMES), set())
        ids = [panel["id"] for panel in board["panels"]]
        self.assertEqual(len(ids), len(set(ids)))


class Texts(unittest.TestCase):
    def test_bar_shows_every_phase_and_has_one_length(self):
        for slots in ((65521, 0, 0), (65520, 1, 0), (1, 1, 65519),
                      (30000, 5521, 30000), (0, 0, 65521)):
            service = dict(zip(("stable_slots", "hold_slots", "pin_slots"),
                               slots), table_size=65521)
            bar = text.bar(service)
            self.assertEqual(len(bar), 40)
            for n, sign in zip(slots, "#=-"):
                self.assertEqual(n > 0, sign in bar)

    def test_rates(self):
        before = {"packets_old": 10, "new_entries": 1}
        self.assertEqual(
            watch.rates(before, {"packets_old": 30, "new_entries": 1}, 2),
            {"packets_old": 10, "new_entries": 0})
        # made anew in between
        self.assertEqual(
            watch.rates(before, {"packets_old": 9, "new_entries": 2}, 2), {})
        self.assertEqual(watch.rates(None, before, 2), {})


class Lane(Files):
    """The lane: its share, what it left to the stack, and why."""

    def frames(self, **values):
        return lane.parse("".join(
            f"{name} {values.get(name, n)}\n"
            for name, n in map(str.split, LANE.splitlines())))

    def test_share_of_a_service(self):
        table = text.show(proc.parse(NOW)).splitlines()
        self.assertTrue(table[0].endswith("  LANE"))
        # 100 of 116 + 24 + 15 + 45
        self.assertTrue(table[1].endswith(" 50.0 %"), table[1])
        self.assertTrue(table[2].endswith(" 0.0 %"), table[2])
        for line in text.show(proc.parse(OLDER)).splitlines()[1:]:
            self.assertTrue(line.endswith(" -"), line)

    def test_nothing_is_said_of_a_lane_that_saw_nothing(self):
        idle = lane.parse(re.sub(r"\d+", "0", LANE))
        for frames in (None, {}, idle):
            self.assertEqual(lane.show(frames), [])
            self.assertNotIn("lane:", text.show(proc.parse(NOW), frames))
        self.assertIn("\nlane: ", text.show(proc.parse(NOW), self.frames()))
        self.assertEqual(lane.show({**idle, "forwarded": 1}),
                         ["lane: forwarded 1, left to the stack 0"])

    def test_every_reason_of_the_module_has_a_meaning(self):
        source = (TOP / "net/netfilter/ipvs/ip_vs_mhs_api.c").read_text()
        array = re.search(r"api_names\[\] = {(.*?)};", source, re.S)[1]
        names = [name.lower() for name in re.findall(r'"(\w+)"', array)]
        self.assertEqual(names, [lane.FORWARDED, *lane.MEANINGS])
        self.assertEqual(list(lane.parse(LANE)), names)

    def test_malformed_text_is_refused(self):
        for broken in ("Forwarded\n", "Forwarded x\n", "Forwarded 1 2\n",
                       "Forwarded -1\n", "\n", "Forwarded ٣\n"):
            with self.subTest(text=broken):
                with self.assertRaisesRegex(ToolError, "line 1 is no name"):
                    lane.parse(broken)

    def test_metrics(self):
        page = prometheus.render(proc.parse(NOW), self.frames())
        samples = {(s.name, tuple(sorted(s.labels.items()))): s.value
                   for f in text_string_to_metric_families(page)
                   for s in f.samples}
        self.assertIn(("ipvs_mhs_lane_packets_total", 100),
                      [(name, n) for (name, _), n in samples.items()])
        up = {labels[0][1]: n for (name, labels), n in samples.items()
              if name == "ipvs_mhs_lane_up_total"}
        self.assertEqual(list(up), list(lane.MEANINGS))
        self.assertEqual((up["decision"], up["mtu"]), (31, 0))
        idle = {name: 0 for name in self.frames()}
        unused = proc.parse(altered(NOW, "TCP 10.9.0.1:80", PktLane=0))
        for services, frames, there in (
                (proc.parse(OLDER), None, False), (unused, idle, False),
                (unused, None, False), (unused, {**idle, "off": 1}, True),
                (proc.parse(NOW), None, True)):
            self.assertEqual("ipvs_mhs_lane" in prometheus.render(
                services, frames), there)

    def test_the_command(self):
        for name, path in (("mhs", RECORDED / "ip_vs_mhs"),
                           ("lane", RECORDED / "ip_vs_mhs_lane")):
            where, attribute = {"mhs": (proc, "PROC_MHS"),
                                "lane": (lane, "PROC_LANE")}[name]
            self.addCleanup(setattr, where, attribute, getattr(where,
                                                               attribute))
            setattr(where, attribute, str(path))
        patch = mock.patch("mhsstat_lib.servers.of_this_host", lambda: {})
        patch.start()
        self.addCleanup(patch.stop)
        self.assertIn("\n  decision   31  (", run("show")[1])
        self.assertEqual(json.loads(run("show", "--json")[1])["lane"]["entry"],
                         15)
        self.assertIn('ipvs_mhs_lane_up_total{reason="entry"} 15\n',
                      run("show", "--prometheus")[1])
        # a copy of one file says nothing of the other
        status, out, _ = run("show", "--json", "--file", proc.PROC_MHS)
        self.assertEqual((status, json.loads(out).get("lane")), (0, None))
        # a module without a lane
        lane.PROC_LANE = proc.PROC_MHS + "_none"
        status, out, err = run("show")
        self.assertEqual((status, err, "lane:" in out), (0, "", False))


class CommandLine(Files):
    def test_bad_arguments(self):
        for argv, words in (
                (("fly",), "no command 'fly': there are"),
                (("w",), "is wait, watch"), (("shoow",), "did you mean show?"),
                (("show", "--jsn"), "did you mean --json?"),
                (("show", "-t", "10.0.0.1"), "no address and port"),
                (("show", "-t", "fd00::1:80"), "no address and port"),
                (("show", "-f", "x"), "no firewall mark"),
                (("show", "--json", "--prometheus"), "not allowed"),
                (("wait", "--timeout", "soon"), "no duration"),
                (("watch", "--count", "0"), "no number"),
                (("plan", "--table-size", "1000"), "from 251"),
                (("compare",), "required")):
            with self.subTest(argv=argv):
                status, _, err = run(*argv)
                self.assertEqual(status, 2)
                self.assertIn(words, err)

    def test_other_spellings_of_a_command(self):
        path = self.file("proc", NOW)
        whole = run("show", "--file", path, "-j")[1]
        self.assertEqual(json.loads(whole)["format"], 1)
        with mock.patch.object(proc, "PROC_MHS", path):
            self.assertEqual(run()[1], run("show")[1])
            self.assertEqual(run("-t", "10.9.0.1:80")[:2],
                             run("show", "-t", "10.9.0.1:80")[:2])
        self.assertEqual(run("sh", "--file", path), run("show", "--file", path))
        self.assertEqual(run("help", "check"), run("check", "--help"))
        self.assertEqual(run("-V"), run("--version"))

    def test_arguments_that_do_not_go_together(self):
        for argv, words in (
                (("wait", "--settled", "--gone"), "does not go with"),
                (("wait", "--settled", "--drained", "10.0.0.1:80"),
                 "does not go with"),
                (("wait", "--servers", "2"), "go with --settled"),
                (("wait", "--equal-to", "x"), "go with --settled"),
                (("wait", "--settled", "--servers", "0"), "no number above"),
                (("wait", "--stateful", "--settled"), "does not go with"),
                (("wait", "--stateful", "--gone"), "does not go with"),
                (("wait", "--stateful", "--drained", "10.0.0.1:80"),
                 "does not go with"),
                (("plan",), "say which service")):
            with self.subTest(argv=argv):
                status, _, err = run(*argv)
                self.assertEqual(status, 2)
                self.assertIn(words, err)

    def test_a_program_may_print_what_is_no_text(self):
        self.assertEqual(tool_run(["printf", r"a\374b"]).stdout, "a\ufffdb")

    def test_output_that_cannot_be_written(self):
        path = self.file("proc", NOW)
        for argv in (("show", "--file", path), ("show", "--help"),
                     ("show", "--json", "--file", path)):
            with open("/dev/full", "w", encoding="ascii") as full:
                done = subprocess.run([TOP / "scripts/mhsstat", *argv],
                                      stdout=full, stderr=subprocess.PIPE,
                                      text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (
                125, "mhsstat: [Errno 28] No space left on device\n"))
        for shut, status in ((">&-", 0), ("| true", 0)):
            done = subprocess.run(
                f"{TOP}/scripts/mhsstat show --file {path} {shut}", shell=True,
                capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (status, ""))

    def test_the_man_page_knows_every_option(self):
        page = (TOP / "Documentation/man/mhsstat.8").read_text()
        for command in ("show", "watch", "wait", "drain", "plan", "check",
                        "lookup", "compare"):
            for action in options.parser().commands[command]._actions[1:]:
                words = [word.replace("-", "", 1) for word in action.option_strings]
                self.assertTrue(not words or any(re.search(
                    rf"(Fl | [|,] ){re.escape(word)}\b", page) for word in words), words)

    def test_a_shell_completes(self):
        """An interactive bash, with stand-ins for what it asks this host."""
        stand_ins = self.directory / "ipvsadm"
        stand_ins.write_text("#!/bin/sh\necho '  -> 10.2.0.11:80 Route 1 0 0'\n"
                             "echo '  -> [fd02::b]:80 Route 1 0 0'\n")
        stand_ins.with_name("awk").write_text(
            "#!/bin/sh\n[ $# -eq 1 ] && exec /usr/bin/awk \"$@\"\n"
            "echo 10.9.0.1:80; echo '[fd09::1]:443'\n")
        stand_ins.with_name("mhsstat").write_text(
            f'#!/bin/sh\nexec {TOP}/scripts/mhsstat "$@"\n')
        for name in "ipvsadm", "awk", "mhsstat":
            (self.directory / name).chmod(0o755)
        self.file("seen.json", "")
        for line, want in (
                ("che", "check "), ("wait --dra", "wait --drained "),
                ("show -t 10.9", "show -t 10.9.0.1:80 "),
                ("show -t [fd09::1]:4", "show -t [fd09::1]:443 "),
                ("drain 10.2.0.11:", "drain 10.2.0.11:80 "),
                ("plan -t 10.9.0.1:80 --weight 10.2", "plan -t 10.9.0.1:80 --weight "
                 "10.2.0.11:80 "),
                ("check --ignore ker", "check --ignore kernel-mh "),
                ("compare see", "compare seen.json "),
                ("compare --j", "compare --json "), ("check --moon", "check --moon")):
            leader, follower = pty.openpty()
            with subprocess.Popen(
                    ["bash", "--norc", "--noprofile", "-i"], stdin=follower,
                    stdout=follower, stderr=follower, cwd=self.directory,
                    start_new_session=True, env={
                        "PATH": f"{self.directory}:{os.environ['PATH']}", "PS1": "",
                        "TERM": "dumb", "HISTFILE": ""}) as shell, \
                    open(leader, "r+b", buffering=0) as screen:
                os.close(follower)
                screen.write(f"source {TOP}/scripts/mhsstat.bash-completion; mhsstat() "
                             "{ echo \"<$*>\"; exit; }\n"
                             f"mhsstat {line}\t'|'\n".encode())
                text = b""
                with contextlib.suppress(OSError):
                    while part := screen.read(4096):
                        text += part
            with self.subTest(line):
                self.assertIn(f"<{want}|>", text.decode().replace("\r", ""))
                self.assertEqual(shell.returncode, 0)

    def test_show_of_a_copy(self):
        path = self.file("proc", NOW)
        self.assertEqual(run("show", "--file", path)[1].count("\n"), 5)
        document = json.loads(run("show", "--json", "--file", path)[1])
        self.assertEqual(len(document["services"]), 4)
        status, _, err = run("show", "--file", path, "-t", "10.9.0.1:81")
        self.assertEqual(status, 125)
        self.assertIn("there is no service TCP 10.9.0.1:81", err)

    def test_output_is_replaced_or_left(self):
        path = self.file("proc", NOW)
        target = self.directory / "out" / "mhs.prom"
        status, _, err = run("show", "--file", path, "--output", str(target))
        self.assertEqual(status, 125)
        self.assertIn(f"there is no directory {target.parent}: ", err)
        target.parent.mkdir()
        target.write_text("old")
        self.assertEqual(run("show", "--file", self.file("bad", "x"),
                             "--prometheus", "--output", str(target))[0], 125)
        self.assertEqual(target.read_text(), "old")
        self.assertEqual(run("show", "--file", path, "--prometheus",
                             "--output", str(target))[0], 0)
        self.assertEqual(target.read_text(),
                         prometheus.render(proc.parse(NOW)))
        self.assertEqual(list(target.parent.iterdir()), [target])
        self.assertEqual(target.stat().st_mode & 0o777, 0o644)


class Compare(Files):
    def director(self, **changes):
        service = {"protocol": "TCP", "address": "10.9.0.1:80",
                   "state": "stable", "servers": 2, "table_size": 65521,
                   "old_print": "a" * 16, "candidate_print": "a" * 16,
                   "address_only": 0, "second_chance": 0,
                   "real_servers": [{"server": "10.2.0.11:80", "weight": 1},
                                    {"server": "10.2.0.12:80", "weight": 1}]}
        parameters = {"hash_key_print": "k", "quic_ports": "443", "stay_ports": ""}
        settings = {"mhs/pin_ms": "0", "expire_nodest_conn": "0", "sync_ports": "1"}
        core = {"service": "TCP 10.9.0.1:80", "scheduler": "mhs",
                "options": "-b flag-1",
                "servers": {"10.2.0.11:80": "-g", "10.2.0.12:80": "-g -x 5 -y 3"}}
        other = {"service": "UDP 10.9.0.1:53", "scheduler": "wlc", "options": "",
                 "servers": {"10.2.0.11:53": "-m -w 1"}}
        for name, value in changes.items():
            next((group for group in (parameters, settings, core)
                  if name in group), service)[name] = value
        return {"format": 1, "parameters": parameters, "services": [service],
                "settings": settings, "ipvsadm": [core, other]}

    def lines(self, **changes):
        one = compare.Director("a", self.director())
        other = compare.Director("b", self.director(**changes))
        return list(compare.differences(one, other))

    def test_equal(self):
        self.assertEqual(self.lines(), [])

    def test_what_differs_is_said(self):
        real = self.director()["services"][0]["real_servers"]
        other = {"candidate_print": "b" * 16}
        for changes, words in (
                ({"real_servers": real[:1], **other},
                 "server 10.2.0.12:80 only in a"),
                ({"real_servers": [real[0], {**real[1], "weight": 3}], **other},
                 "server 10.2.0.12:80 has weight 1 in a, 3 in b"),
                ({"table_size": 251, **other}, "table_size 65521 in a, 251"),
                ({"hash_key_print": "l", **other},
                 "hash_key_print k in a, l in b"),
                ({"hash_key_print": None, **other},
                 "likely another hash_key"),
                ({"real_servers": None, **other}, "cannot be seen from this"),
                ({"address_only": 1}, "AddrOnly (flag-3) 0 in a, 1 in b"),
                ({"second_chance": 1}, "second chance (sysctl) 0 in a, 1 in b"),
                ({"quic_ports": "443,8443"}, "quic_ports 443 in a, 443,8443"),
                ({"stay_ports": "500"}, "stay_ports none in a, 500 in b"),
                ({"old_print": "c" * 16}, "older flows go by different"),
                ({"address": "10.9.0.2:80"}, "TCP 10.9.0.1:80: only in a"),
                ({"mhs/pin_ms": "9"}, "net.ipv4.vs.mhs.pin_ms 0 in a, 9 in b: in "
                 "a change of servers connections that move"),
                ({"expire_nodest_conn": "1"}, "conn 0 in a, 1 in b: one of them "
                 "cuts"),
                ({"scheduler": "mh", "address": "10.9.0.2:80"},
                 "scheduler mhs in a, mh in b: connections"),
                ({"options": "-b flag-1 -p 300"}, "-b flag-1 in a, -b flag-1 -p "
                 "300 in b: one of them sends a client's connections"),
                ({"options": "-b flag-2"}, "flag-1 sends new connections"),
                ({"servers": {"10.2.0.11:80": "-i --tun-type ipip",
                              "10.2.0.12:80": "-g -x 5 -y 3"}}, "server "
                 "10.2.0.11:80 -g in a, -i --tun-type ipip in b: a server that"),
                ({"servers": {"10.2.0.11:80": "-g", "10.2.0.12:80": "-g"}},
                 "above the threshold"),
                ({"servers": {"10.2.0.11:80": "-g",
                              "10.2.0.12:80": "-g -x 5 -y 3 --new"}},
                 "does not know")):
            with self.subTest(words=words):
                lines = self.lines(**changes)
                self.assertTrue(any(words in line for line in lines), lines)
                self.assertEqual("cause" in "".join(lines),
                                 "cause" in words or "likely" in words or
                                 "cannot be seen" in words)
        self.assertNotIn("cause", "".join(self.lines(
            hash_key_print="l", quic_ports="9", real_servers=None, **other)))
        for gone in (lambda d: (d["services"].pop(), d["ipvsadm"].pop(0)),
                     lambda d: d["ipvsadm"].pop(), lambda d: d["ipvsadm"][1].update(
                servers={}), lambda d: d["settings"].pop("mhs/pin_ms")):
            document = self.director()
            gone(document)
            one, other = (compare.Director(n, d) for n, d in (
                ("a", self.director()), ("b", document)))
            line, = compare.differences(one, other)
            self.assertNotIn("only in b", line)
            self.assertEqual(len([*compare.differences(other, one)]), 1)

    def test_every_sysctl_has_its_words(self):
        texts = "".join((TOP / "Documentation" / page).read_text()
                        for page in ("man/ip_vs_mhs.7",))
        for name in compare._SETTINGS:
            if name.startswith("mhs/"):
                self.assertIn(name[4:], texts)

    def test_alike_says_what_it_rests_on(self):
        same = self.file("a", self.director())
        self.assertRegex(run("compare", same, same)[1], r"alike by .* \([0-9]+ s ago\).*; "
                         "not compared: addresses, routes, firewalls, marks")
        own = self.file("own", {**self.director(), "namespace": "n"})
        status, out, _ = run("compare", own, own)
        self.assertEqual((status, f"{own} and {own} are one" in out), (1, True))
        # mhs by its other name
        self.assertEqual(run("compare", same, self.file("b", self.director(
            scheduler="mh")))[0], 0)
        status, out, _ = run("compare", same, self.file("b", self.director(
            sync_ports="2")))
        self.assertEqual((status, "note: net.ipv4.vs.sync_ports 1 in" in out,
                          "breaks nothing\n2 directors forward alike" in out),
                         (0, True, True))
        status, out, _ = run("compare", same, self.file("b", self.director(
            entries=3)))
        self.assertIn("but for connections that have an entry (3 in", out)
        self.assertEqual(status, 0)
        for state in "transition", "settling", "rebuilding":
            status, out, _ = run("compare", same, self.file("b", self.director(
                state=state)))
            self.assertEqual((status, f"is not stable ({state})" in out), (1, True))
        for age_s, words in ((500, "8 min 2"), (-50, "0 s ago"), (700, "is of 11 min 4"),
                             (-700, "from now: the clocks"),
                             (70000, "19 h 26 min ago"), (-70000, "19 h 26 min from")):
            document = {**self.director(), "time": time.time() - age_s}
            got, out, _ = run("compare", same, self.file("b", document))
            self.assertEqual((got, words in out), (abs(age_s) > 600, True), out)
        for lost, words in (("settings", "sysctls"), ("ipvsadm", "methods"),
                            ("parameters", "of the module")):
            document = self.director()
            del document[lost]
            status, out, _ = run("compare", same, self.file("b", document))
            self.assertIn("perhaps not alike: " + (
                "" if lost == "parameters" else words), out)
            self.assertEqual((status, words in out, "forward alike" in out),
                             (1, True, False))

    def test_status(self):
        same = self.file("a", self.director())
        other = self.file("b", self.director(candidate_print="b" * 16))
        self.assertEqual(run("compare", same, same)[0], 0)
        self.assertEqual(run("compare", same, other)[0], 1)
        self.assertEqual(run("compare", same, same, other)[0], 1)
        with mock.patch.object(compare, "read_services"), mock.patch.object(
                compare, "as_json", lambda services, live: self.director()):
            self.assertEqual([run("compare", f)[0] for f in (same, other)], [0, 1])
        for file, status in (same, 0), (other, 1):
            got, out, _ = run("compare", "-j", same, file)
            found = json.loads(out)
            self.assertEqual((got, found["alike"], bool(found["differences"])),
                             (status, not status, bool(status)))
        self.assertEqual(run("compare", "-", "-")[0], 2)
        half = self.director(real_servers=[{"server": "10.2.0.11:80"}])
        for content, words in (
                ("{", "Expecting"), ("{}", "no 'services'"), ("[]", "no column"),
                ("{\"services\": [1]}", "a value of another type"),
                ("{\"services\": [{}]}", "no 'protocol'"),
                (half, "no 'weight'"), ("", "x is empty"), ("\n", "is empty")):
            status, _, err = run("compare", same, self.file("x", content))
            self.assertEqual(status, 125, content)
            self.assertIn(words, err)
            self.assertNotIn("Error", err)

    def test_nothing_to_compare_is_no_agreement(self):
        nothing = {"format": 1, "director": "lb1", "services": []}
        one, other = (self.file(name, {**nothing, "director": name})
                      for name in ("lb1", "lb2"))
        self.assertEqual(run("compare", one, other)[:2], (
            1, "there is no service of mhs to compare: lb1, lb2\n"))
        status, out, _ = run("compare", one, self.file("a", {
            **self.director(), "director": "lb3"}))
        self.assertEqual((status, out.split("\n")[0]), (
            1, "TCP 10.9.0.1:80: only in lb3: lb1 does not serve it by mhs"))


class Plan(Files):
    @classmethod
    def setUpClass(cls):
        cls.build = tempfile.TemporaryDirectory()
        subprocess.run(["make", "-s", "-C", TOP / "tools/net/ipvs_mhs",
                        f"O={cls.build.name}",
                        "CFLAGS=-O1 -fsanitize=address,undefined "
                        "-fno-sanitize-recover=all"], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.build.cleanup()

    def plan(self, *argv, status=0):
        os.environ["ASAN_OPTIONS"] = "detect_leaks=0"
        got, out, err = run("plan", "--from", str(RECORDED / "saved"),
                            "--table-program", f"{self.build.name}/mhs_table",
                            "--table-size", "65521",     # as recorded
                            "--json", *argv)
        self.assertEqual(got, status, err)
        return json.loads(out) if got < 2 else err

    def test_no_change_moves_nothing(self):
        result = self.plan("-t", "[fd09::1]:80")
        self.assertEqual(result["slots_moved"], 0)
        self.assertEqual(result["print_before"], result["print_after"])

    def test_print_is_the_kernels(self):
        """That of the recorded kernel: 65,521 slots, the default key."""
        for service in proc.parse(NOW):
            option = {"TCP": "-t", "UDP": "-u", "FWM": "-f"}[
                service["protocol"]]
            result = self.plan(option, service["address"])
            self.assertEqual(result["print_before"],
                             service["candidate_print"])
            control = self.plan(option, service["address"], "--hash-key",
                                "0" * 32)
            # a table of one server looks alike with any key, its print not
            self.assertNotEqual(control["print_before"],
                                service["candidate_print"])

    def test_shares_follow_weights(self):
        result = self.plan("-t", "10.9.0.1:80", "--weight", "10.2.0.14:80=5",
                           "--delete", "10.2.0.11:80", "--add",
                           "10.2.0.99:80=3", "--weight", "10.2.0.12:80=0")
        shares = {s["server"]: s["slots_after"] for s in result["servers"]}
        self.assertEqual(sum(shares.values()), 65521)
        self.assertEqual(shares["10.2.0.11:80"], 0)
        self.assertEqual(shares["10.2.0.12:80"], 0)
        self.assertAlmostEqual(shares["10.2.0.14:80"] /
                               shares["10.2.0.99:80"], 5 / 3, 2)
        self.assertGreaterEqual(result["slots_moved"],
                                result["slots_moved_at_least"])
        result["servers"] *= 3
        self.assertIn("more server(s)", plan.render(result, text.Screen(60, 13)))

    def test_the_least_table_that_keeps_shares(self):
        self.assertIn("table_size=251 ", plan._remedy(251 * plan._UNEVEN))

    def test_a_service_that_is_there_twice(self):
        path = Path(self.build.name) / "twice"
        path.write_text((RECORDED / "saved").read_text(encoding="ascii") * 2, "ascii")
        self.assertIn(f"{path}: there is more than one service TCP 10.9.0.1:80", self.plan(
            "-t", "10.9.0.1:80", "--from", str(path), status=125))

    def test_last_server_goes(self):
        result = self.plan("-f", "7", "--delete", "10.2.0.11:0", status=1)
        self.assertEqual(result["slots_moved"], 65521)
        self.assertTrue(result["refused"])
        self.assertEqual(result["print_after"], "0" * 16)
        self.assertEqual(result["slots_moved_at_least"], 65521)
        self.assertEqual([*result["servers"][0].values()],
                         ["10.2.0.11:0", 3, None, 65521, 0, 65521, 0])
        for room in text.Screen(), text.Screen(60, 20):
            words = plan.render(result, room)
            self.assertIn("65521 of 65521 slots move", words)
            self.assertEqual("SHARE" in words, room.width is None)

    def test_too_small_a_table(self):
        result = self.plan("-f", "7", "--table-size", "251", "--weight",
                           "10.2.0.11:0=2147483647", "--add", "10.2.0.12:0")
        self.assertEqual(result["servers_without_slot"], 1)
        self.assertIn("10.2.0.12:0", "".join(result["warnings"]))
        self.assertIn("no table_size would do", "".join(result["warnings"]))
        for size, words in (251, "with table_size=2039 on all"), (2039, ""):
            result = self.plan("-f", "7", "--table-size", str(size), "--add",
                               "10.2.0.12:0=1", "--weight", "10.2.0.11:0=100")
            self.assertIn(words, " ".join(result["warnings"]) or words)
            self.assertEqual(bool(words), bool(result["warnings"]))

    def test_a_file_may_be_of_another_host(self):
        told = {"hold_ms": "7", "table_size": "251"}    # the key is for root
        with mock.patch("mhsstat_lib.module.parameter",
                        lambda name, where="": told.get(name)):
            self.assertEqual(self.plan("-t", "10.9.0.1:80")["hold_ms"], 60_000)
            with self.assertRaisesRegex(ToolError, "for root"):
                plan._key(SimpleNamespace(hash_key_file=None, hash_key=None,
                                          from_file=None))

    def test_order_of_servers_does_not_matter(self):
        lines = (RECORDED / "saved").read_text().splitlines()
        mine = [line for line in lines if "-t 10.9.0.1:80" in line]
        path = self.file("turned", "\n".join(mine[:1] + mine[:0:-1]))
        self.assertEqual(self.plan("-t", "10.9.0.1:80")["print_before"],
                         self.plan("-t", "10.9.0.1:80", "--from", path)
                         ["print_before"])

    def test_another_set_by_file(self):
        result = self.plan("-t", "10.9.0.1:80", "--to",
                           str(RECORDED / "saved"))
        self.assertEqual(result["slots_moved"], 0)

    def test_bad_changes(self):
        for status, cases in ((125, (
                (("--add", "10.2.0.11:80"), "has that server"),
                (("--delete", "10.2.0.98:80"), "no such server"),
                (("--weight", "10.2.0.98:80=1"), "no such server"),
                (("--from", "/nonexistent"), "No such file"),
                (("--table-program", "/nonexistent"), "make tools"),
                (("--table-program", "/bin/false"), "/bin/false failed (1)"))), (2, (
                (("--weight", "10.2.0.11:80"), "give a weight"),
                (("--weight", "10.2.0.11:80=-1"), "give a weight"),
                (("--weight", "10.2.0.11:80=2147483648"), "give a weight"),
                (("--add", "nonsense"), "no address and port"),
                (("--hash-key", "12"), "32 hexadecimal digits"),
                (("-t", "10.9.0.1:81"), "only one")))):
            for argv, words in cases:
                with self.subTest(argv=argv):
                    self.assertIn(words, self.plan("-t", "10.9.0.1:80", *argv,
                                                   status=status))

    def test_another_table_in_the_kernel_is_said(self):
        warned = []
        self.assertEqual(plan.verdict({"kernel_print": "a",
                                       "print_before": "b"}, warned.append), 1)
        self.assertIn("another table", warned[0])
        self.assertEqual([plan.verdict({"kernel_print": "b", "refused": refused,
                                        "print_before": "b"}, warned.append)
                          for refused in (False, True)], [0, 1])


class Options(unittest.TestCase):
    def test_durations(self):
        def seconds(word):
            return options.parser().parse_args(
                ["wait", "--timeout", word]).timeout_s
        self.assertEqual([seconds(w) for w in ("500ms", "10s", "5m", "15min",
                                               "1h", "1d", "2")],
                         [0.5, 10, 300, 900, 3600, 86400, 2])


class PlanInWords(unittest.TestCase):
    """By the rules of the module, at a director whose times are not those by
    default."""

    def words(self, name="TCP 10.9.0.1:80", share="25.0 %", after=("b",),
              kernel=None, host=(), **service):
        one = servers.Service(name, "mhs", service.get("options", ()))
        for letter, weight in (("a", service.get("weight", 1)), ("b", 1)):
            server = servers.Server((), ipaddress.ip_address(
                f"10.0.0.{ord(letter) - 96}"), service.get("port", 80), weight,
                service.get("method", "Route"), active=service.get("entries", 0),
                inactive=0)
            one.servers.append(server)
        left = [s for s in one.servers if str(s.address) in
                {f"10.0.0.{ord(letter) - 96}" for letter in after}]
        director = rules.Host(False)
        director.here = True
        director.hold_ms = 30_000
        for field, value in dict(host).items():
            setattr(director, field, value)
        return plan.Words(one, left, director, kernel).summary(share)

    def test_times_are_those_of_the_host(self):
        self.assertIn("kept for hold and pin time, 15 min 30 s, then cut",
                      self.words())
        self.assertIn("kept for hold and pin time, 40 s",
                      self.words(host={"pin_ms": 20_000, "hold_ms": 99_000}))
        self.assertIn("send nothing in the pin time, 20 s",
                      self.words(host={"pin_ms": 20_000}))

    def test_with_the_second_chance_the_servers_keep_flows(self):
        ours = {"second_chance": ("TCP 10.9.0.1:80",)}
        words = self.words(host=ours, kernel={"state": "stable"}, weight=0)
        self.assertIn("go on while these servers live", words)
        self.assertNotIn("then cut", words)
        self.assertIn("then cut", self.words(
            host={"second_chance": ("TCP 10.9.0.9:80",)}))

    def test_with_connection_ids_no_entry_says_who_has_flows(self):
        words = self.words(host={"quic_ids": ("TCP 10.9.0.1:80",)},
                           kernel={"state": "stable"}, weight=0)
        self.assertIn("then cut", words)

    def test_no_key_is_told(self):
        key = "0123456789abcdef" * 2
        told = snapshot.module.key_print(key)
        for word, said in (("=" + key, "=" + told), ("=0:" + key, "=0:" + told),
                           ("=6:", "=6:"), ("", "")):
            with mock.patch("mhsstat_lib.module.parameter", lambda name, _:
                            f"192.0.2.1:443{word} [fd09::1]:443"), \
                    mock.patch("os.listdir", lambda _: ["quic_ids"]):
                self.assertEqual(snapshot._settings()["mhs/quic_ids"],
                                 f"192.0.2.1:443{said} [fd09::1]:443")

    def test_the_sysctl_names_services(self):
        texts = {"second_chance": "10.9.0.1:80 [FD09:0::1]:443",
                 "quic_ids": f"10.9.0.1:443 [FD09::1]:443={'0' * 32}"}
        with mock.patch("mhsstat_lib.module.parameter",
                        lambda name, directory="": texts.get(name)):
            self.assertEqual(rules.Host(True).second_chance,
                             ("TCP 10.9.0.1:80", "TCP [fd09::1]:443"))
            self.assertEqual(rules.Host(True).quic_ids,
                             ("UDP 10.9.0.1:443", "UDP [fd09::1]:443"))

    def test_weight_0_does_not_mean_drained(self):
        stable = {"state": "stable"}
        for kernel, entries, host, living in (
                (stable, 9, (), True), ({"state": "transition"}, 0, (), True),
                (None, 0, (), True), (stable, 0, {"pin_ms": 1000}, True),
                ({**stable, "pinned_ms": 0}, 0, (), True),
                ({**stable, "pinned_ms": 2000}, 0, (), True),
                ({**stable, "pinned_ms": 900_000}, 0, (), False),
                (stable, 0, (), False)):
            with self.subTest(kernel=kernel, entries=entries, host=host):
                self.assertEqual(
                    "then cut" in self.words(share=None, kernel=kernel, weight=0,
                                             entries=entries, host=host),
                    living)
        self.assertIn("then cut", self.words(kernel=stable))

    def test_fates(self):
        udp, quic = "UDP 10.9.0.1:53", "UDP 10.9.0.1:443"
        expires, stay = {"expires": True}, {"stay_ports": (53,)}
        ours = {"second_chance": ("TCP 10.9.0.1:80",)}
        for arguments, words in (
                ({"host": expires}, "10.0.0.1:80 are cut at once"),
                ({"method": "Masq"}, "10.0.0.1:80 hang at once"),
                ({"method": "Masq", "host": expires}, "are cut at once"),
                ({"host": {**ours, **expires}}, "10.0.0.1:80 are cut at once (net"),
                ({"method": "Masq", "host": ours}, "10.0.0.1:80 hang at once"),
                ({"method": "Masq", "host": ours}, "each has an entry"),
                ({"host": ours, "port": 81}, "then cut"),
                ({"options": ("-p", "300"), "host": ours}, "then cut"),
                ({"name": udp}, "10.0.0.1:80 go to another server at once"),
                ({"name": udp, "host": expires}, "go to another server at once"),
                ({"name": udp, "method": "Masq"}, "hang at once"),
                ({"name": udp, "options": ("-p", "300")}, "then cut"),
                ({"name": udp, "kernel": {"stateful": 1, "stateful_ms": 0}},
                 "then cut"),
                ({"name": quic}, "kept for hold and pin time, 5 min 30 s"),
                ({"name": udp, "host": stay}, "go to another server at once, as "
                 "plain UDP: 'mhsstat drain' deletes"),
                ({"name": udp, "options": ("-o",)}, "packets go to another")):
            with self.subTest(arguments):
                self.assertIn(words, self.words(**arguments))

    def test_those_that_stay(self):
        udp, both = "UDP 10.9.0.1:53", ("a", "b")
        plain = "plain UDP, which is not QUIC, goes to its new server after " \
                "the hold time, 30 s"
        stay, other = {"stay_ports": (53,)}, {"stay_ports": (5353,)}
        for arguments, words, said in (
                ({}, "; living connections do not break, unless they send nothing "
                 "in the pin time, 15 min 0 s, or have no entry then, because "
                 "max_entries or another limit is reached.", True),
                ({"share": None}, "; living connections do not break.", True),
                ({"kernel": {"limits": {"a": 9, "max_entries": 4}}}, "there is room "
                 "for only 4 entries (net.ipv4.vs.mhs.max_entries).", True),
                ({"kernel": {"state": "settling"}}, "the service settles", True),
                ({"kernel": {"state": "settling"}}, "not break", False),
                ({"host": {"second_chance": ("TCP 10.9.0.1:80",)}}, "not break",
                 False),
                ({"method": "Masq"}, "each has an entry", True),
                ({"name": udp}, plain, True),
                ({"name": udp}, "do not break", False),
                ({"name": udp, "share": None}, "do not break", True),
                ({"name": udp, "method": "Masq"}, "do not break", True),
                ({"name": udp, "kernel": {"stateful": 1, "stateful_ms": 5}},
                 plain, True),
                ({"name": udp, "kernel": {"stateful": 1, "stateful_ms": 0}},
                 plain, False),
                ({"name": "UDP 10.9.0.1:443"}, plain, False),
                ({"name": udp, "host": stay}, "that send something in the hold "
                 "time, 30 s, stay", True),
                ({"name": udp, "host": stay, "options": ("-o",)}, "stay", False),
                ({"name": udp, "host": other}, plain, True),
                ({"name": "FWM 7"}, "plain UDP of the mark", True),
                ({"name": "FWM 7"}, "stay_ports", False),
                ({"name": "FWM 7", "host": stay}, "(that of stay_ports only if",
                 True),
                ({"name": "FWM 7"}, "at once from a server that is deleted", True),
                ({"name": udp, "host": stay, "method": "Masq"}, "do not break", True),
                ({"options": ("-p", "300")}, "by persistence", True)):
            with self.subTest(arguments):
                (self.assertIn if said else self.assertNotIn)(
                    words, self.words(after=both, **arguments))

    def test_what_the_kernel_tells(self):
        limit = {"max_entries": "100", "max_total_entries": "107"}
        for size, name, source, want in (
                (None, "TCP 10.9.0.1:80", NOW, {"max_entries": 85,
                                                "max_total_entries": 85}),
                (65521, "TCP 10.9.0.1:80", NOW, {"max_entries": 85,
                                                 "max_total_entries": 85}),
                (251, "TCP 10.9.0.1:80", NOW, None),
                (None, "TCP 10.9.0.9:80", NOW, None),
                (None, "FWM 7", NOW + NOW.splitlines()[3] + "\n", None)):
            with mock.patch.object(plan, "read_text", lambda _, t=source: t), \
                    mock.patch("mhsstat_lib.module.parameter",
                               lambda name, where="": limit.get(name)), \
                    mock.patch("mhsstat_lib.stateful.parameter",
                               lambda name, where="": limit.get(name)):
                found = plan._kernel(SimpleNamespace(
                    from_file=None, service=[name], table_size=size))
                full = plan.room({"protocol": "TCP", "entries": 101}, [])
            self.assertEqual(full, {"max_entries": 0, "max_total_entries": 107})
            self.assertEqual(found and found["limits"], want)

    def test_what_drained_rests_on(self):
        there = {}
        for port in 80, 81, 82:
            one = servers.Service(f"TCP 10.9.0.1:{port}", "mhs")
            one.servers = [servers.Server((), *wait.told(f"10.2.0.{n}:80"), weight)
                           for n, weight in ((11, port % 2), (12, 1))]
            there[one.name] = [one]
        with mock.patch("mhsstat_lib.servers.of_this_host", lambda: there):
            said = wait.rests_on(["TCP 10.9.0.1:80"], ["10.2.0.11:80"])
        self.assertTrue(said.endswith("; not asked, on the same host: TCP 10.9.0.1:81: "
                                      "10.2.0.11:80, TCP 10.9.0.1:82: 10.2.0.11:80"), said)

    def test_only_mhs_has_plans(self):
        for scheduler, by_names, there, ours in (
                ("mhs", None, False, True), ("rr", None, False, False),
                ("mh", None, True, False), ("mh", "mhs,mh", True, True),
                ("mh", "mhs,mh", False, False)):
            for here in (True, False):
                one = servers.Service("TCP 10.9.0.1:80" if there else
                                      "TCP 10.9.0.9:80", scheduler)
                with mock.patch("mhsstat_lib.module.parameter",
                                lambda name, n=by_names: n), \
                        mock.patch.object(plan, "read_text", lambda _: NOW), \
                        self.subTest(scheduler, here=here):
                    if ours or (not here and by_names):
                        plan._refuse_others(one, here)
                    else:
                        with self.assertRaisesRegex(ToolError, "for mhs"):
                            plan._refuse_others(one, here)

    def test_the_times_of_this_host(self):
        none = {"expires": False, "quiesces": False, "hold_ms": 60_000, "pin_ms": 0}
        for name, value, field, want in (
                ("expire_nodest_conn", "1", "expires", True),
                ("expire_quiescent_template", "1", "quiesces", True),
                ("expire_quiescent_template", "0", "quiesces", False),
                ("hold_ms", "7", "hold_ms", 7), ("pin_ms", "7", "pin_ms", 7),
                ("pin_ms", "x", "pin_ms", 0)):
            with mock.patch("mhsstat_lib.module.parameter", lambda n, where="":
                            value if n == name else None), \
                    mock.patch("mhsstat_lib.netlink.timeouts", side_effect=ToolError):
                host = rules.Host(True)
            self.assertEqual({f: getattr(host, f) for f in none},
                             {**none, field: want})

    def test_nobody_left(self):
        self.assertIn("New connections are refused", self.words(after=()))
        self.assertNotIn("go to another server than", self.words(after=()))

    def test_weights_that_cannot_be_kept(self):
        def rows(*pairs):
            return [{"server": f"s{i}", "weight_after": weight,
                     "slots_after": slots}
                    for i, (weight, slots) in enumerate(pairs)]
        self.assertEqual(plan.uneven(rows((1, 50), (1, 50), (0, 0)), 100), [])
        lines = plan.uneven(rows((100, 99), (1, 1), (0, 0), (1, 0)), 100)
        self.assertRegex(lines[0], "s3 should have 1.0 slots and has 0, 100 % ")
        self.assertIn("1 server(s) get no slot and no new connection: s3",
                      lines[1])
        self.assertEqual(plan.uneven([], 100), [])


# a second service with the server of another, in front of it or behind
SHARED = """-A -u 10.9.0.2:80 -s {scheduler}
-a -u 10.9.0.2:80 -r 10.2.0.13:80 -g -w {weight} # {entries} 1
"""


class Kernel:
    """What it says, as recorded and with a service more; behind a # are
    connections."""

    SERVER = "10.2.0.13:80"

    def __init__(self, test, first=False, **fields):
        saved = (RECORDED / "saved").read_text().replace(
            "10.2.0.13:80 -g -w 0", "10.2.0.13:80 -i -w 0 --tun-type gue --tun-port "
            "7 -x 60 -y 40")
        more = SHARED.format(**{"weight": 0, "entries": 0, "scheduler": "mhs",
                                **fields})
        self.saved = more + saved if first else saved + more
        now = altered(NOW, "TCP 10.9.0.1:80", State="stable")
        row = next(line for line in now.splitlines() if "10.9.0.1:53" in line)
        self.mhs = now + row.replace("10.9.0.1:53", "10.9.0.2:80") + "\n"
        self.edits, self.becomes = [], 0
        self.host = rules.Host(False)

        def read(names=()):
            return proc.parse(self.mhs, names=names)
        for what, value in (("wait.read_services", read),
                            ("drain.read_services", read),
                            ("wait.Host", lambda here: self.host),
                            ("drain.Host", lambda here: self.host),
                            ("drain.run", self.run),
                            ("servers.of_this_host", self.core)):
            patch = mock.patch("mhsstat_lib." + what, value)
            patch.start()
            test.addCleanup(patch.stop)

    def shared(self):
        """The second service has no flow left."""
        self.saved = self.saved.replace("# 0 1", "")

    def core(self, names=()):
        return {name: parts for name, parts in self.of(self.saved).items()
                if not names or name in names}

    @staticmethod
    def of(saved):
        """The services of such a text."""
        lines = [line.partition("#") for line in saved.splitlines()]
        found = servers.parse("\n".join(line for line, _, _ in lines), "test")
        told = iter([counts for line, _, counts in lines if line[:2] == "-a"])
        for one in (one for parts in found.values() for one in parts):
            one.servers = [s._replace(**dict(zip(("active", "inactive"), map(
                int, next(told).split() or (0, 0))))) for s in one.servers]
        return found

    def run(self, argv):
        self.edits.append(" ".join(argv[1:]))
        if argv[1] == "-e":
            self.saved = re.sub(f"(-r {self.SERVER} .*-w) [0-9]+",
                                rf"\1 {self.becomes}", self.saved)


class Drained(unittest.TestCase):
    def wait(self, *argv):
        return run("wait", "-i", "10ms", "--timeout", "20ms", "--drained",
                   Kernel.SERVER, *argv)

    def test_only_servers_with_the_second_chance_know(self):
        for names, status in (((), 0), (("TCP 10.9.0.1:80",), 125)):
            kernel = Kernel(self)
            kernel.shared()
            kernel.host.second_chance = names
            got, _, err = self.wait("-t", "10.9.0.1:80")
            self.assertEqual((got, "only the server knows" in err),
                             (status, bool(names)), err)

    def test_the_first_look_refuses_and_says_how_long(self):
        kernel = Kernel(self)
        kernel.host.second_chance = ("TCP 10.9.0.1:80",)
        self.assertEqual(self.wait()[0], 125)   # though a connection is left
        row = "UDP 10.9.0.2:80"
        for state, ms, said in (("rebuilding", 8000, 0), ("transition", 7000, 7000)):
            kernel.mhs = altered(kernel.mhs, row, State=state, StableMs=ms)
            options = SimpleNamespace(drained=[], gone=False, service=[row])
            self.assertEqual(wait.Pending().look(options)[1], said)

    def test_all_services_are_asked_in_any_order(self):
        for first in (False, True):
            for fields, status, words in (
                    ({}, 124, "10.2.0.13:80: 1 connection(s) left in 2"),
                    ({"entries": 11}, 124, "12 connection(s) left in 2"),
                    ({"weight": 1}, 125, "UDP 10.9.0.2:80: server "
                     "10.2.0.13:80 has weight 1: set it to 0 first")):
                Kernel(self, first, **fields)
                with self.subTest(first=first, fields=fields):
                    got, out, err = self.wait()
                    self.assertEqual((got, out), (status, ""))
                    self.assertIn(words, err)
                    self.assertNotIn("at most", err)    # nothing has an end to tell
            got, out, _ = self.wait("-t", "10.9.0.1:80")
            self.assertEqual((got, out), (
                0, "10.2.0.13:80 is drained: ipvsadm -d -t 10.9.0.1:80 -r "
                "10.2.0.13:80\n"))

    def test_commands_of_each_service(self):
        kernel = Kernel(self)
        self.assertIn("1 connection(s) left\n", self.wait("-u", "10.9.0.2:80")[2])
        kernel.shared()
        self.assertEqual(self.wait()[:2], (
            0, "10.2.0.13:80 is drained: ipvsadm -d -t 10.9.0.1:80 -r "
            "10.2.0.13:80; ipvsadm -d -u 10.9.0.2:80 -r 10.2.0.13:80\n"))
        kernel.mhs = altered(kernel.mhs, "UDP 10.9.0.2:80", State="transition")
        self.assertEqual(self.wait()[0], 124)
        # of no concern here, as it has not that server
        kernel.mhs = altered(altered(kernel.mhs, "UDP 10.9.0.2:80",
                                     State="stable"), "FWM 7",
                             State="transition")
        self.assertEqual(self.wait()[0], 0)

    def test_what_cannot_be_seen_is_said(self):
        kernel = Kernel(self)
        self.assertNotIn("pin_ms", self.wait("-t", "10.9.0.1:80")[2])
        kernel.host.pin_ms = 60_000
        status, out, err = self.wait("-t", "10.9.0.1:80")
        self.assertEqual((status, out, err.count("is not seen: run")), (125, "", 1))
        self.assertIn("longer than 1 min 0 s", err)
        kernel.saved = kernel.saved.replace("10.9.0.1:80 -s mhs",
                                            "10.9.0.1:80 -s mhs -p 9")
        self.assertIn("expire_quiescent_template",
                      self.wait("-t", "10.9.0.1:80")[2])

    def test_times_that_were_others_are_said(self):
        for pinned, status, words in (
                (900_000, 0, "a half-closed one of TCP for 2 min 0 s"),
                (None, 0, ""), (899_999, 125, "a pin time of 15 min 0 s"),
                (2000, 125, "merged with a pin time of 2 s"),
                (0, 125, "has changed at once")):
            kernel = Kernel(self)
            mhs = altered(kernel.mhs, "TCP 10.9.0.1:80", State="stable")
            kernel.mhs = mhs if pinned is None else "\n".join(
                f"{line} {'PinnedMs' if n == 0 else pinned}"
                for n, line in enumerate(mhs.splitlines()))
            with self.subTest(pinned):
                got, out, err = self.wait("-t", "10.9.0.1:80")
                self.assertEqual((got, bool(out)), (status, status == 0))
                self.assertIn(words, err)
                drain = run("drain", "-t", "10.9.0.1:80", Kernel.SERVER)
                self.assertEqual(drain[0], status)
                self.assertEqual([e for e in kernel.edits if status], [])
            # no server has the weight 0: nothing rests on it yet
            kernel.saved = kernel.saved.replace("-i -w 0", "-i -w 1")
            self.assertEqual(kernel.host.merged(
                kernel.core()["TCP 10.9.0.1:80"][0],
                {"pinned_ms": 0}), None)

    def test_times_that_change_meanwhile(self):
        kernel = Kernel(self)

        def meanwhile(_):
            kernel.saved = kernel.saved.replace("# 0 1", "")
            kernel.host.pin_ms = 1000
        kernel.saved = kernel.saved.replace("-x 60 -y 40", "-x 60 -y 40 # 0 1")
        with mock.patch.object(Clock, "sleep", lambda _, s: meanwhile(s)):
            got, out, err = self.wait("-t", "10.9.0.1:80")
        self.assertEqual((got, out), (125, ""), err)

    def test_persistence_of_another_scheduler(self):
        for persistent, status in (("", 0), (" -p 300", 125)):
            kernel = Kernel(self)
            kernel.saved += f"-A -t 10.9.0.3:80 -s wlc{persistent}\n" \
                            "-a -t 10.9.0.3:80 -r 10.2.0.99:80 -g -w 0\n"
            self.assertEqual(run("wait", "--drained", "10.2.0.99:80")[0], status)

    def test_a_weight_that_is_0_after_the_state_was_read(self):
        kernel = Kernel(self)
        kernel.saved = kernel.saved.replace("-i -w 0", "-i -w 1")

        def read(names=()):
            kernel.saved = kernel.saved.replace("-i -w 1", "-i -w 0")
            return proc.parse(kernel.mhs, names=names)
        with mock.patch("mhsstat_lib.wait.read_services", read):
            self.assertEqual(self.wait("-t", "10.9.0.1:80")[:2], (125, ""))

    def test_no_such_server(self):
        Kernel(self)
        for argv, where in (((), "this network namespace"),
                            (("-t", "10.9.0.1:80"), "TCP 10.9.0.1:80")):
            got, _, err = run("wait", "--drained", "10.2.0.77:80", *argv)
            self.assertEqual(got, 125)
            self.assertIn(f"{where}: no server 10.2.0.77:80", err)


class Drain(unittest.TestCase):
    TCP = ("-t", "10.9.0.1:80", Kernel.SERVER)
    GONE = "-d -t 10.9.0.1:80 -r 10.2.0.13:80"
    ZERO = "-e -t 10.9.0.1:80 -r 10.2.0.13:80 -i -w 0 --tun-type gue --tun-port 7 " \
           "-x 60 -y 40"

    def drain(self, *argv, status=0):
        got, out, err = run("drain", "-i", "10ms", "--timeout", "20ms", *argv)
        self.assertEqual(got, status, err)
        return out + err

    def weighted(self, **fields):
        """With a weight, which the edit takes."""
        kernel = Kernel(self, **fields)
        kernel.saved = kernel.saved.replace("-i -w 0", "-i -w 4")
        return kernel

    def test_edits_keep_all_but_the_weight(self):
        kernel = self.weighted()
        self.assertIn("was drained and is deleted", self.drain(*self.TCP))
        self.assertEqual(kernel.edits, [self.ZERO, self.GONE])

    def test_dry_run(self):
        kernel = self.weighted()
        self.assertEqual(self.drain("--dry-run", *self.TCP),
                         f"ipvsadm {self.ZERO}\nmhsstat wait -t 10.9.0.1:80 --drained "
                         f"{Kernel.SERVER}\nipvsadm {self.GONE}\n")
        self.assertEqual(kernel.edits, [])

    def test_goes_on_where_it_was(self):
        kernel = self.weighted()
        kernel.mhs = altered(kernel.mhs, "TCP 10.9.0.1:80", State="transition")
        self.assertIn("same command again", self.drain(*self.TCP, status=124))
        self.assertEqual(kernel.edits, [self.ZERO])
        with mock.patch.object(Clock, "sleep", side_effect=KeyboardInterrupt):
            self.assertIn("same command again", self.drain(*self.TCP,
                                                           status=130))
        kernel = Kernel(self)       # its weight is 0
        self.drain(*self.TCP)
        self.assertEqual(kernel.edits, [self.GONE])

    def test_all_services(self):
        kernel = Kernel(self)
        kernel.shared()
        self.drain(Kernel.SERVER)
        self.assertEqual(kernel.edits, [
            self.GONE, "-d -u 10.9.0.2:80 -r 10.2.0.13:80"])

    def test_a_weight_that_somebody_gives_meanwhile(self):
        kernel = self.weighted()
        kernel.becomes = 3
        said = self.drain(*self.TCP, status=125)
        self.assertIn("has weight 3", said)
        self.assertIn("10.2.0.13:80 is not deleted, and its weight stays", said)
        self.assertEqual(kernel.edits, [self.ZERO])

    def test_a_mark_of_both_families(self):
        kernel = Kernel(self, first=True)
        kernel.saved += "-a -f 7 -r 10.2.0.12:0 -g -w 0\n"
        self.drain("-f", "7", "10.2.0.12:0")
        kernel.edits.clear()
        row = next(line for line in kernel.mhs.splitlines() if line.startswith("FWM 7 "))
        kernel.mhs = "\n".join(
            f"{line} {'PinnedMs' if n == 0 else 900_000}"
            for n, line in enumerate([*kernel.mhs.splitlines(), row]))
        self.drain("-f", "7", "10.2.0.12:0")
        kernel.edits.clear()
        kernel.mhs = kernel.mhs[:-7] + " 0"
        self.assertIn("nothing was changed: FWM 7: services of IPv4 and of IPv6",
                      self.drain("-f", "7", "10.2.0.12:0", status=125))
        self.assertEqual(kernel.edits, [])
        self.assertIn("give each a mark of its own", run(
            "wait", "-f", "7", "--drained", "10.2.0.12:0")[2])

    def test_what_is_unsafe_is_refused_and_nothing_changed(self):
        for server, host, saved, words in (
                ("10.2.0.13:80", {"pin_ms": 60_000}, (), "longer than 1 min"),
                ("10.2.0.13:80", {}, ("10.9.0.1:80 -s mhs",
                                      "10.9.0.1:80 -s mhs -p 9"),
                 "is persistent"),
                ("10.2.0.11:0", {}, (), "last server in service"),
                ("10.2.0.13:80", {}, (
                    "-A -f 7", "-A -t 10.9.0.3:80 -s wlc\n-a -t 10.9.0.3:80 "
                    "-r 10.2.0.13:80 -g -w 1\n-A -f 7"),
                 "by the scheduler wlc"),
                ("10.2.0.77:80", {}, (), "no server 10.2.0.77:80")):
            kernel = Kernel(self)
            for name, value in host.items():
                setattr(kernel.host, name, value)
            if saved:
                kernel.saved = kernel.saved.replace(*saved)
            with self.subTest(words):
                self.assertIn(words, self.drain(server, status=125))
                self.assertEqual(kernel.edits, [])
                if "no server" not in words:
                    self.assertIn("nothing was changed",
                                  self.drain(server, status=125))


class WithoutServer(unittest.TestCase):
    def test_only_settled_waits_for_one(self):
        from mhsstat_lib import wait
        self.addCleanup(setattr, wait, "read_services", wait.read_services)
        for state, listed, gone, plain, settled in (
                ("settling", 0, 0, 0, 124), ("settling", 1, 0, 124, 124),
                ("stable", 0, 0, 0, 124), ("stable", 1, 0, 0, 0),
                ("transition", 0, 1, 124, 124), ("transition", 1, 1, 124, 0)):
            kernel = altered(NOW, "FWM 7", State=state, Servers=listed,
                             Gone=gone)
            wait.read_services = lambda names=(), text=kernel: proc.parse(
                text, names=names)
            ask = ("wait", "-i", "10ms", "--timeout", "20ms", "-f", "7")
            with self.subTest(state=state, listed=listed, gone=gone):
                self.assertEqual([run(*ask, *more)[0] for more in
                                  ((), ("--gone",), ("--settled",))],
                                 [plain, plain, settled])
                self.assertEqual(run(*ask, "--settled")[2].count(
                    f"FWM 7: {state}, without a server"), int(not listed))
        # an older module does not tell how many there are
        older = columns(NOW, lambda name: name != "Servers")
        wait.read_services = lambda names=(): proc.parse(older)
        self.assertEqual(run(*ask, "--settled")[0], 0)


class Expected(Files):
    """wait --settled with --servers and --equal-to, with 10.9.0.1:80's servers."""

    def wait(self, *argv, **peer):
        kernel = Kernel(self)
        there = snapshot.as_json(proc.parse(kernel.mhs), live=True)
        there["namespace"], there["parameters"]["quic_ports"] = "there", "443"
        there.update(peer.pop("document", {}))
        for service in there["services"]:
            if service["address"] == "10.9.0.1:80":
                service.update(peer)
        file = self.file("peer", there)
        status, _, err = run("wait", "-i", "10ms", "--timeout", "20ms", "-t",
                             "10.9.0.1:80", "--settled", *argv,
                             *(["--equal-to", file] if peer else []))
        return status, err

    def test_servers(self):
        self.assertEqual(self.wait("--servers", "3")[0], 0)
        status, err = self.wait("--servers", "9")
        self.assertEqual(status, 124)
        self.assertIn(": 3 of 9 servers get new flows", err)

    def test_equal_to(self):
        status, err = self.wait(state="stable")
        self.assertRegex(err, r"said so [0-9]+ s ago; its connections .* \(22\) break")
        self.assertEqual(status, 0)
        with mock.patch.object(compare, "_OLD_S", -1):
            status, err = self.wait(state="stable")
        self.assertEqual((status, "run 'mhsstat show --json' there" in err), (125, True))
        status, err = self.wait(candidate_print="b" * 16)
        self.assertEqual(status, 124)
        self.assertIn("new flows go by different tables", err)
        self.assertNotIn("said so", err)
        for document, words in (
                ({"services": []}, "which services it has"), ({"settings": None}, "sysctls"),
                ({"namespace": snapshot.as_json([], live=True)["namespace"]},
                 "is this director itself")):
            status, err = self.wait(document=document, state="stable")
            self.assertEqual((status, words in err), (125, True), err)
        status, err = self.wait(address="10.9.0.7:80")
        self.assertIn("TCP 10.9.0.1:80: only in ", err)


class Stateful(Files):
    """wait --stateful, with a kernel that says one text after the other."""

    TCP, UDP, MARK = "TCP 10.9.0.1:80", "UDP 10.9.0.1:53", "FWM 7"
    FIELDS = {"Entries": 0, "Stateful": 1, "StatefulMs": 60000}

    def setUp(self):
        super().setUp()
        self.file("max_entries", "100\n")
        self.file("max_quic_entries", "50\n")
        self.addCleanup(setattr, stateful, "SYSCTLS", stateful.SYSCTLS)
        self.addCleanup(setattr, stateful, "read_services",
                        stateful.read_services)
        stateful.SYSCTLS = str(self.directory)
        self.director = rules.Host(False)
        here = mock.patch.object(stateful, "Host", lambda here: self.director)
        here.start()
        self.addCleanup(here.stop)

    def kernel(self, row=None, source=NOW, **values):
        """The text with all services about to be stateful, and @row so."""
        for line in source.splitlines()[1:]:
            source = altered(source, " ".join(line.split()[:2]), State="stable",
                             **self.FIELDS)
        return altered(source, row, **values) if row else source

    def wait(self, *texts, argv=(), meanwhile=None):
        """(status, standard error); the last text stays."""
        left = list(texts)

        def read_services(_):
            if meanwhile and len(left) == 1:
                meanwhile()
            return proc.parse(left.pop(0) if len(left) > 1 else left[0])
        stateful.read_services = read_services
        status, _, err = run("wait", "--stateful", "--interval", "10ms",
                             "--timeout", "100ms", *argv)
        return status, err

    def test_until_every_flow_has_an_entry(self):
        begun, over = self.kernel(), NOW
        for row in (self.TCP, self.UDP, self.MARK, "TCP [fd09::1]:80"):
            over = altered(over, row, Stateful=1)
        status, err = self.wait(begun, begun, over)
        self.assertEqual(status, 0)
        self.assertIn(f"{self.TCP}: 0 entries, at most 1 min 0 s until every "
                      "flow that lives has an entry", err)
        self.assertIn("mhsstat: every flow that lives has an entry\n", err)
        self.assertEqual(self.wait(over, argv=["--quiet"]), (0, ""))

    def test_not_in_time(self):
        status, err = self.wait(self.kernel(), argv=["--quiet"])
        self.assertEqual(status, 124)
        self.assertEqual(err, "mhsstat: not over after 1 s, at most 1 min 0 s "
                              "left\n")

    def test_only_those_named_count(self):
        one = self.kernel(self.TCP, StatefulMs=0)
        self.assertEqual(self.wait(one, argv=["-t", "10.9.0.1:80"])[0], 0)
        self.assertEqual(self.wait(one, argv=["-u", "10.9.0.1:53"])[0], 124)
        self.assertEqual(self.wait(one)[0], 124)

    def test_stateless_fails_at_once(self):
        for texts in ((NOW,), (self.kernel(), NOW)):
            status, err = self.wait(*texts)
            self.assertEqual(status, 125)
            self.assertIn("net.ipv4.vs.mhs.stateless is 1: ", err)
            self.assertIn("'sysctl -w net.ipv4.vs.mhs.stateless=0'", err)

    def test_the_second_chance_has_no_way_to_an_entry(self):
        one = proc.parse(self.kernel(self.TCP, StatefulMs=0))[0]
        self.assertEqual(stateful._pending({**one, "second_chance": 0}), "")
        with self.assertRaisesRegex(ToolError, "Asked .* stands still"):
            stateful._pending({**one, "second_chance": 1})

    def test_older_module(self):
        status, err = self.wait(OLDER)
        self.assertEqual(status, 125)
        self.assertIn("the loaded module is older than this mhsstat", err)

    def test_limit_that_is_reached(self):
        for row, limits in (
                (self.TCP, "net.ipv4.vs.mhs.max_entries (now 100): "),
                (self.UDP, "net.ipv4.vs.mhs.max_quic_entries (now 50): "),
                (self.MARK, "net.ipv4.vs.mhs.max_entries (now 100) or "
                            "net.ipv4.vs.mhs.max_quic_entries (now 50): ")):
            with self.subTest(row=row):
                status, err = self.wait(*(self.kernel(row, Capped=n)
                                          for n in (5, 5, 6, 9)))
                self.assertEqual(status, 124)
                self.assertEqual(re.findall(
                    "mhsstat: (.*) the number of entries has reached (.*?: )",
                    err), [(f"{row}:", limits)])

    def test_the_total_may_be_the_limit_that_is_reached(self):
        self.file("max_total_entries", "500\n")
        _, err = self.wait(self.kernel(), self.kernel(self.TCP, Capped=1))
        self.assertIn("max_entries (now 100) or "
                      "net.ipv4.vs.mhs.max_total_entries (now 500): ", err)

    def test_control_a_limit_that_was_reached_before(self):
        counts = self.kernel(self.TCP, Capped=5, NoMemory=5)
        for texts in ((counts, counts), (counts, self.kernel())):
            self.assertNotRegex(self.wait(*texts)[1], "reached|memory")

    def test_two_services_of_one_mark(self):
        second = self.kernel(self.MARK, Capped=7).splitlines()[3] + "\n"
        for grown, said in ((5, 0), (6, 1)):
            texts = [self.kernel(self.MARK, Capped=n) + second
                     for n in (5, grown)]
            self.assertEqual(self.wait(*texts)[1].count("reached"), said)

    def test_memory_that_ran_out(self):
        status, err = self.wait(self.kernel(), *(
            self.kernel(self.UDP, NoMemory=n) for n in (1, 2, 3)))
        self.assertEqual(status, 124)
        self.assertEqual(err.count(f"{self.UDP}: the kernel had no memory"), 1)
        self.assertEqual(err.count("no memory"), 1)

    def test_nearly_full_before_it_begins(self):
        for row, entries, limit in ((self.TCP, 91, "max_entries (now 100)"),
                                    (self.UDP, 46, "max_quic_entries (now 50)"),
                                    (self.TCP, 90, None), (self.UDP, 45, None),
                                    (self.TCP, 46, None)):
            with self.subTest(row=row, entries=entries):
                full = self.kernel(row, Entries=entries)
                said = re.findall(
                    r"mhsstat: (.*): the service has (\d+) entries, more than "
                    r"90 % of net\.ipv4\.vs\.mhs\.(.*?):",
                    self.wait(full)[1])
                self.assertEqual(said, [(row, str(entries), limit)]
                                 if limit else [])
                # what grows later is said when the limit is reached
                self.assertNotIn("90 %", self.wait(self.kernel(), full)[1])

    def test_deleted_servers_are_waited_for(self):
        ask = ["-t", "10.9.0.1:80"]
        for state, left in (("transition", 120000), ("stable", 0)):
            held, over = (self.kernel(self.TCP, State=state, StatefulMs=0,
                                      StableMs=left, Gone=n) for n in (2, 0))
            status, err = self.wait(held, argv=ask)
            self.assertEqual(status, 124)
            self.assertIn(f"{self.TCP}: 2 deleted server(s) still held, whose "
                          "flows get no entries\n", err)
            self.assertEqual("at most 2 min 0 s left" in err, left > 0)
            self.assertEqual(self.wait(held, held, over, argv=ask)[0], 0)

    def test_pin_time_that_is_short(self):
        ask = ["-t", "10.9.0.1:80", "-u", "10.9.0.1:53", "--quiet"]
        over = altered(self.kernel(self.TCP, StatefulMs=0), self.UDP, StatefulMs=0)

        def set_to(pin):
            self.director.pin_ms = pin
        for pin, names in ((0, None), (120000, f"{self.TCP}, {self.UDP}"),
                           (300000, self.TCP), (900000, None)):
            # from the beginning, and from before the end only
            for texts, first in (((over,), pin), ((self.kernel(), over), 0)):
                self.director.pin_ms = first
                status, err = self.wait(*texts, argv=ask,
                                        meanwhile=lambda p=pin: set_to(p))
                self.assertEqual(status, 125 if names else 0)
                if names:
                    self.assertIn(f"{names}: net.ipv4.vs.mhs.pin_ms is {pin}, and"
                                  " a flow that is silent for longer", err)
