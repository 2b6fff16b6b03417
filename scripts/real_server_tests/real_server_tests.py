# SPDX-License-Identifier: GPL-2.0-only
"""real_server makes of what the kernel says the right commands and sentences."""

import contextlib
import io
import json
import re
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

from real_server_lib import (chance, change, cli, faults, host, options,  # noqa: E402
                             parts, state)
from ipvs_mhs_tool import ToolError, quoted  # noqa: E402

EXAMPLE = TOP / "examples/real_server/real_server.conf"
VIP4, VIP6 = "192.0.2.1", "2001:db8::1"


def set_up(*argv):
    """The SetUp of a command line."""
    return options.set_up_of(options.parser().parse_args(
        ["setup", *argv]))


def refusal(*argv):
    """What the command line says of a mistake; its status must be 2."""
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        try:
            status = cli.main(list(argv))
        except SystemExit as end:
            status = end.code
    assert status == 2, status
    return err.getvalue()


def entry(address, length):
    return {"family": "inet6" if ":" in address else "inet", "local": address,
            "prefixlen": length}


def link(name, *flags, kind="ether", addresses=(), mtu=1500, proto=None):
    data = {"info_data": {"proto": proto}} if proto else {}
    return {"ifname": name, "flags": list(flags), "link_type": kind, "mtu": mtu,
            "linkinfo": data, "addr_info": [
                entry(address, length)
                for address, length in addresses]}


class FakeHost(host.Host):
    """A host as it is told to be; what is done to it has its effect."""

    def __init__(self, *links, sysctls=(), modules=(), fail=""):
        super().__init__()
        self.devices = {one["ifname"]: one for one in (
            link("lo", "LOOPBACK", "UP", kind="loopback"),
            link("eth0", "UP"), *links)}
        self.sysctls = {"net.ipv4.conf.all.rp_filter": "0",
                        "net.ipv4.conf.all.arp_ignore": "0",
                        "net.ipv4.conf.all.arp_announce": "0",
                        "net.ipv4.conf.eth0.arp_ignore": "0",
                        "net.ipv4.conf.eth0.arp_announce": "0",
                        "net.ipv6.conf.lo.disable_ipv6": "0", **dict(sysctls)}
        self.modules = set(modules)
        self.gue = set()
        self.remarks = None
        self.source = None
        self.route = {"dev": "eth0"}
        self.there = ()
        self.ss = self.ruleset = ""
        self.fail = fail
        self.done = []

    def _ask_json(self, *argv):
        if "from" in argv:
            return [self.route]
        if "neigh" in argv:
            return [{"lladdr": "02::"}] if argv[-1] in self.there else []
        if "get" in argv:
            return [{"prefsrc": self.source}] if self.source else []
        if "route" in argv:
            return [{"dst": "default", "dev": "eth0"}]
        return list(self.devices.values())

    def sysctl(self, name):
        leaf = name.split(".")[-1]
        return self.sysctls.get(name, {"rp_filter": "0",
                                       "disable_ipv6": "0"}.get(leaf))

    def has_module(self, name):
        return name in self.modules

    def gue_ports(self):
        return self.gue

    def clamps(self):
        return self.remarks

    def sockets(self):
        return self.ss

    def rules(self):
        return self.ruleset

    def do(self, argv):
        text = quoted(argv)
        if self.fail and self.fail in text:
            raise ToolError(f"{text}: no")
        self.done.append(text)
        if argv[0] == "sysctl":
            name, self.sysctls[name] = argv[2].split("=")
        elif argv[0] == "modprobe":
            self.modules.add(argv[1])
            if argv[1] == "fou":
                self.gue = set()
                return
            name = {"ipip": "tunl0", "sit": "sit0"}[argv[1]]
            self.devices[name] = link(name, "NOARP", kind="ipip")
        elif argv[0] == "nft":
            self.remarks = None if argv[1] == "delete" else set(
                re.findall(r'comment "(.*?)"', argv[1]))
        elif argv[1] == "fou":
            family = 6 if argv[-1] == "-6" else 4
            (self.gue.add if argv[2] == "add" else
             self.gue.discard)((int(argv[4]), family))
        elif argv[1:3] == ["link", "set"]:
            flags = self.devices[argv[3]]["flags"]
            (flags.append if argv[4] == "up" else flags.remove)("UP")
        elif argv[1:3] == ["link", "add"]:
            self.devices[argv[3]] = link(argv[3], "NOARP")
        elif argv[1:3] == ["link", "del"]:
            del self.devices[argv[3]]
        elif argv[1] == "-6":
            self.devices[argv[4]]["linkinfo"] = {"info_data":
                                                 {"proto": argv[-1]}}
        elif argv[1] == "address":
            address, length = argv[3].split("/")
            those = self.devices[argv[5]]["addr_info"]
            (those.append if argv[2] == "add" else those.remove)(
                entry(address, int(length)))
        else:
            raise AssertionError(text)

    def looks(self):
        return json.dumps([self.devices, self.sysctls, sorted(self.gue or []),
                           sorted(self.remarks or [])])


