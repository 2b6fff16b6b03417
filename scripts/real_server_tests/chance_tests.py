# SPDX-License-Identifier: GPL-2.0-only
"""The second chance: which services have it, and whom a server asks for a packet
that is not its own."""

import random
import struct
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

from ipvs_mhs_tool import ToolError, UsageError  # noqa: E402
from real_server_lib import (chance, chance_follow, chance_map,  # noqa: E402
                             chance_options, chance_parts, chance_slots)
from real_server_lib.chance_slots import Server, ServerSet  # noqa: E402

A, B, C, D = (f"10.2.0.1{n}" for n in range(4))
DAY = 24 * 3600


def services(text, *names):
    """Of a file with this text."""
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(text)
        file.flush()
        return chance_options.lists_of(SimpleNamespace(
            servers=[file.name], service=list(names)))[0]


class Refused(unittest.TestCase):
    def why(self, text):
        with self.assertRaises(ToolError) as caught:
            services(text)
        return str(caught.exception)

    def test_what_has_no_second_chance(self):
        tcp = "-A -t 192.0.2.1:80 -s mhs\n-a -t 192.0.2.1:80 -r 10.0.0.1:80 "
        for text, words in (
                ("-A -u 192.0.2.1:53 -s mhs\n-a -u 192.0.2.1:53 -r 10.0.0.1:53 "
                 "-g -w 1\n", "only TCP"),
                ("-A --sctp-service 192.0.2.1:53 -s mhs\n-a --sctp-service "
                 "192.0.2.1:53 -r 10.0.0.1:53 -g -w 1\n", "only TCP"),
                ("-A -f 7 -s mhs\n-a -f 7 -r 10.0.0.1:0 -g -w 1\n", "only TCP"),
                (tcp.replace("mhs", "wlc") + "-g -w 1", "scheduler is wlc"),
                (tcp.replace("mhs", "mhs -p 300") + "-g -w 1", "persistence"),
                (tcp + "-m -w 1\n", "masquerading"),
                (tcp + "-i -w 1 --tun-type gue --tun-port 6080\n", "GUE"),
                (tcp + "-i -w 1 --tun-type gre\n", "GRE"),
                (tcp.replace("10.0.0.1:80", "10.0.0.1:81") + "-g -w 1\n",
                 "another port"),
                (tcp + "-i -w 1\n-a -t 192.0.2.1:80 -r [2001:db8::1]:80 -i "
                 "-w 1\n", "both families")):
            self.assertIn(words, self.why(text))

    def test_control_what_has_one(self):
        found, = services(
            "-A -t [2001:db8::1]:80 -s mhs -b flag-3\n"
            "-a -t [2001:db8::1]:80 -r [2001:db8::12]:80 -i -w 2\n"
            "-a -t [2001:db8::1]:80 -r [2001:db8::11]:80 -g -w 0\n")
        self.assertEqual(found, chance_options.Service(
            "2001:db8::1", 80, True, True, (
                Server("2001:db8::11", 80, 0), Server("2001:db8::12", 80, 2))))

    def test_services_of_keepalived_have_the_name_mh(self):
        found, = services("-A -t 192.0.2.1:80 -s mh -b mh-fallback\n"
                          "-a -t 192.0.2.1:80 -r 10.0.0.1:80 -g -w 1\n")
        self.assertEqual((found.name, found.addr_only), ("192.0.2.1:80", False))

    def test_others_in_the_file_are_left_out(self):
        text = "-A -u 192.0.2.1:53 -s mhs\n-A -t 192.0.2.1:80 -s mhs\n"
        with mock.patch("sys.stderr") as stderr:
            found, = services(text)
        self.assertEqual((found.name, found.servers), ("192.0.2.1:80", ()))
        self.assertIn("only TCP", str(stderr.write.call_args_list))

    def test_servers_with_ipv6_addresses_need_linux_5_14(self):
        text = "-A -t [2001:db8::1]:80 -s mhs\n" \
               "-a -t [2001:db8::1]:80 -r [2001:db8::12]:80 -i -w 2\n"
        for release, works in (("5.10.0-32-amd64", False), ("5.14.0", True),
                               ("5.13-rc1", False), ("6.1.0", True)):
            with mock.patch("os.uname") as uname:
                uname.return_value.release = release
                if works:
                    self.assertEqual(len(services(text)), 1)
                else:
                    self.assertIn("5.14", self.why(text))

    def test_others_in_the_file_do_not_matter_for_one(self):
        text = "-A -u 192.0.2.1:53 -s mhs\n-A -t 192.0.2.1:80 -s mhs\n" \
               "-a -t 192.0.2.1:80 -r 10.0.0.1:80 -g -w 1\n"
        found, = services(text, "192.0.2.1:80")
        self.assertEqual(found.name, "192.0.2.1:80")
        with self.assertRaisesRegex(UsageError, "no service TCP 192.0.2.1:81"):
            services(text, "192.0.2.1:81")

    def test_an_empty_file_is_no_order_to_forget(self):
        self.assertIn("chance clear", self.why(""))


