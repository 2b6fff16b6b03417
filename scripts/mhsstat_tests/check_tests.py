# SPDX-License-Identifier: GPL-2.0-only
"""mhsstat check: each finding comes with its cause, and with nothing else."""

import contextlib
import copy
import io
import json
import re
import sys
import unittest
from pathlib import Path
from unittest import mock

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

from mhsstat_lib import (arrive, check, cli, facts, netlink, rules, servers,  # noqa: E402
                         snapshot)

NAME = "TCP 192.0.2.1:80"
SAVED = """\
-A -t 192.0.2.1:80 -s mhs
-a -t 192.0.2.1:80 -r 10.0.0.11:80 -g -w 1
-a -t 192.0.2.1:80 -r 10.0.0.12:80 -i -w 1 --tun-type ipip
"""
ROUTES = ["10.0.0.11", "10.0.0.12"]
ROUTED = """\
10.0.0.11 dev eth0 src 10.0.0.1 uid 0 \\    cache
10.0.0.12 via 10.0.0.2 dev eth0 src 10.0.0.1 uid 0 \\    cache expires 595sec mtu 9000
"""
LINKS = """\
1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN
2: eth0@if3: <BROADCAST,MULTICAST,UP> mtu 1500 qdisc noqueue state UP
"""
NEIGHBOURS = """\
10.0.0.11 dev eth0 lladdr 02:00:00:00:00:0b REACHABLE
10.0.0.2 dev eth0 lladdr 02:00:00:00:00:02 STALE
"""


class Known(facts.Facts):
    """A director on which there is nothing to say."""

    def __init__(self, saved=SAVED):
        self.services = [{
            "protocol": "TCP", "address": "192.0.2.1:80", "state": "stable",
            "servers": 2, "servers_without_slot": 0, "capped": 0,
            "no_memory": 0, "entries": 10}]
        core(self, saved)
        self.backup = False
        self.host = rules.Host(False)
        self.sysctls = {"max_entries": "1000",
                        "max_quic_entries": "1000", "stateless": "1",
                        "lane": "0", "ingress": "",
                        "conntrack": "0", "drop_entry": "0", "drop_packet": "0",
                        "secure_tcp": "0"}
        self.virtual = {"192.0.2.1": facts.Route("local", None, "lo", None)}
        counts(self, (90, 900), (4, 4))
        self.came, self.owners, self.chains = {NAME: (9, 9), "TCP 192.0.2.2:80": (
            9, 9)}, {}, []
        self.sorry, self.forwards = set(), {4: 1, 6: 1}
        self.names, self.taken = [], []
        self.ha_suspend = False
        self.btf = True
        self.lane = {"forwarded": 9}
        self.lane_loaded = False
        self.links = facts.links(LINKS)
        self.neighbours = facts.neighbours(NEIGHBOURS)
        self.routes = facts.routes(ROUTES, ROUTED, "")


def kinds(known, **options):
    return [f.kind for f in check.findings(known, **options)]


def service(known, **fields):
    known.services[0].update(fields)


def of(known, names):
    """The same of these services alone."""
    if names:
        known.services = snapshot.select(known.services, names)
    return known


def sysctl(known, **values):
    known.sysctls.update(values)


def doors(known, text):
    """The lane is on, and ip says this of the devices."""
    sysctl(known, lane="1")
    known.links.update(facts.links(text))


def core(known, saved):
    known.core = facts.merged(servers.parse(saved, "test"))


def counts(known, *those):
    """Connections and packets of the servers, and a second, and packets out."""
    servers_of = getattr(known.core.get(NAME), "servers", [])
    for i, four in enumerate(those[:len(servers_of)]):
        servers_of[i] = servers_of[i]._replace(statistics=b"".join(
            netlink.attribute(kind, n.to_bytes(8, sys.byteorder))
            for kind, n in zip((1, 2, 6, 7, 3), (*four, *(0, 0, 9)[len(four) - 5:]))))


def chance(known, *names):
    known.host.second_chance = names