class Options(unittest.TestCase):
    def test_values_are_listed_and_repeated(self):
        one = set_up("--vip", f"{VIP4},2001:DB8:0::1", "-a", VIP4, "--tunnel", "gue",
                     "--port", "80,443/udp", "--outer", "ipv6", "-m", "1400")
        self.assertEqual(one, options.SetUp(
            (VIP4, VIP6), ("gue",), (6,), 6080, 1400,
            (("tcp", 80), ("udp", 443))))

    def test_the_length_of_an_address(self):
        self.assertEqual(set_up("--vip", f"{VIP4}/32,{VIP6}/128"),
                         set_up("--vip", f"{VIP4},{VIP6}"))

    def test_its_command_makes_the_same(self):
        for argv in (["--vip", VIP4],
                     ["--vip", f"{VIP4},{VIP6}", "--tunnel", "gue,gre",
                      "--gue-port", "7000", "--outer", "ipv4,ipv6",
                      "--port", "80,53/udp", "--mss", "1300"]):
            one = set_up(*argv)
            self.assertEqual(set_up(*one.command()[2:]), one)

    def test_mistakes(self):
        for argv, said in (
                (["--vip", "192.0.2.1/24"], "without the prefix length of a network"),
                (["--vip", "host"], "is no address"),
                (["--vip", "2001:db8::1/64"], "is no address"),
                (["--vip", "fe80::1%eth0"], "is no address"),
                (["--vip", "127.0.0.1"], "cannot be a virtual address"),
                (["--vip", "fe80::1"], "cannot be a virtual address"),
                (["--vip", "::ffff:192.0.2.1"], "write it as 192.0.2.1"),
                (["--vip", VIP4, "--tunnel", "vxlan"], "ipip, gre, gue"),
                (["--vip", VIP4, "--outer", "4"], "ipv4, ipv6"),
                (["--vip", VIP4, "--outer", "ipv6"], "give --tunnel, too"),
                (["--vip", VIP4, "--mss", "535"], "from 536 to 65495"),
                (["--vip", VIP4, "--mss", "-1"], "from 536 to 65495"),
                (["--vip", VIP4, "--gue-port", "0"], "from 1 to 65535"),
                (["--vip", VIP4, "--port", "80/sctp"], "/udp"),
                (["--vip", VIP4, "--config", "x"], "give one"),
                (["--mss", "1400"], "need --vip"),
                (["--vi", VIP4], "--vi")):
            self.assertIn(said, refusal("setup", *argv), argv)

    def test_file(self):
        self.assertEqual(options.read_config(EXAMPLE), set_up(
            "--vip", f"{VIP4},{VIP6}", "--port", "80,443"))

    def test_file_with_all_that_its_remarks_have(self):
        text = EXAMPLE.read_text().replace("#tunnel", "tunnel").replace(
            "#mss", "mss")
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(text)
            file.flush()
            one = options.read_config(file.name)
        self.assertEqual((one.tunnels, one.mss), (("ipip",), 1400))

    def test_mistakes_in_the_file(self):
        for text, said in (
                ("", "a vip is needed"), ("vip = x\n", "is no address"),
                ("vip\n", "no 'key = value'"),
                (f"vip = {VIP4}\nvip = {VIP4}\n", "twice"),
                (f"vip = {VIP4}\nmtu = 3\n", "--mtu=3"),
                (f"vip = {VIP4}\nconfig = x\n", "cannot stand")):
            with tempfile.NamedTemporaryFile("w") as file:
                file.write(text)
                file.flush()
                with self.assertRaises(ToolError) as caught:
                    options.read_config(file.name)
                self.assertIn(said, str(caught.exception))
                self.assertIn(file.name, str(caught.exception))