class Sets(unittest.TestCase):
    def servers(self, *addresses):
        return tuple(Server(address, 80, 1) for address in addresses)

    def test_the_same_set_is_no_change(self):
        sets = chance_slots.with_new([], self.servers(B, A))
        self.assertEqual(chance_slots.with_new(sets, self.servers(A, B)), sets)

    def test_former_sets_end_after_a_day(self):
        with mock.patch("time.time", return_value=1000):
            first = chance_slots.with_new([], self.servers(A, B))
            sets = chance_slots.with_new(first, self.servers(A))
        self.assertEqual([s.until for s in sets], [None, 1000])
        for now, left in ((1000 + DAY - 1, 2), (1000 + DAY, 1)):
            with mock.patch("time.time", return_value=now):
                self.assertEqual(len(chance_slots.with_new(
                    sets, self.servers(A))), left)

    def test_there_are_never_many(self):
        sets = []
        for n in range(100):
            with mock.patch("time.time", return_value=n):
                sets = chance_slots.with_new(sets, [Server(A, 80, n)])
        self.assertEqual([s.servers[0].weight for s in sets],
                         list(range(99, 91, -1)))

    def several(self, *told):
        """The sets after all that; each is the lists of the directors."""
        sets = []
        for now, lists in enumerate(told):
            with mock.patch("time.time", return_value=1000 + now):
                sets = chance_slots.with_new(sets, *map(tuple, lists))
        return [(s.servers, s.until) for s in sets]

    def test_directors_that_disagree(self):
        one, two = self.servers(A, B), self.servers(A)
        for told, want in (
                ([[one, one]], [(one, None)]),
                ([[one, one], [two, one]], [(two, None), (one, None)]),
                ([[one, one], [one, two]], [(two, None), (one, None)]),
                ([[one, one], [one, two], [two, two]],
                 [(two, None), (one, 1002)]),
                # there and back: the first set is one that a director has
                ([[one, one], [one, two], [one, one]],
                 [(one, None), (two, 1002), (one, 1002)])):
            self.assertEqual(self.several(*told), want)

    def test_a_flap_is_forgotten_and_its_servers_are_not(self):
        drained, now, flap = (self.servers(*those)
                              for those in ((A, B), (B,), (B, C)))
        sets = self.several([drained], *([[now], [flap]] * 20), [now])
        self.assertEqual([servers for servers, _ in sets],
                         [now, flap, now, drained])
        self.assertEqual([until for _, until in sets], [None, 1041, 1040, 1001])

    def test_of_too_many_the_shortest_go(self):
        sets = []
        for n, now in enumerate((0, 1000, *range(5000, 5012))):
            with mock.patch("time.time", return_value=now):
                sets = chance_slots.with_new(sets, [Server(A, 80, n)])
        self.assertEqual([s.servers[0].weight for s in sets],
                         [13, 12, 11, 10, 9, 8, 1, 0])

    def test_what_a_director_has_is_never_forgotten(self):
        stays = self.servers(A, B)
        sets = self.several([stays], *([stays, (Server(A, 80, n),)]
                                       for n in range(100)))
        self.assertEqual(len(sets), 8)
        self.assertEqual([until for _, until in sets].count(None), 2)
        self.assertIn((stays, None), sets)