MARK = SAVED + "-A -f 7 -s wlc\n"
OTHER = SAVED + "-A -t 192.0.2.9:80 -s wlc\n"
# kind: what makes it the one finding
CAUSES = {
    "persistence": lambda k: core(k, SAVED.replace("mhs", "mhs -p 300")),
    "thresholds": lambda k: core(k, SAVED.replace("-g -w 1", "-g -w 1 -x 5 -y 3")),
    "masquerading": lambda k: core(k, SAVED.replace(" -g ", " -m ")),
    "marks": lambda k: core(k, MARK),
    "conntrack": lambda k: sysctl(k, conntrack="1"),
    "stateless": lambda k: sysctl(k, stateless="0"),
    "names": lambda k: k.names.append("mh"),
    "names-taken": lambda k: (k.names.append("mh"), k.taken.append("mh")),
    "ha-suspend": lambda k: setattr(k, "ha_suspend", True),
    "second-chance": lambda k: chance(k, "TCP 192.0.2.9:80"),
    "chance-silent": lambda k: (chance(k, NAME), service(
        k, silent_servers=["10.0.0.11:80"])),
    "chance-entries": lambda k: chance(k, NAME),
    "capped": lambda k: service(k, capped=3),
    "no-memory": lambda k: service(k, no_memory=3),
    "quic-port": lambda k: (
        service(k, protocol="UDP"), core(k, SAVED.replace("-t", "-u")),
        setattr(k.host, "quic_ports", (80,))),
    "plain-udp": lambda k: (
        service(k, protocol="UDP"), core(k, SAVED.replace("-t", "-u"))),
    "quic-ids": lambda k: service(k, quic_ids=1, packets_by_id=9,
                                  packets_no_id=200),
    "quic-unnamed": lambda k: (
        service(k, quic_ids=1, packets_by_id=9, packets_no_id=0),
        core(k, SAVED.replace("12:80 -i", "12:81 -i"))),
    "no-slot": lambda k: service(k, servers_without_slot=1),
    "max-entries": lambda k: service(k, entries=901),
    "no-server": lambda k: service(k, servers=0, state="settling"),
    "settling": lambda k: service(k, state="settling"),
    "pin-ms": lambda k: setattr(k.host, "pin_ms", 60000),
    "lane-off": lambda k: (
        setattr(k, "lane_loaded", True), k.links.update(facts.links(
            "2: eth0: <UP> mtu 1500 xdp/id:7 qdisc noqueue\n"))),
    "lane-marks": lambda k: (sysctl(k, lane="1", ingress="eth0"),
                             service(k, protocol="FWM", address="7"),
                             core(k, SAVED.replace("-t 192.0.2.1:80", "-f 7"))),
    "lane-backup": lambda k: (sysctl(k, lane="1", ingress="eth0"),
                              setattr(k, "backup", True)),
    "lane-btf": lambda k: (sysctl(k, lane="1"), setattr(k, "btf", False)),
    "lane-door": lambda k: sysctl(k, lane="1"),
    "lane-generic": lambda k: (
        sysctl(k, lane="1"), k.links.update(facts.links(
            "2: eth0: <UP> mtu 1500 xdpgeneric/id:7 qdisc noqueue\n"))),
    "lane-member": lambda k: doors(k, "2: eth0: <UP> mtu 1500 xdp/id:7 qdisc "
                                   "mq master bond0\n3: bond0: <UP> mtu 1500 "
                                   "qdisc mq \\    bond mode 802.3ad miimon 9\n"),
    "lane-beside": lambda k: doors(k, "2: eth0: <UP> mtu 1500 xdp/id:7 qdisc mq\n"
                                   "3: mv0@eth0: <UP> mtu 1500 qdisc noqueue "
                                   "\\    macvlan mode passthru\n"),
    "lane-tags": lambda k: (
        doors(k, "2: eth0: <UP> mtu 1500 qdisc mq master bond0 \\    bond_slave\n"
              "3: bond0: <UP> mtu 1500 xdp/id:7 qdisc mq \\    bond mode 802.3ad\n"),
        k.links.update(eth0=k.links["eth0"]._replace(strips=True))),
    "lane-vlan": lambda k: (
        doors(k, "2: eth0: <UP> mtu 1500 xdp/id:7 qdisc mq\n"
              "3: eth0.8@eth0: <UP> mtu 1500 qdisc noqueue \\    vlan protocol "
              "802.1Q id 8 <REORDER_HDR> \\      egress-qos-map { 0:1 }\n"),
        k.routes.update({"10.0.0.11": facts.Route(None, None, "eth0.8", None)}),
        k.neighbours.update({("10.0.0.11", "eth0.8"): "REACHABLE"})),
    "route": lambda k: k.routes.update({"10.0.0.11": None}),
    "gateway": lambda k: k.routes.update({
        "10.0.0.11": facts.Route(None, "10.0.0.2", "eth0", None)}),
    "neighbour": lambda k: k.neighbours.update({
        ("10.0.0.11", "eth0"): "FAILED"}),
    "tunnel-mtu": lambda k: k.routes.update({
        "10.0.0.12": facts.Route(None, "10.0.0.2", "eth0", None)}),
    "no-address": lambda k: k.virtual.update({
        "192.0.2.1": facts.Route(None, "10.0.0.2", "eth0", None)}),
    "no-weight": lambda k: core(k, SAVED.replace("-w 1", "-w 0")),
    "sorry-server": lambda k: k.sorry.add("10.0.0.12:80"),
    "no-answer": lambda k: counts(k, (9, 99), (20, 21)),
    "mtu": lambda k: k.routes.update({
        "10.0.0.11": facts.Route(None, None, "eth0", 1400)}),
    "own-address": lambda k: k.virtual.update({"10.0.0.12": None}),
    "few-entries": lambda k: (sysctl(k, max_quic_entries="999"), service(k, entries=0)),
    "slow": lambda k: setattr(k.host, "pin_ms", 3_600_001),
    "hold-ms": lambda k: setattr(k.host, "hold_ms", 0),
    "timeouts": lambda k: k.host.idle_ms.update(TCP=5000),
    "drop-entry": lambda k: sysctl(k, drop_entry="1"),
    "drop-packet": lambda k: sysctl(k, drop_packet="3"),
    "secure-tcp": lambda k: sysctl(k, secure_tcp="2"),
    "sync-backup": lambda k: setattr(k, "backup", True),
    "lost": lambda k: k.came.update({NAME: (9, 4)}),
    "two-owners": lambda k: k.owners.update({"192.0.2.1": "02:00:00:00:00:0c on eth0"}),
    "firewall": lambda k: (k.came.clear(), k.chains.append(("inet filter", "input"))),
    "no-service": lambda k: (k.services.clear(), core(k, SAVED.replace("mhs", "wlc"))),
    "kernel-mh": lambda k: core(k, OTHER.replace("wlc", "mh")),
}