class Read(unittest.TestCase):
    """What programs print."""

    def host(self, said):
        one = host.Host()
        one._ask = lambda *argv: said
        return one

    def test_gue_ports(self):
        said = "port 6080 gue\nport 6080 gue -6\nport 5555 ipproto 4\n"
        self.assertEqual(self.host(said).gue_ports(), {(6080, 4), (6080, 6)})
        self.assertEqual(self.host("").gue_ports(), set())

    def test_gue_without_its_module(self):
        one = host.Host()
        with mock.patch.object(one, "_ask", side_effect=ToolError("no")):
            self.assertIsNone(one.gue_ports())

    def test_empty_objects(self):
        self.assertEqual(self.host('[{},{"ifname":"lo"}]').links(),
                         {"lo": {"ifname": "lo"}})
        self.assertIsNone(self.host("[ ]").underlay(4))

    def test_a_default_route_over_two_devices(self):
        self.assertIsNone(self.host('[{"dst":"default","nexthops":[]}]')
                          .underlay(4))

    def test_dots_in_the_name_of_a_device(self):
        self.assertEqual(host._path("net.ipv4.conf.eth0/100.rp_filter"),
                         "/proc/sys/net/ipv4/conf/eth0.100/rp_filter")
        self.assertEqual(parts._sysctl_of(4, "eth0.100", "rp_filter"),
                         "net.ipv4.conf.eth0/100.rp_filter")