class FakeFiller:
    """Makes tables of few slots."""

    def __init__(self, slots=60):
        self.slots = slots

    def table(self, servers):
        names = [server.address for server in servers if server.weight] or [None]
        return SimpleNamespace(fingerprint=f"{len(names)}", slots=[
            names[slot * 7919 // (len(names) + 1) % len(names)]
            for slot in range(self.slots)])


class Circles(unittest.TestCase):
    """Servers that were told the same ask every owner once, and then nobody."""

    ALL = (A, B, C, D)

    def sets(self, *those):
        return [ServerSet(tuple(Server(a, 80, 1) for a in addresses),
                          None if n == 0 else 1.0)
                for n, addresses in enumerate(those)]

    def circles(self, sets, dead=()):
        return {me: chance_slots.circles_of(FakeFiller(), sets, me, list(dead))
                for me in self.ALL}

    def walk(self, circles, slot, start):
        """Who is asked when nobody has the flow."""
        asked, at, count = [], start, 0
        while True:
            those = circles[at]
            word = those.words[slot]
            if count >= word >> 24 & 0x7f:
                return asked
            count += bool(asked or not word >> 31)
            at = those.addresses[word & 0x7fffff]
            asked.append(at)

    def owners(self, sets, slot):
        return list(dict.fromkeys(FakeFiller().table(s.servers).slots[slot]
                                  for s in sets))

    def test_each_owner_is_asked_once(self):
        for those in ([self.ALL], [(A, B, C), self.ALL],
                      [self.ALL, (B, C, D), self.ALL],
                      [(C, D), (A, C), (A, B, C, D)], [(A,), (B,), (C,), (D,)]):
            sets = self.sets(*those)
            circles = self.circles(sets)
            for slot in range(60):
                owners = self.owners(sets, slot)
                for start in owners:
                    asked = self.walk(circles, slot, start)
                    self.assertLessEqual(set(owners) - {start}, set(asked))
                    self.assertLessEqual(len(asked), len(owners) + 1)

    def test_a_stranger_asks_all_owners(self):
        sets = self.sets((A, B), (B, C))
        circles = self.circles(sets)
        for slot in range(60):
            owners = self.owners(sets, slot)
            asked = self.walk(circles, slot, D)
            self.assertLessEqual(set(owners), set(asked))

    def test_some_are_told_of_a_change_of_which_others_are_not(self):
        old = self.sets(self.ALL, (B, C, D), (C, D))
        new = self.sets((B, C, D), self.ALL, (B, C, D), (C, D))
        for told in ([A], [B], [C], [A, B], [B, C], [C, D], [B, D]):
            circles = {me: chance_slots.circles_of(
                FakeFiller(), new if me in told else old, me, [])
                for me in self.ALL}
            for slot in range(60):
                owners = self.owners(old, slot)
                for start in owners:
                    self.assertLessEqual(set(owners) - {start},
                                         set(self.walk(circles, slot, start)))

    def test_whatever_changed_before_and_whoever_was_told(self):
        dice = random.Random(1)
        for _ in range(200):
            new = self.sets(*(dice.sample(self.ALL, dice.randint(1, 4))
                              for _ in range(dice.randint(2, 6))))
            circles = {me: chance_slots.circles_of(
                FakeFiller(), new[dice.randint(0, 1):], me, [])
                for me in self.ALL}
            for slot in range(60):
                owners = self.owners(new[1:], slot)
                for start in owners:
                    self.assertLessEqual(set(owners) - {start},
                                         set(self.walk(circles, slot, start)))

    def test_a_new_owner_asks_the_newest_former_one(self):
        circles = self.circles(self.sets((B,), (D,), (A,), (C,)))
        self.assertEqual(self.walk(circles, 0, B)[:3], [D, A, C])

    def test_servers_that_disagree_end(self):
        told = {me: self.sets(*those) for me, those in (
            (A, [(B,)]), (B, [(C,), (D,)]), (C, [(A,), (B,)]), (D, [(A, B)]))}
        circles = {me: chance_slots.circles_of(FakeFiller(), told[me], me, [])
                   for me in self.ALL}
        for slot in range(60):
            for start in self.ALL:
                self.assertLessEqual(len(self.walk(circles, slot, start)), 4)

    def test_the_dead_are_not_asked(self):
        sets = self.sets((B, C, D), self.ALL)
        circles = self.circles(sets, [A])
        for slot in range(60):
            for start in (B, C, D):
                self.assertNotIn(A, self.walk(circles, slot, start))
        control = self.circles(sets)
        self.assertTrue(any(A in self.walk(control, slot, B)
                            for slot in range(60)))

    def test_a_server_that_was_away_asks_who_had_its_slots(self):
        sets = self.sets(self.ALL)
        mine = chance_slots.circles_of(FakeFiller(), sets, A, [])
        away = FakeFiller().table([Server(a, 80, 1) for a in (B, C, D)]).slots
        now = FakeFiller().table(sets[0].servers).slots
        for slot, word in enumerate(mine.words):
            self.assertEqual(word >> 24 & 0x7f, 2)
            self.assertEqual(bool(word & 1 << 23), now[slot] == A)
            self.assertEqual(mine.addresses[word & 0x7fffff],
                             away[slot] if now[slot] == A else now[slot])


class Pinned(unittest.TestCase):
    def test_either_name_that_bpftool_gives(self):
        for name in "mhs_chance", "classifier":
            with tempfile.TemporaryDirectory() as directory:
                path = Path(directory, name)
                path.touch()
                self.assertEqual(chance_parts.program_path(directory), str(path))


class Rows(unittest.TestCase):
    def test_shape(self):
        key = bytes(range(16))
        data = chance_map.rows(key.hex(), [1, 2, 3, 4, 5], [A, "2001:db8::1"],
                               9, 3, 7)
        words = struct.unpack(f"={len(data) // 4}I", data)
        self.assertEqual(struct.pack("<2Q", *struct.unpack("=2Q", data[:16])),
                         key)
        self.assertEqual(words[4:8], (5, 7, 9, 3))
        self.assertEqual(words[8:16], (1, 2, 3, 4, 5, 0, 0, 0))
        self.assertEqual(data[64:80], bytes([10, 2, 0, 10]) + bytes(12))
        self.assertEqual(len(data), 6 * 16)

    def test_service(self):
        self.assertEqual(chance_map.service_key("192.0.2.1", 80),
                         bytes([192, 0, 2, 1]) + bytes(12) + b"\0P" +
                         struct.pack("=H", 2))


class Me(unittest.TestCase):
    def test_each_service_has_servers_of_its_own(self):
        host = SimpleNamespace(addresses=lambda: {A, "fd02::10"})
        for mine, others in ((A, B), ("fd02::10", "fd02::11"), (None, C)):
            servers = [Server(address, 80, 1) for address in (others, mine)
                       if address]
            self.assertEqual(chance._me(host, [ServerSet(servers)]), mine)

    def test_a_server_that_was_deleted_knows_its_former_address(self):
        host = SimpleNamespace(addresses=lambda: {A})
        sets = [ServerSet((Server(B, 80, 1),)),
                ServerSet((Server(A, 80, 1), Server(B, 80, 1)), 1.0)]
        self.assertEqual(chance._me(host, sets), A)
        those = chance_slots.circles_of(FakeFiller(), sets, A, [])
        self.assertNotIn(A, {those.addresses[word & 0x7fffff]
                             for word in those.words if word >> 24 & 0x7f})


def record_of(*servers, **words):
    """Of one service"""
    return chance.Record({"services": {"192.0.2.1:80": {
        "address": "192.0.2.1", "port": 80, "tunnels": True, "sets": [
            [[[address, 80, 1] for address in servers], None]]}}, **words})


class Told(unittest.TestCase):
    """What a call takes from those before."""

    def service(self, *servers):
        return chance_options.Service("192.0.2.1", 80, False, False, tuple(
            Server(address, 80, 1) for address in servers))

    def dead(self, old, *servers, dead=(), alive=()):
        return chance._dead(SimpleNamespace(dead=dead, alive=alive), old,
                            [[self.service(*servers)]], None)

    def test_the_dead_stay_dead_until_they_are_back(self):
        self.assertEqual(self.dead(record_of(A, B), A, B, dead=[A]), [A])
        self.assertEqual(self.dead(record_of(A, B, dead=[A]), A, B), [A])
        self.assertEqual(self.dead(record_of(A, B, dead=[A]), B), [A])
        self.assertEqual(self.dead(record_of(B, dead=[A]), B, C), [A])
        self.assertEqual(self.dead(record_of(B, dead=[A]), A, B), [])
        self.assertEqual(self.dead(record_of(B, dead=[A]), B, alive=[A]), [])

    def test_a_service_without_servers_keeps_the_last_ones(self):
        with mock.patch("sys.stderr"):
            (service, sets), = chance._with_sets([[self.service()]],
                                                 record_of(A, B))
            self.assertEqual(list(chance._with_sets([[self.service()]],
                                                    chance.Record())), [])
        self.assertEqual([s.address for s in service.servers], [A, B])
        self.assertEqual((service.tunnels, len(sets)), (True, 1))

    def test_a_service_has_the_servers_of_all_directors(self):
        (_, sets), = chance._with_sets([[self.service(A)], [self.service(A, B)],
                                        [self.service()], []], record_of(A))
        self.assertEqual([[s.address for s in one.servers] for one in sets],
                         [[A, B], [A]])

    def test_a_follower_keeps_what_no_director_has_for_a_day(self):
        old = record_of(A)
        for now, later, left in ((1000, 1000, 1), (1000, 1000 + DAY - 1, 1),
                                 (1000, 1000 + DAY, 0)):
            with mock.patch("time.time", return_value=now):
                (service, sets), = chance._with_sets([[]], old, True)
            self.assertEqual((service.name, service.servers[0].address),
                             ("192.0.2.1:80", A))
            old.services[service.name]["sets"] = sets
            with mock.patch("time.time", return_value=later):
                self.assertEqual(len(list(chance._with_sets([[]], old, True))),
                                 left)
        self.assertEqual(list(chance._with_sets([[]], old)), [])

    def test_a_follower_computes_what_has_changed(self):
        known, filler = chance_follow.Known(), FakeFiller()
        filler.size, filler.key = 60, ""
        sets = [ServerSet((Server(A, 80, 1), Server(B, 80, 1)))]
        with mock.patch.object(chance, "circles_of",
                               mock.Mock(side_effect=range(9))) as of:
            for name, dead, count in (("a", [], 0), ("a", [], 0), ("b", [], 1),
                                      ("a", [B], 2), ("b", [], 1), ("a", [], 3)):
                self.assertEqual(chance._circles(known, name, filler, sets, A,
                                                 dead), count)
            self.assertEqual(of.call_count, 4)

    def test_a_follower_writes_what_has_changed(self):
        known, there, written = chance_follow.Known(), {}, []
        record, host = record_of(A), mock.Mock()
        record.layouts = [chance.Layout("", "/x", [], [], [])]
        record.services["192.0.2.1:80"]["away_until"] = 0
        host.links.return_value = {chance.TUNNELS[4][0]: {"ifindex": 3}}

        def write(_path, key, data):
            written.append(data)
            there[key] = len(written)

        def put(words):
            chance._write(host, record, [(self.service(A), [], chance_slots.Circles(
                words, [A], ""))], "12" * 16, [], known)

        with mock.patch.multiple(chance.chance_map, write=write, find=mock.Mock(),
                                 number=lambda _, key: there.get(key)):
            for words, count in (([1], 1), ([1], 1), ([2], 2), ([2], 2)):
                put(words)
                self.assertEqual(len(written), count)
            there.clear()       # somebody has cleared it
            put([2])
            self.assertEqual(len(written), 3)
            known.end({})
            put([2])
            self.assertEqual(len(written), 4)

    def test_a_follower_knows_who_is_back(self):
        known = chance_follow.Known()
        for back, want in ((set(), [A]), ({A}, [])):
            known.back = back
            self.assertEqual(chance._dead(
                SimpleNamespace(dead=[], alive=[]), record_of(B, dead=[A]),
                [[self.service(A, B)], [self.service(B)]], known), want)

    def test_the_key_is_that_of_the_map(self):
        key, other = "12" * 16, "34" * 16
        no = SimpleNamespace(hash_key_file=None)
        old = record_of(A, print=chance.module.key_print(key),
                        layouts=[["", "/x", [], [], []]])
        for there, works in ((key, True), (other, False), (None, False)):
            with mock.patch.object(chance.chance_map, "head", return_value=there
                                   and (there, 251, 3)):
                if works:
                    self.assertEqual(chance._key(no, old), key)
                else:
                    with self.assertRaisesRegex(ToolError, "key"):
                        chance._key(no, old)
        self.assertEqual(chance._key(no, chance.Record()),
                         chance.module.DEFAULT_KEY)


class Part:
    """Of a Host: a word in its set"""

    hint = "a hint"

    def __init__(self, key):
        self.key = key

    def making(self, host):
        return [] if self.key in host.there else [["make", self.key]]

    def before(self, _host):
        return None

    def undoing(self, host, _before):
        return [["undo", self.key]] if self.key in host.there else []


class FakeHost:
    def __init__(self, fails):
        self.there, self.fails = set(), fails

    def do(self, argv):
        if argv in self.fails:
            raise self.fails[1]
        (self.there.add if argv[0] == "make" else self.there.remove)(argv[1])


class FakeLayout(SimpleNamespace):
    def parts(self):
        return [Part(key) for key in self.keys[:1]], \
            [Part(key) for key in self.keys[1:]]


class Failures(unittest.TestCase):
    """What cannot be finished is undone; the record has whatever is there."""

    def change(self, *fails):
        host, saved = FakeHost(fails), []
        host.there |= {"program 1", "filter 1"}
        store = SimpleNamespace(save=lambda record: saved.append(
            [layout.name for layout in record.layouts]))
        old, record = chance.Record(), chance.Record()
        old.layouts = [FakeLayout(name="old", keys=["program 1", "filter 1"])]
        record.layouts = [*old.layouts, FakeLayout(
            name="new", keys=["program 2", "filter 2", "filter 3"])]
        record.made = dict.fromkeys(host.there)
        with mock.patch.multiple(chance, _write=mock.Mock(
                side_effect=lambda *args: args[4].append(("map", "key", None))),
                _put_back=mock.Mock(return_value=[])) as _:
            try:
                chance._change(host, store, old, record, [], "")
            except BaseException as error:
                return host, saved, error, chance._put_back.call_args
        return host, saved, record, None

    def test_control_all_works_and_the_former_parts_go(self):
        host, saved, record, _ = self.change()
        self.assertEqual(chance._undo_former(host, record), [])
        self.assertEqual(host.there, {"program 2", "filter 2", "filter 3"})
        self.assertEqual([layout.name for layout in record.layouts], ["new"])
        # whoever kills it at any time leaves both in the file
        self.assertEqual({tuple(names) for names in saved}, {("old", "new")})

    def test_all_is_undone_whatever_fails(self):
        for wrong in ToolError("no"), OSError("no"), KeyboardInterrupt():
            host, saved, error, put_back = self.change(["make", "filter 3"],
                                                       wrong)
            self.assertEqual(host.there, {"program 1", "filter 1"})
            self.assertEqual(saved[-1], ["old"])
            self.assertEqual(isinstance(error, ToolError),
                             not isinstance(wrong, KeyboardInterrupt))
            self.assertEqual(put_back.args, ([("map", "key", None)],))

    def test_what_cannot_be_undone_is_in_the_record(self):
        wrong = ToolError("no")
        with mock.patch.object(FakeHost, "do", lambda host, argv: host.there.add(
                argv[1]) if argv[1] == "program 2" and argv[0] == "make"
                else exec("raise wrong", {"wrong": wrong})):
            host, saved, _, _ = self.change()
        self.assertIn("program 2", host.there)
        self.assertEqual(saved[-1], ["old", "new"])


if __name__ == "__main__":
    unittest.main()