class Findings(unittest.TestCase):
    def test_nothing_to_say(self):
        self.assertEqual(kinds(Known()), [])

    def test_what_looks_wrong_and_is_not(self):
        for right in (
                lambda k: core(k, SAVED.replace("-w 1", "-w 0", 1)),
                lambda k: (k.sorry.add("10.0.0.12:80"), core(k, SAVED.replace(
                    "-g -w 1", "-g -w 0"))),
                lambda k: (k.sorry.add("10.0.0.12:80"), core(k, SAVED.replace(
                    "-i -w 1", "-i -w 0"))),
                lambda k: counts(k, (9, 99), (20, 23)),
                lambda k: counts(k, (9, 99, 9, 27), (4, 4, 1, 1)),
                lambda k: k.routes.update({"10.0.0.11": facts.Route(
                    "local", None, "lo", 1400)}),
                lambda k: k.host.idle_ms.update(UDP=5000),
                lambda k: k.chains.append(("inet filter", "input")),
                lambda k: k.came.update({NAME: (4, 0)}),
                lambda k: k.came.update({NAME: (10, 5)}),
                lambda k: k.host.idle_ms.update(TCP=900_001),
                lambda k: (core(k, OTHER.replace("wlc", "mh")),
                           k.services.append({**k.services[0],
                                              "address": "192.0.2.9:80"}),
                           k.virtual.update({"192.0.2.9": k.virtual["192.0.2.1"]}))):
            known = Known()
            right(known)
            self.assertEqual(kinds(known), [])
        known = Known()
        counts(known, (90, 900), (4, 3, 2, 2))
        self.assertEqual(kinds(known), ["no-answer"])
        self.assertNotIn("flood", check.findings(known)[0].text)
        core(known, SAVED.replace(" -g ", " -m "))
        counts(known, (9, 99, 0, 0, 0))
        self.assertIn("lead here", check.findings(known)[1].remedy)
        self.assertIn("vs.conntrack=1", check.findings(known)[1].remedy)
        udp = Known()
        service(udp, protocol="UDP")
        for method, found in (" -m ", True), (" -g ", False):
            core(udp, SAVED.replace("-t", "-u").replace("mhs", "mhs -o").replace(
                " -g ", method))
            self.assertEqual("ops-masquerading" in kinds(udp), found)
        known.came[NAME] = 9, 1     # packets by entries, which the core counts
        self.assertNotIn("lost", kinds(known))
        known.came[NAME] = 9, 9
        core(known, SAVED)
        counts(known, (9, 9), (9, 9))
        self.assertIn("flood", check.findings(known)[0].text)

    def test_a_family_of_a_mark_without_a_weight(self):
        known = Known()
        service(known, protocol="FWM", address="7")
        for weight, found in (1, 0), (0, 1):
            core(known, f"-A -f 7 -s mhs\n-a -f 7 -r 10.0.0.11:0 -g -w {weight}\n"
                 "-A -f 7 -6 -s mhs\n-a -f 7 -6 -r [fd00::11]:0 -g -w 1\n")
            self.assertEqual(kinds(known).count("no-weight"), found)

    def test_packets_that_came_are_counted_once(self):
        one = {"protocol": "TCP", "address": "192.0.2.1:80", "packets_stateless": 40,
               "packets_old": 2, "packets_unsettled": 3, "packets_lane": 40,
               "packets_no_id": 7, "packets_icmp": 9, "capped": 11,
               "pinned_entries": 5}
        for by_xdp, number in (False, 50), (True, 10):
            self.assertEqual(arrive._counted([one], by_xdp), {NAME: number})

    def test_each_cause_is_one_finding(self):
        for kind, cause in CAUSES.items():
            with self.subTest(kind):
                known = Known()
                cause(known)
                self.assertEqual(kinds(known), [kind])
                self.assertEqual(kinds(known, ignored=[kind]), [])
                [finding] = check.findings(known)
                for text in finding.text, finding.remedy:
                    self.assertNotIn("None", text)
                    self.assertFalse(text.endswith("."))

    def test_all_kinds_have_a_cause(self):
        # beside conntrack, or masquerading, which are findings, too
        self.assertEqual({*CAUSES, "lane-conntrack", "ip-forward", "ops-masquerading"},
                         {*check.KINDS})

    def test_what_the_second_chance_is_not_for(self):
        saved = "-A -t 192.0.2.1:80 -s mhs\n-a -t 192.0.2.1:80 -r 10.0.0.11:80 -g " \
                "-w 1\n-a -t 192.0.2.1:80 -r 10.0.0.12:80 -i -w 1\n"
        for old, new, words in (
                (" -g ", " -m ", "transition"),
                ("-i -w 1", "-i -w 1 --tun-type gre", "transition"),
                ("mhs", "mhs -p 300", "breaks older flows"),
                ("mhs", "mhs -o", "breaks older flows"),
                ("0.12:80", "0.12:81", "10.0.0.12:81 has another port"),
                ("10.0.0.12:", "[2001:db8::1]:", "both families"),
                ("-s mhs", "-s wlc", "but TCP 192.0.2.1:80 (wlc)"),
                ("-t", "-u", "but UDP 192.0.2.1:80 (mhs)")):
            for listed in True, False:
                known = Known(saved.replace(old, new))
                if "wlc" in new or new == "-u":
                    known.services = []
                else:
                    service(known, entries=0)
                chance(known, *([NAME] if listed else []))
                with self.subTest(new=new, listed=listed):
                    self.assertEqual([words in f.text for f in check.findings(known)
                                      if f.kind == "second-chance"],
                                     [True] if listed else [])

    def test_the_second_chance_where_all_is_well(self):
        known = Known()
        service(known, entries=0)
        chance(known, NAME)
        self.assertEqual(kinds(known), [])

    def test_entries_that_have_another_cause(self):
        for cause in "persistence", "thresholds", "masquerading", "stateless":
            known = Known()
            CAUSES[cause](known)
            chance(known, NAME)
            self.assertNotIn("chance-entries", kinds(known))

    def test_masquerading_without_forwarding(self):
        for forwards, want in (({4: 0, 6: 1}, ["ip-forward"]), ({4: 1, 6: 0}, [])):
            known = Known(SAVED.replace(" -g ", " -m "))
            known.forwards = forwards
            self.assertEqual(kinds(known, ignored=["masquerading"]), want)

    def test_lane_and_conntrack(self):
        known = Known()
        sysctl(known, lane="1", ingress="eth0", conntrack="1")
        self.assertEqual(kinds(known), ["conntrack", "lane-conntrack"])

    def test_a_lane_on_another_device(self):
        known = Known()
        sysctl(known, lane="1", ingress="eth0")
        known.came[NAME] = 9, 9
        for lane, want in (({"frame": 7, "service": 7, "route": 0}, ["lane-door"]),
                           ({"service": 7, "entry": 1}, []), ({"forwarded": 1}, [])):
            known.lane = lane
            self.assertEqual(kinds(known), want)

    def test_lane_and_marks(self):
        known = Known()
        sysctl(known, lane="1", ingress="eth0")
        self.assertEqual(kinds(known), [])
        core(known, MARK)
        self.assertEqual(kinds(known), ["marks"])

    def test_lane_with_a_native_program(self):
        known = Known()
        sysctl(known, lane="1")
        known.links["eth0"] = facts.Link(1500, "xdp")
        self.assertEqual(kinds(known), [])

    def test_second_chance_of_a_silent_server(self):
        known = Known()
        chance(known, NAME)
        service(known, silent_servers=["10.0.0.11:80"])
        [finding] = check.findings(known)
        self.assertIn("come back from server 10.0.0.11:80,", finding.text)
        self.assertIn("GRE (protocol 47) out there and in here", finding.remedy)

    def test_lane_of_a_bridge(self):
        known = Known()
        bridge = "3: br0: <UP> mtu 1500 qdisc mq \\    bridge forward_delay 1500\n"
        doors(known, f"2: eth0: <UP> mtu 1500 qdisc mq master br0\n{bridge}")
        sysctl(known, ingress="eth0")
        [finding] = check.findings(known)
        self.assertEqual(finding.kind, "lane-member")
        self.assertIn("ingress=br0", finding.remedy)
        sysctl(known, ingress="br0")
        self.assertEqual(kinds(known), [])

    def test_lane_with_plain_vlans_and_macvlans(self):
        known = Known()
        CAUSES["lane-vlan"](known)
        for name, what in (("eth0.8", "vlan protocol 802.1Q id 8"),
                           ("mv0", "macvlan mode bridge")):
            known.links[name] = facts.Link(1500, None, True, None, "eth0", what)
        self.assertEqual(kinds(known), [])

    def test_a_local_server_has_no_neighbour(self):
        known = Known()
        known.routes["10.0.0.11"] = facts.Route("local", None, "lo", None)
        known.neighbours["10.0.0.11", "lo"] = "FAILED"
        self.assertEqual(kinds(known), [])
        self.assertEqual(len(check.unseen(known)), 1)

    def test_gone_back_to_the_limit_of_its_protocol(self):
        known = Known()
        service(known, protocol="UDP")
        core(known, SAVED.replace("-t", "-u"))
        known.host.quic_ports, known.host.stay_ports = (), (80,)
        sysctl(known, max_quic_entries="10", max_entries="1")
        self.assertEqual(kinds(known, ignored=["few-entries"]), ["max-entries"])

    def test_the_total_of_all_services(self):
        known = Known()
        sysctl(known, max_total_entries="20")
        known.services.append(dict(known.services[0], entries=8))
        self.assertEqual(kinds(known), ["few-entries"])
        known.services[1]["entries"] = 9
        [finding] = check.findings(known, ["few-entries"])
        self.assertIn("19 entries are more than 90 %", finding.text)
        self.assertIn("max_total_entries", finding.remedy)

    def test_the_mtu_of_each_tunnel(self):
        for kind, inner in (("ipip", 1480), ("gre", 1476), ("gue", 1468)):
            known = Known(SAVED.replace("ipip", kind))
            known.routes["10.0.0.12"] = facts.Route(None, None, "eth0", None)
            [finding] = check.findings(known)
            self.assertIn(f"more than {inner} bytes", finding.text)
            known.links["eth0"] = facts.Link(1500 + 1500 - inner, None)
            self.assertEqual(kinds(known), [])

    def test_servers_that_share_a_connection_id(self):
        known = Known()
        service(known, quic_ids=2, packets_by_id=200, packets_no_id=199)
        self.assertEqual(kinds(known), [])
        core(known, SAVED.replace("10.0.0.12:80 -i -w 1 --tun-type ipip",
                                  "[fd02::a00:b]:80 -g -w 1"))
        known.routes["fd02::a00:b"] = known.routes["10.0.0.11"]
        [finding] = check.findings(known)
        self.assertEqual(finding.servers, ("10.0.0.11:80", "[fd02::a00:b]:80"))

    def test_many_servers_are_not_all_named(self):
        known = Known("-A -t 192.0.2.1:80 -s mhs\n" + "".join(
            f"-a -t 192.0.2.1:80 -r 10.0.0.{n}:80 -m -w 1\n"
            for n in range(11, 31)))
        known.routes = {f"10.0.0.{n}": known.routes["10.0.0.11"]
                        for n in range(11, 31)}
        [finding] = check.findings(known)
        self.assertIn("and 16 more", finding.text)
        self.assertEqual(len(finding.servers), 20)

    def test_older_module_lacks_fields_and_sysctls(self):
        known = Known()
        known.services = [{key: known.services[0][key] for key in
                           ("protocol", "address", "state")}]
        known.sysctls = dict.fromkeys(known.sysctls)
        self.assertEqual(kinds(known), [])