class Parts(unittest.TestCase):
    def commands(self, *argv, on=None):
        return [quoted(command) for command in change.planned(
            on or FakeHost(), set_up(*argv))]

    def test_direct_routing(self):
        self.assertEqual(self.commands("--vip", f"{VIP4},{VIP6}"), [
            "sysctl -w net.ipv4.conf.all.arp_ignore=1",
            "sysctl -w net.ipv4.conf.all.arp_announce=2",
            f"ip address add {VIP4}/32 dev lo",
            f"ip address add {VIP6}/128 dev lo nodad preferred_lft 0"])

    def test_no_arp_for_ipv6(self):
        self.assertEqual(self.commands("--vip", VIP6), [
            f"ip address add {VIP6}/128 dev lo nodad preferred_lft 0"])

    def test_arp_ignore(self):
        for value, kept in (("0", 0), ("1", 1), ("2", 1), ("3", 0), ("8", 1)):
            on = FakeHost(sysctls={"net.ipv4.conf.all.arp_ignore": value})
            self.assertEqual("arp_ignore" not in str(self.commands(
                "--vip", VIP4, on=on)), bool(kept), value)

    def devices(self, *argv):
        return sorted(parts.tunnels_of(set_up(*argv)))

    def test_devices_of_tunnels(self):
        both = "--outer", "ipv4,ipv6"
        for vip, tunnel, more, devices in (
                (VIP4, "ipip", (), ["tunl0"]), (VIP6, "ipip", (), ["ip6tnl0"]),
                (VIP6, "ipip", ("--outer", "ipv4"), ["sit0"]),
                (VIP4, "gue", both, ["ip6tnl0", "tunl0"]),
                (VIP4, "gre", both, ["gre0", "ip6gre0"]),
                (VIP6, "gre", (), ["ip6gre0"])):
            self.assertEqual(self.devices("--vip", vip, "--tunnel", tunnel,
                                          *more), devices)

    def test_a_device_of_ipip_by_what_it_takes(self):
        def device(name, *flags, kind="ipip", **data):
            one = link(name, "NOARP", *flags, kind=kind)
            one["linkinfo"] = {"info_kind": kind, "info_data": data}
            return one
        wide = {"remote": "any", "local": "any"}
        tunl0, renamed = device("tunl0", **wide), device("cilium_tunl", **wide)
        far = device("far", "UP", remote="10.0.0.1", local="any")
        external = device("ipip0", "UP", external=True, **wide)
        down = device("ipip1", external=True, **wide)
        other = device("gre9", "UP", kind="gre", external=True, **wide)
        for devices, taker in (
                ((), "tunl0"), ((tunl0, far, down, other), "tunl0"),
                ((renamed,), "cilium_tunl"), ((tunl0, external), "ipip0")):
            on = FakeHost(*devices, sysctls={"net.ipv4.conf.all.rp_filter": "1"})
            commands = self.commands("--vip", VIP4, "--tunnel", "ipip", on=on)
            self.assertIn(f"ip address add {VIP4}/32 dev {taker}", commands)
            self.assertIn(f"sysctl -w net.ipv4.conf.{taker}.rp_filter=2", commands)

    def test_gue_port_for_each_outer_family(self):
        commands = self.commands("--vip", f"{VIP4},{VIP6}", "--tunnel", "gue",
                                 "--gue-port", "7000")
        self.assertIn("ip fou add port 7000 gue", commands)
        self.assertIn("ip fou add port 7000 gue -6", commands)

    def test_the_module_of_gue(self):
        argv = "--vip", VIP4, "--tunnel", "gue"
        on = FakeHost()
        self.assertNotIn("modprobe fou", self.commands(*argv, on=on))
        on.gue = None
        self.assertIn("modprobe fou", self.commands(*argv, on=on))

    def test_mode_only_where_ipv4_is_in_ipv6(self):
        mode = "ip -6 tunnel change ip6tnl0 mode any"
        self.assertNotIn(mode, self.commands("--vip", VIP6, "--tunnel", "ipip"))
        self.assertIn(mode, self.commands("--vip", VIP4, "--tunnel", "ipip",
                                          "--outer", "ipv6"))

    def test_rp_filter_only_where_it_bites(self):
        for of_all, own, bites in ((0, 0, 0), (1, 0, 1), (0, 1, 1), (1, 2, 0),
                                   (2, 1, 0), (1, 1, 1)):
            on = FakeHost(sysctls={
                "net.ipv4.conf.all.rp_filter": str(of_all),
                "net.ipv4.conf.tunl0.rp_filter": str(own)})
            self.assertEqual("sysctl -w net.ipv4.conf.tunl0.rp_filter=2" in
                             self.commands("--vip", VIP4, "--tunnel", "ipip",
                                           on=on), bool(bites))

    def test_a_tunnel_device_has_an_address_where_rp_filter_is_on(self):
        for of_all, own, there in ((0, 0, 0), (0, 2, 1), (1, 0, 1), (2, 0, 1)):
            on = FakeHost(sysctls={
                "net.ipv4.conf.all.rp_filter": str(of_all),
                "net.ipv4.conf.tunl0.rp_filter": str(own)})
            self.assertEqual(f"ip address add {VIP4}/32 dev tunl0" in
                             self.commands("--vip", VIP4, "--tunnel", "ipip",
                                           on=on), bool(there))

    def test_an_address_on_a_device_without_arp_is_good(self):
        for name, kind in (("tunl0", "ipip"), ("dummy0", "ether")):
            on = FakeHost(link(name, "UP", "NOARP", kind=kind,
                               addresses=[(VIP4, 24)]))
            self.assertNotIn("address", str(self.commands("--vip", VIP4,
                                                          on=on)))

    def test_what_the_program_is_told(self):
        one = set_up("--vip", f"{VIP4},{VIP6}", "--port", "80,443/udp",
                     "--director", "10.0.0.1,2001:db8::2")
        on = FakeHost({**link("mhs-chance4"), "ifindex": 7})
        services = chance.Services(None, one).wanted(on, {})
        self.assertEqual({key[-4:-2] for key in services}, {bytes([0, 80])})
        self.assertEqual({len(key) for key in services}, {20})
        with mock.patch.object(host.Host, "neighbour", lambda self, address:
                               None if ":" in address else "02:00:00:00:00:09"):
            told = chance.Directors(None, one.directors).wanted(on, {})
        first, second, third = [*told.values()][:3]
        self.assertEqual((first[:4], first[20], first[29], len(first)),
                         (bytes([10, 0, 0, 1]), 7, 9, 32))
        self.assertEqual((second[16], third), (10, bytes(32)))

    def test_clamp(self):
        one = parts.Clamp([VIP4, VIP6], 1400)
        on = FakeHost()
        on.do(one.making(on)[0])
        self.assertEqual(one.making(on), [])
        self.assertIn(f"ip saddr {VIP4} ", on.done[0])
        self.assertIn(f"ip6 saddr {VIP6} ", on.done[0])
        self.assertNotEqual(parts.Clamp([VIP4, VIP6], 1300).making(on), [])
        self.assertNotEqual(parts.Clamp([VIP4], 1400).making(on), [])


class Change(unittest.TestCase):
    FULL = ("--vip", f"{VIP4},{VIP6}", "--tunnel", "ipip,gue", "--outer",
            "ipv4", "--mss", "1400")

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        patch = mock.patch.object(state, "DIRECTORY", directory.name)
        patch.start()
        self.addCleanup(patch.stop)
        self.state = state.State()

    def test_there_and_back(self):
        on = FakeHost(link("tunl0", "NOARP", kind="ipip"),
                      link("sit0", "NOARP", kind="sit"),
                      sysctls={"net.ipv4.conf.all.rp_filter": "1"})
        before = on.looks()
        self.assertTrue(change.setup(on, self.state, set_up(*self.FULL)))
        self.assertEqual(change.planned(on, set_up(*self.FULL)), [])
        self.assertEqual(self.state.load().set_ups, [set_up(*self.FULL)])
        self.assertFalse(change.setup(on, self.state, set_up(*self.FULL)))
        self.assertTrue(change.clear(on, self.state))
        self.assertEqual(
            json.loads(before)[2:], json.loads(on.looks())[2:])
        self.assertEqual(on.sysctls["net.ipv4.conf.all.arp_ignore"], "0")
        self.assertNotIn("UP", on.devices["tunl0"]["flags"])
        self.assertEqual(on.holders(VIP4) + on.holders(VIP6), [])
        self.assertFalse(change.clear(on, self.state))

    def test_the_address_is_the_last_to_come_and_the_first_to_go(self):
        on = FakeHost(modules=["ipip", "sit"])
        change.setup(on, self.state, set_up(*self.FULL))
        self.assertEqual([text.split()[:2] for text in on.done[-2:]],
                         [["ip", "address"]] * 2)
        on.done.clear()
        change.clear(on, self.state)
        self.assertEqual([text.split()[:2] for text in on.done[:2]],
                         [["ip", "address"]] * 2)
        self.assertIn("arp_ignore", on.done[-1])

    def test_every_step_may_fail(self):
        whole = FakeHost()
        whole.gue = None
        change.setup(whole, self.state, set_up(*self.FULL))
        steps = list(whole.done)
        change.clear(whole, self.state)
        self.assertGreater(len(steps), 10)
        for step in steps:
            on = FakeHost(fail=step)
            on.gue = None
            with self.assertRaises(ToolError) as caught:
                change.setup(on, self.state, set_up(*self.FULL))
            self.assertIn("is undone", str(caught.exception), step)
            self.assertIsNone(self.state.load(), step)
            self.assertEqual(on.sysctls["net.ipv4.conf.all.arp_ignore"], "0")
            self.assertEqual((on.gue or set(), on.remarks), (set(), None), step)
            self.assertEqual(on.holders(VIP4), [], step)

    def test_a_change_that_fails_leaves_the_old_set_up(self):
        on = FakeHost()
        change.setup(on, self.state, set_up("--vip", VIP4, "--mss", "1400"))
        before = on.looks()
        on.fail = f"address add {VIP6}"
        with self.assertRaises(ToolError):
            change.setup(on, self.state, set_up("--vip", f"{VIP4},{VIP6}",
                                                "--mss", "1300"))
        self.assertEqual(on.looks(), before)
        self.assertEqual(self.state.load().set_ups[-1].mss, 1400)
        change.clear(on, self.state)
        self.assertIsNone(on.remarks)

    def test_a_full_disk_leaves_nothing_half_done(self):
        on = FakeHost()
        before, saves = on.looks(), []

        def save(record):
            saves.append(record)
            if len(saves) > 2:
                raise OSError("no space")
        with mock.patch.object(self.state, "save", save), \
                self.assertRaisesRegex(ToolError, "no space"):
            change.setup(on, self.state, set_up("--vip", VIP4, "--mss", "1400"))
        self.assertEqual(on.looks(), before)

    def test_an_address_stays_when_its_tunnel_goes(self):
        on = FakeHost(modules=["ipip"],
                      sysctls={"net.ipv4.conf.all.rp_filter": "1"})
        change.setup(on, self.state, set_up("--vip", VIP4, "--tunnel", "ipip"))
        self.assertEqual(sorted(on.holders(VIP4)), [("lo", 32), ("tunl0", 32)])
        change.setup(on, self.state, set_up("--vip", VIP4))
        self.assertEqual(on.holders(VIP4), [("lo", 32)])

    def test_killed_in_a_change_all_is_undone(self):
        on = FakeHost(modules=["ipip"])
        before = on.sysctls.copy()
        change.setup(on, self.state, set_up("--vip", VIP4, "--mss", "1400"))
        with mock.patch.object(on, "do", side_effect=MemoryError), \
                self.assertRaises(MemoryError):
            change.setup(on, self.state, set_up("--vip", VIP6, "--tunnel",
                                                "ipip"))
        change.clear(on, self.state)
        self.assertEqual(on.sysctls, before)
        self.assertEqual((on.holders(VIP4), on.remarks), ([], None))

    def test_what_was_there_stays(self):
        on = FakeHost(sysctls={"net.ipv4.conf.all.arp_announce": "1"})
        on.devices["lo"]["addr_info"].append(entry(VIP4, 32))
        before = on.looks()
        change.setup(on, self.state, set_up("--vip", f"{VIP4},{VIP6}"))
        change.clear(on, self.state)
        self.assertEqual(on.looks(), before)

    def test_the_first_value_is_put_back(self):
        on = FakeHost()
        name = "net.ipv4.conf.all.arp_announce"
        on.sysctls[name] = "1"
        change.setup(on, self.state, set_up("--vip", VIP4))
        on.sysctls[name] = "0"
        change.setup(on, self.state, set_up("--vip", VIP4))
        change.clear(on, self.state)
        self.assertEqual(on.sysctls[name], "1")

    def test_clear_that_fails_can_be_repeated(self):
        on = FakeHost()
        change.setup(on, self.state, set_up("--vip", VIP4, "--mss", "1400"))
        on.fail = "nft delete"
        with self.assertRaises(ToolError) as caught:
            change.clear(on, self.state)
        self.assertIn("run 'real_server clear' again", str(caught.exception))
        self.assertEqual(on.holders(VIP4), [])
        on.fail = ""
        self.assertTrue(change.clear(on, self.state))
        self.assertIsNone(on.remarks)

    def test_a_state_file_that_cannot_be_read(self):
        Path(self.state._path).write_text("{}")
        with self.assertRaises(ToolError) as caught:
            self.state.load()
        self.assertIn("remove that file", str(caught.exception))