class Parsing(unittest.TestCase):
    def test_routes(self):
        found = facts.routes(ROUTES, ROUTED, "")
        self.assertEqual(found["10.0.0.11"],
                         facts.Route(None, None, "eth0", None))
        self.assertEqual(found["10.0.0.12"],
                         facts.Route(None, "10.0.0.2", "eth0", 9000))
        found = facts.routes(["10.0.0.9", *ROUTES, "fd00::1", "127.0.0.1"],
                             ROUTED + "local 127.0.0.1 dev lo\n",
                             "RTNETLINK answers: Network is unreachable\n"
                             "Command failed -:1\nRTNETLINK answers: x\n"
                             "Command failed -:4\n")
        self.assertEqual([found["10.0.0.9"], found["fd00::1"]], [None, None])
        self.assertEqual(found["10.0.0.12"].mtu, 9000)
        self.assertEqual(found["127.0.0.1"].type, "local")

    def test_links_and_their_programs(self):
        self.assertEqual(facts.links(LINKS)["eth0"], facts.Link(1500, None))
        for word, xdp in (("xdp/id:4 ", "xdp"), ("xdpgeneric/id:4 ",
                                                 "xdpgeneric")):
            self.assertEqual(facts.links(
                f"2: eth0@if3: <UP> mtu 1500 {word}qdisc noqueue\n")["eth0"].xdp,
                xdp)

    def test_neighbours(self):
        self.assertEqual(facts.neighbours(
            "10.0.0.13 dev eth0  FAILED\n")["10.0.0.13", "eth0"], "FAILED")