class Check(unittest.TestCase):
    def found(self, on, *argv):
        return list(faults.faults_of(set_up(*argv), on))

    def good(self, *links):
        on = FakeHost(*links, sysctls={
            "net.ipv4.conf.all.arp_ignore": "1",
            "net.ipv4.conf.all.arp_announce": "2"})
        on.devices["lo"]["addr_info"] += [entry(VIP4, 32), entry(VIP6, 128)]
        return on

    def test_a_good_one_is_quiet(self):
        self.assertEqual(self.found(self.good(), "--vip", f"{VIP4},{VIP6}"), [])

    def test_a_fault_of_two_directors_is_said_once(self):
        part = mock.Mock()
        part.faults.side_effect = lambda on: iter([parts.Fault("text", "remedy")])
        with mock.patch.object(faults, "parts_of", lambda *_: [part, part]):
            self.assertEqual([f.text for f in self.found(self.good(), "--vip", VIP4)
                              ].count("text"), 1)

    def test_an_address_of_the_host_itself(self):
        for vip, addresses, source, own in (
                (VIP4, [(VIP4, 24)], None, True),
                (VIP4, [(VIP4, 24), ("192.0.2.9", 24)], VIP4, True),
                (VIP4, [("192.0.2.9", 24), (VIP4, 32)], "192.0.2.9", False),
                (VIP4, [("192.0.2.9", 24)], None, False),
                (VIP6, [(VIP4, 24), (VIP6, 64)], None, True),
                (VIP6, [("2001:db8::9", 64), (VIP6, 64)], None, False)):
            on = self.good()
            on.devices["eth0"] = link("eth0", "UP", addresses=addresses)
            on.source = source
            with self.subTest(addresses=addresses), \
                    mock.patch.object(cli, "Host", lambda: on):
                self.assertEqual(on.own(vip), "eth0" if own else None)
                said = "".join(f.remedy for f in self.found(on, "--vip", vip))
                self.assertEqual("address del" in said,
                                 not own and vip in dict(addresses))
                err = io.StringIO()
                with contextlib.redirect_stderr(err), \
                        contextlib.redirect_stdout(err):
                    status = cli.main(["setup", "--dry-run", "--vip", vip])
                self.assertEqual(status, 125 if own else 0)
                self.assertEqual("own address, on eth0" in err.getvalue(), own)
                self.assertEqual(on.done, [])

    def test_arp_is_judged_for_each_device(self):
        on = self.good(link("eth1", "UP"), link("eth2"),
                       link("wg0", "UP", "NOARP", kind="none"))
        on.sysctls["net.ipv4.conf.all.arp_ignore"] = "0"
        on.sysctls["net.ipv4.conf.eth0.arp_ignore"] = "1"
        on.sysctls["net.ipv4.conf.eth1.arp_ignore"] = "8"
        for device in "eth1", "eth2", "wg0":
            on.sysctls[f"net.ipv4.conf.{device}.arp_announce"] = "0"
        self.assertEqual(self.found(on, "--vip", VIP4), [])
        on.sysctls["net.ipv4.conf.eth1.arp_ignore"] = "3"
        on.sysctls["net.ipv4.conf.all.arp_ignore"] = "1"
        self.assertEqual([fault.remedy for fault in self.found(
            on, "--vip", VIP4)],
            ["sysctl -w net.ipv4.conf.eth1.arp_ignore=1"])

    def test_one_line_for_all_devices(self):
        on = self.good(link("eth1", "UP"))
        on.sysctls["net.ipv4.conf.all.arp_ignore"] = "0"
        on.sysctls["net.ipv4.conf.eth1.arp_ignore"] = "0"
        on.sysctls["net.ipv4.conf.eth1.arp_announce"] = "0"
        self.assertEqual([fault.remedy for fault in self.found(
            on, "--vip", VIP4)],
            ["sysctl -w net.ipv4.conf.all.arp_ignore=1"])

    def test_each_fault_is_one_line_with_a_remedy(self):
        on = FakeHost(link("eth1", "UP", addresses=[(VIP4, 24)], mtu=1300))
        for device in "arp_ignore", "arp_announce":
            on.sysctls[f"net.ipv4.conf.eth1.{device}"] = "0"
        those = self.found(on, "--vip", f"{VIP4},{VIP6}", "--tunnel",
                           "ipip,gre,gue", "--outer", "ipv4,ipv6", "--mss",
                           "1500", "--port", "80")
        self.assertGreater(len(those), 15)
        for fault in those:
            self.assertTrue(fault.text and fault.remedy)
            self.assertNotIn("\n", fault.text + fault.remedy)

    def test_sizes(self):
        """As the director's packets are: tools/testing/.../pmtu.sh."""
        for vip, tunnel, fits in ((VIP4, "ipip", 1440), (VIP4, "gre", 1436),
                                  (VIP4, "gue", 1428), (VIP6, "ipip", 1400),
                                  (f"{VIP4},{VIP6}", "gue", 1388)):
            argv = "--vip", vip, "--tunnel", tunnel
            self.assertEqual(faults.largest_mss(set_up(*argv), 1500), fits)

    def sizes(self, mtu, *argv):
        on = self.good()
        on.devices["eth0"]["mtu"] = mtu
        return [fault for fault in self.found(
            on, "--vip", VIP4, *argv) if "MTU" in fault.text]

    def test_sizes_are_compared(self):
        tunnel = "--tunnel", "ipip"
        self.assertEqual(self.sizes(1500), [])
        self.assertEqual(self.sizes(1500, *tunnel, "--mss", "1440"), [])
        self.assertEqual(self.sizes(1520, *tunnel), [])
        self.assertEqual([(fault.severity, fault.remedy) for fault in
                          self.sizes(1500, *tunnel)], [
            ("warning", f"real_server setup --vip {VIP4} --tunnel ipip "
                        "--mss 1440")])
        self.assertEqual([fault.severity for fault in
                          self.sizes(1500, *tunnel, "--mss", "1441")],
                         ["error"])

    def test_the_way_back(self):
        on = self.good()
        for route, there, severities in (
                ({}, (), ["warning"]), ({"dev": "eth0", "gateway": "192.0.2.254"},
                                        (), ["error"]),
                ({"dev": "eth0", "gateway": "192.0.2.254"}, ("192.0.2.254",), []),
                ({"dev": "eth0", "gateway": "fe80::1"}, (), []),
                ({"dev": "tunl0", "gateway": "192.0.2.254"}, (), [])):
            on.route, on.there = route, there
            on._absent = {"192.0.2.254"} - {*there}
            self.assertEqual([fault.severity for fault in
                              self.found(on, "--vip", VIP4)], severities)

    def test_strict_rp_filter_where_answers_leave_by_another_device(self):
        for dev, strict, dropped, said in (
                ("eth1", 1, 9, 1), ("eth1", 1, 0, 0), ("eth1", 2, 9, 0),
                ("eth0", 1, 9, 0)):
            on = self.good(link("eth1", "UP", "NOARP"))
            on.route = {"dev": dev}
            on.sysctls["net.ipv4.conf.eth0.rp_filter"] = str(strict)
            text = f"TcpExt: A IPReversePathFilter\nTcpExt: 1 {dropped}\n"
            with mock.patch.object(host, "_proc", {"netstat": text, "ip_vs": ""}.get):
                self.assertEqual([fault.remedy for fault in self.found(
                    on, "--vip", VIP4)],
                    ["sysctl -w net.ipv4.conf.eth0.rp_filter=2"] * said)

    def test_a_director(self):
        text = "TCP  C0000201:0050 mhs\n  -> C0000202:0050      Route   1 0 0\n" \
               "UDP  [2001:0db8:0000:0000:0000:0000:0000:0001]:0035 mhs\n"
        with mock.patch.object(host, "_proc", lambda name: text):
            for vip, there in ((VIP4, 1), (VIP6, 1), ("192.0.2.2", 0)):
                self.assertEqual(host.Host.is_director(vip), there)
            self.assertEqual([fault.severity for fault in self.found(
                self.good(), "--vip", VIP4)], ["warning"])
            with mock.patch.object(cli, "Host", self.good), \
                    contextlib.redirect_stderr(io.StringIO()) as err:
                self.assertEqual(cli.main(["setup", "-n", "--vip", VIP4]), 125)
            self.assertIn("give this command on the servers", err.getvalue())

    def test_no_address_goes_by_accident(self):
        record = state.Record([set_up("--vip", VIP4)], {})
        for argv, config, status, said in (
                ((VIP6,), "", 125, f"real_server setup --vip {VIP4} --vip {VIP6};"),
                ((VIP4, VIP6), "", 0, ""), ((), VIP6, 0, f"{VIP4} goes")):
            with tempfile.NamedTemporaryFile("w") as file, \
                    mock.patch.object(cli, "Host", FakeHost), \
                    mock.patch.object(state.State, "load", lambda _: record), \
                    contextlib.redirect_stdout(io.StringIO()), \
                    contextlib.redirect_stderr(io.StringIO()) as err:
                file.write(f"vip = {config}\n")
                file.flush()
                self.assertEqual(cli.main(["setup", "-n", *(
                    ["--vip", ",".join(argv)] if argv else ["-c", file.name])]), status)
            self.assertIn(said, err.getvalue())

    def deaf(self, ss, *argv, vips=f"{VIP4},{VIP6}", rules=""):
        on = self.good()
        on.ruleset = rules
        on.ss = "".join(f"{words[0]} LISTEN 0 128 {words[1]} 0.0.0.0:*\n"
                        for words in ss)
        return [fault.text.split()[3] for fault in self.found(
            on, "--vip", vips, "--port", "80", *argv)
            if "listens" in fault.text]

    def test_who_listens(self):
        for local, missing in (
                ("*:80", []), ("0.0.0.0:80", [VIP6]), ("[::]:80", [VIP4]),
                (f"{VIP4}:80", [VIP6]), (f"[{VIP6}]:80", [VIP4]),
                ("*%eth0:80", []), ("*%eth1:80", [VIP4, VIP6]),
                ("127.0.0.1:80", [VIP4, VIP6]), ("*:8080", [VIP4, VIP6])):
            self.assertEqual(self.deaf([("tcp", local)]), missing, local)
        self.assertEqual(self.deaf([("udp", "*:80")]), [VIP4, VIP6])
        for port, missing in (80, []), (8080, [VIP4, VIP6]), ("@web", [VIP4, VIP6]):
            self.assertEqual(self.deaf([], rules=f"tcp dport {port} dnat to :81"),
                             missing)
        self.assertEqual(self.deaf([("tcp", "*%eth0:80")], "--tunnel", "ipip",
                                   vips=VIP4), [VIP4])


class Documents(unittest.TestCase):
    PAGE = (TOP / "Documentation/man/real_server.8").read_text()
    COMPLETION = (TOP / "scripts/real_server.bash-completion").read_text()

    def test_every_option_is_in_both(self):
        shown = io.StringIO()
        for command in "setup", "check", "clear", "show", "drained":
            with contextlib.redirect_stdout(shown), \
                    self.assertRaises(SystemExit):
                options.parser().parse_args([command, "--help"])
        names = set(re.findall(r"--([a-z][a-z-]+)", shown.getvalue()))
        self.assertGreater(len(names), 8)
        for name in names:
            self.assertIn(f"Fl -{name}", self.PAGE)
            self.assertIn(f"--{name}", self.COMPLETION)