def run(known, *argv):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), \
            mock.patch.object(facts, "Facts", lambda names, _: of(known, names)):
        try:
            status = cli.main(["check", *argv])
        except SystemExit as end:
            status = end.code
    return status, out.getvalue(), err.getvalue()


class Command(unittest.TestCase):
    def test_exit_status(self):
        known = Known()
        self.assertEqual(run(known)[:2], (0, ""))
        sysctl(known, stateless="0")
        status, out, _ = run(known)
        self.assertEqual((status, out.count("\n")), (1, 1))
        self.assertRegex(out, r"^warning: every flow .*; remedy: sysctl .* "
                         r"\[stateless\]\n$")
        self.assertEqual(run(known, "-q")[1:], (out, ""))
        self.assertEqual(run(known, "--ignore", "stateless")[:2], (0, ""))
        self.assertEqual(run(known, "--ignore", "weather")[0], 2)

    def test_what_is_meant_is_a_note(self):
        for kind, cause in CAUSES.items():
            known = Known()
            cause(known)
            with self.subTest(kind):
                note = kind in check.NOTES
                status, out, _ = run(known)
                self.assertEqual((status, out.split(":")[0]),
                                 (0, "note") if note else (1, "warning"))
                self.assertEqual(run(known, "--quiet"),
                                 (status, "" if note else out, ""))

    def test_a_hop_that_nobody_asked(self):
        known = Known()
        del known.neighbours["10.0.0.2", "eth0"]
        status, out, err = run(known)
        self.assertEqual((status, out), (0, ""))
        self.assertIn("1 next hop(s) were not asked lately, and it is unknown "
                      "whether they answer: 10.0.0.2 on eth0", err)
        self.assertEqual(json.loads(run(known, "--json")[1])[
            "hops_never_asked"], ["10.0.0.2 on eth0"])
        self.assertNotIn("unknown", run(Known())[2])
        known.links["eth0"] = facts.Link(1500, None, False)
        self.assertNotIn("unknown", run(known)[2])

    def test_remedies_that_edit_a_server_keep_all_else(self):
        known = Known(SAVED.replace("ipip", "ipip -x 5 -y 3"))
        self.assertIn("ipvsadm -e -t 192.0.2.1:80 -r 10.0.0.12:80 -i -w 1 "
                      "--tun-type ipip [", run(known)[1])
        known = Known()
        CAUSES["gateway"](known)
        core(known, SAVED.replace("-g -w 1", "-g -w 1 -x 5 -y 3"))
        self.assertIn("ipvsadm -e -t 192.0.2.1:80 -r 10.0.0.11:80 -i -w 1 -x 5 "
                      "-y 3 [", run(known)[1])

    def test_it_says_what_it_cannot_see(self):
        self.assertRegex(run(Known())[2], "2 server.* past this host.* sees no "
                         "reply.*: real_server check --vip 192.0.2.1 --port 80, "
                         "real_server check --vip 192.0.2.1 --port 80 --tunnel ipip")
        quiet = Known()
        quiet.came.clear()
        self.assertIn("1 service(s) got less than 5 packets", run(quiet)[2])
        marked = Known()
        service(marked, protocol="FWM", address="7")
        said = run(marked)[2]
        self.assertIn("FWM 7: which packets have the mark was not looked for", said)
        self.assertNotIn("less than 5 packets", said)
        known = Known(SAVED.replace(" -g ", " -m ").replace(" -i ", " -m "))
        self.assertEqual(run(known)[2], f"mhsstat: no warning of the "
                         f"{len(check.KINDS)} kinds of finding that mhsstat(8) "
                         "lists; what is not on that list was not looked for\n")
        self.assertEqual(run(known, "-q")[2], "")
        self.assertIn(f"the {len(check.KINDS) - 1} kinds",
                      run(known, "--ignore", "names")[2])

    def test_one_service(self):
        known = Known()
        other = copy.deepcopy(known.services[0])
        other.update(address="192.0.2.2:80", capped=1)
        known.services.append(other)
        self.assertEqual(run(known)[0], 1)
        self.assertEqual(run(known, "-t", "192.0.2.1:80")[0], 0)
        self.assertEqual(run(known, "-t", "192.0.2.3:80")[0], 125)

    def test_json(self):
        known = Known()
        service(known, capped=3)
        status, out, _ = run(known, "--json")
        value = json.loads(out)
        self.assertEqual((status, value["servers_without_replies_here"]),
                         (1, 2))
        self.assertEqual([(f["kind"], f["service"], f["severity"])
                          for f in value["findings"]],
                         [("capped", NAME, "warning")])

    def test_every_kind_is_in_the_man_page_and_in_the_completion(self):
        page = (TOP / "Documentation/man/mhsstat.8").read_text()
        words = (TOP / "scripts/mhsstat.bash-completion").read_text()
        words = re.search(r"--ignore\)(.*?);;", words, re.S)[1].split('"')[1]
        self.assertEqual(sorted(words.split()), sorted(check.KINDS))
        for kind in check.KINDS:
            self.assertRegex(page, rf"\n\.It Cm (\S+ , )*{kind}( , \S+)*\n")
