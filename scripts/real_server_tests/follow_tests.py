# SPDX-License-Identifier: GPL-2.0-only
"""Servers that follow directors: whose list is believed, what hostile peers can do, and
when a list is set."""

import asyncio
import contextlib
import os
import socket
import sys
import tempfile
import time
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

from ipvs_mhs_tool import ToolError  # noqa: E402
from real_server_lib import chance, chance_follow, chance_tell  # noqa: E402
from real_server_lib.chance_tell import NO_DIGEST, Refused  # noqa: E402

KEY, OTHER = b"0123456789abcdef", b"0123456789abcdeF"
LIST = b"-A -t 192.0.2.1:80 -s mhs\n-a -t 192.0.2.1:80 -r 10.2.0.1:80 -g -w 1\n"
DIGEST = chance_tell.digest_of(LIST)
NONCE = b"5" * 32
GREETING = b"real_server 1 " + NONCE


def told(text=LIST, *followers, size="-", key="-"):
    return chance_tell.Told(size, key, list(followers), text)


async def stop(task):
    """wait_for() of some Pythons swallows one"""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=.1)
    with contextlib.suppress(asyncio.CancelledError, ToolError):
        task.result()


class Director(unittest.IsolatedAsyncioTestCase):
    """One that answers here"""

    async def asyncSetUp(self):
        for name, value in (("HOLD_S", .2), ("READ_S", 20), ("_SET_S", 20),
                            ("_LOOK_S", .01)):
            self.patch(chance_tell, name, value)
        self.said = []
        self.patch(chance_tell, "print", lambda words, **_: self.said.append(words),
                   create=True)
        self.list = LIST
        self.port = self.director(KEY)
        await self.until(lambda: self.teller._list is not None)

    def patch(self, *args, **words):
        patch = mock.patch.object(*args, **words)
        patch.start()
        self.addCleanup(patch.stop)

    async def until(self, condition):
        async def wait():
            while not condition():
                await asyncio.sleep(.01)
        await asyncio.wait_for(wait(), 20)

    def read(self):
        if isinstance(self.list, Exception):
            raise self.list
        return self.list

    def director(self, key):
        sock = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(sock.close)
        self.teller = chance_tell.Teller(key, self.read)
        self.task = asyncio.ensure_future(self.teller.run([sock]))
        self.addAsyncCleanup(stop, self.task)
        return sock.getsockname()[1]

    async def link(self, key=KEY, port=None):
        link = chance_tell.Link("127.0.0.1", port or self.port, key)
        self.addCleanup(link.close)
        await link.open()
        return link


class Hostile(Director):
    """Who talks with it"""

    async def raw(self, *parts):
        """What the director says to that, until it closes the connection"""
        chance_tell._SET_S = .2
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.addCleanup(writer.close)
        nonce = await reader.readline()
        with contextlib.suppress(OSError):
            for part in parts:
                writer.write(part(nonce, writer) if callable(part) else part)
            return await asyncio.wait_for(reader.read(), 20)
        return b""

    def question(self, nonce, writer, key=KEY):
        return chance_tell.Proofs(key, writer.get_extra_info("peername"),
                                  nonce.strip()).question(NONCE, NO_DIGEST, ())

    async def test_a_list_and_its_changes(self):
        link = await self.link()
        self.assertEqual(await link.ask(NO_DIGEST), told())
        self.assertIsNone(await link.ask(DIGEST))
        chance_tell.HOLD_S = 60
        asked = asyncio.ensure_future(link.ask(DIGEST, ["10.2.0.1", "fd02::1"]))
        await self.until(lambda: ["10.2.0.1", "fd02::1"] in
                         self.teller._followers.values())
        self.assertFalse(asked.done())
        self.list = LIST * 2
        self.assertEqual(await asyncio.wait_for(asked, 20),
                         told(self.list, "10.2.0.1", "fd02::1"))
        self.list = b""
        asked = await asyncio.wait_for(
            link.ask(chance_tell.digest_of(LIST * 2)), 20)
        self.assertEqual(asked, told(b""))

    async def test_a_list_that_cannot_be_read(self):
        self.list = ToolError("no ipvsadm")
        await self.until(lambda: self.said)
        self.assertEqual(self.said, ["the list is as before: no ipvsadm"])
        self.assertEqual((await (await self.link()).ask(NO_DIGEST)).text, LIST)

    async def test_at_first_it_must_be_read(self):
        self.list = ToolError("no ipvsadm")
        self.director(KEY)
        with self.assertRaisesRegex(ToolError, "no ipvsadm"):
            await self.task

    async def test_control_a_question(self):
        self.assertTrue((await self.raw(self.question)).endswith(LIST))

    async def test_who_has_another_key_is_told_nothing(self):
        self.assertEqual(await self.raw(
            lambda *args: self.question(*args, key=OTHER)), b"")
        self.assertEqual(self.said, [
            "refused, by another key: a question from 127.0.0.1"])
        with self.assertRaises(EOFError):
            await (await self.link(OTHER)).ask(NO_DIGEST)

    async def test_a_question_of_another_connection(self):
        kept = []
        self.assertTrue(await self.raw(
            lambda *args: kept.append(self.question(*args)) or kept[0]))
        self.assertEqual(await self.raw(kept[0]), b"")

    async def test_a_question_to_another_director(self):
        def relayed(nonce, _):
            return chance_tell.Proofs(KEY, ("127.0.0.2", self.port),
                                      nonce.strip()).question(NONCE, DIGEST, ())
        self.assertEqual(await self.raw(relayed), b"")

    async def test_a_question_that_somebody_has_changed(self):
        for change in (lambda line: line.replace(b" 0", b" 1", 1),
                       lambda line: line[:-1] + b" 10.2.0.9\n",
                       lambda line: line.upper(), lambda line: line[1:]):
            self.assertEqual(await self.raw(
                lambda *args: change(self.question(*args))), b"")

    async def test_garbage(self):
        for parts in ([b"\n"], [b"GET / HTTP/1.0\r\n\r\n"], [bytes(range(256)) * 4],
                      [b"0" * 100000], [b"0" * 1000, b"0" * 1000]):
            self.assertEqual(await self.raw(*parts), b"")

    async def test_half_a_question_and_silence(self):
        chance_tell.READ_S = .2
        for part in (b"", lambda *args: self.question(*args)[:-1]):
            self.assertEqual(await self.raw(part), b"")

    async def test_one_address_does_not_take_all_places(self):
        opened = [await asyncio.open_connection("127.0.0.1", self.port)
                  for _ in range(chance_tell._EACH + 5)]
        self.assertEqual(len(self.teller._strangers), chance_tell._EACH)
        for _, writer in opened:
            writer.transport.abort()

    async def test_all_servers_come_at_once(self):
        self.patch(chance_tell, "_EACH", 1000)
        self.patch(chance_tell, "READ_S", 60)
        links = [chance_tell.Link("127.0.0.1", self.port, KEY) for _ in range(350)]
        for link in links:
            self.addCleanup(link.close)

        async def ask(link):
            await link.open()
            return await link.ask(NO_DIGEST)

        for said in await asyncio.gather(*map(ask, links)):
            self.assertEqual(said.text, LIST)

    async def test_a_server_with_many_addresses(self):
        link = await self.link()
        own = [f"2001:db8:1111:2222:3333:4444:5555:{n:x}" for n in range(4096, 4196)]
        await link.ask(NO_DIGEST, own)
        said = await (await self.link()).ask(NO_DIGEST)
        self.assertEqual(said.followers, own[:64])

    async def test_many_strangers(self):
        self.patch(chance_tell, "_EACH", 1000)
        link = await self.link()
        await link.ask(NO_DIGEST)
        chance_tell.HOLD_S = chance_tell.READ_S = 60
        asked = asyncio.ensure_future(link.ask(DIGEST))
        await self.until(lambda: self.teller._followers)
        opened = [await asyncio.open_connection("127.0.0.1", self.port)
                  for _ in range(3 * chance_tell._STRANGERS)]
        self.assertLessEqual(len(self.teller._strangers), chance_tell._STRANGERS)
        self.assertEqual(await (await self.link()).ask(NO_DIGEST), told())
        self.assertFalse(asked.done())
        self.list = b""
        self.assertEqual(await asyncio.wait_for(asked, 20), told(b""))
        for _, writer in opened:
            writer.transport.abort()
        await self.until(lambda: not self.teller._strangers)

    async def test_too_many_servers(self):
        self.patch(chance_tell, "_FOLLOWERS", 2)
        links = [await self.link() for _ in range(3)]
        for link in links[:2]:
            await link.ask(NO_DIGEST)
        chance_tell.HOLD_S = 60
        asked = [asyncio.ensure_future(link.ask(DIGEST)) for link in links[:2]]
        await self.until(lambda: len(self.teller._followers) == 2)
        with self.assertRaises((EOFError, OSError)):
            await links[2].ask(NO_DIGEST)
        self.assertIn("too many servers", self.said[0])
        for task in asked:
            await stop(task)


class Impostor(Director):
    """A server, and who says that they are the director"""

    async def ask(self, reply, begin=GREETING + b"\n"):
        """@reply: (proofs, question) -> what is said"""
        async def serve(reader, writer):
            self.addCleanup(writer.close)
            writer.write(begin)
            with contextlib.suppress(EOFError, OSError):
                line = await reader.readuntil(b"\n")
                writer.write(reply(chance_tell.Proofs(
                    KEY, writer.get_extra_info("sockname"), begin.strip()), line))

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self.addCleanup(server.close)
        return await (await self.link(
            port=server.sockets[0].getsockname()[1])).ask(NO_DIGEST)

    @staticmethod
    def true(proofs, line, body=b"list - -\n" + LIST):
        return proofs.answer(line[:32], body)

    async def test_control(self):
        self.assertEqual(await self.ask(self.true), told())

    async def test_what_is_refused(self):
        old = []
        await self.ask(lambda *args: old.append(self.true(*args)) or old[0])

        def by(key, where):
            return lambda _, line: self.true(
                chance_tell.Proofs(key, where, GREETING), line)

        for reply in (
                lambda *_: old[0],
                lambda proofs, line: proofs.answer(NONCE, b"list - -\n" + LIST),
                by(OTHER, ("127.0.0.1", 1)), by(KEY, ("127.0.0.1", 1)),
                lambda *args: self.true(*args).replace(b"-w 1", b"-w 2"),
                lambda *args: self.true(*args).replace(b"list", b"same"),
                lambda *args: self.true(*args, body=b"lost\n"),
                lambda *args: self.true(*args, body=b"list -\n"),
                lambda _, line: line, lambda _, line: line * 2,
                lambda *_: b"0" * 64 + b" 99999999\n",
                lambda *_: b"0" * 64 + b" -0000001\n" + bytes(100)):
            with self.assertRaises(Refused):
                await self.ask(reply)

    async def test_a_director_that_is_no_director(self):
        for begin in b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u1234567890\r\n", \
                GREETING.replace(b"1", b"2", 1) + b"\n", b"F" * 47:
            with self.assertRaises(Refused):
                await self.ask(self.true, begin)

    async def test_half_an_answer_and_silence(self):
        chance_tell.READ_S = .1
        for reply, begin in ((lambda *_: b"", GREETING + b"\n"),
                             (self.true, GREETING),
                             (lambda *args: self.true(*args)[:70], GREETING + b"\n"),
                             (lambda *args: self.true(*args)[:-1], GREETING + b"\n")):
            with self.assertRaises((asyncio.TimeoutError, EOFError)):
                await self.ask(reply, begin)


class Keys(unittest.TestCase):
    def test_keys(self):
        with tempfile.NamedTemporaryFile() as file:
            for key, mode, words in ((KEY[1:], 0o600, "openssl rand"),
                                     (KEY, 0o644, "chmod 600"),
                                     (KEY + b"\n", 0o640, None)):
                Path(file.name).write_bytes(key)
                os.chmod(file.name, mode)
                if words:
                    with self.assertRaisesRegex(ToolError, words):
                        chance_tell.read_key(file.name)
                else:
                    self.assertEqual(chance_tell.read_key(file.name), KEY)

    def test_addresses_of_directors(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("192.0.2.2 2001:db8::2 # two\n[2001:db8::3]:7000\n"
                       "192.0.2.2:6173\n192.0.2.3:1\n")
            file.flush()
            self.assertEqual(chance_follow.read_directors(file.name), [
                ("192.0.2.2", 6173), ("2001:db8::2", 6173),
                ("2001:db8::3", 7000), ("192.0.2.3", 1)])
            Path(file.name).write_text("# none\n")
            with self.assertRaisesRegex(ToolError, "no director"):
                chance_follow.read_directors(file.name)


class Source(unittest.TestCase):
    PROC = b"""IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  C0000201:0050 mhs  \n  -> 0A020001:0050      Route   1      0          0         \n"""

    def test_it_is_asked_after_a_change(self):
        calls = []
        source = chance_tell.Source()
        now = [0]
        with tempfile.NamedTemporaryFile() as file, mock.patch.multiple(
                chance_tell, PROC_IPVS=file.name, run=lambda argv: calls.append(
                    argv) or SimpleNamespace(stdout=f"{len(calls)}")), \
                mock.patch("time.monotonic", lambda: now[0]):
            for old, new, later, count in (
                    (b"", b"", 0, 1), (b"", b"", 0, 1),
                    (b"1      0          0 ", b"1      77         8 ", 0, 1),
                    (b"1      0", b"2      0", 0, 2), (b"", b"", 9, 2),
                    (b"", b"", 11, 3)):
                Path(file.name).write_bytes(self.PROC.replace(old, new) if old
                                            else Path(file.name).read_bytes() or
                                            self.PROC)
                now[0] += later
                self.assertEqual(source.read(), b"%d" % count)
            os.unlink(file.name)
            self.assertEqual(source.read(), b"")
            Path(file.name).touch()


class Follow(unittest.IsolatedAsyncioTestCase):
    """When what is set"""

    async def asyncSetUp(self):
        self.said, self.lists, self.fails = [], [], []
        for name, value in (("_RETRY_S", 0), ("HOLD_S", .05),
                            ("print", lambda words, **_: self.said.append(words))):
            patch = mock.patch.object(chance_follow, name, value, create=True)
            patch.start()
            self.addCleanup(patch.stop)
        self.record, self.back = {"layouts": [1]}, []
        self.follower = chance_follow.Follower([], KEY, (), self.put,
                                               lambda: self.record)
        self.task = asyncio.ensure_future(self.follower._set())
        self.addAsyncCleanup(stop, self.task)

    def put(self, lists, back):
        if self.fails:
            raise self.fails.pop()
        self.back.append(back)
        self.record = {"layouts": [1], "lists": lists}
        self.lists.append([[s.address for service in those
                            for s in service.servers] for those in lists])
        return ["10.2.0.1"], self.record

    async def tell(self, director, *servers, text=None):
        await asyncio.wait_for(self.follower._heard(
            director, text or b"-A -t 192.0.2.1:80 -s mhs\n" + b"".join(
                b"-a -t 192.0.2.1:80 -r 10.2.0.%d:80 -g -w 1\n" % n
                for n in servers)), 20)

    async def test_all_lists_count_the_last_ones_of_the_dead(self):
        await self.tell("a", 1, 2)
        await self.tell("b", 1)
        await self.tell("a", 2)
        self.assertEqual(self.lists, [
            [["10.2.0.1", "10.2.0.2"]],
            [["10.2.0.1", "10.2.0.2"], ["10.2.0.1"]],
            [["10.2.0.2"], ["10.2.0.1"]]])
        self.assertEqual(self.follower._own, ["10.2.0.1"])

    async def test_the_list_of_who_is_dead_for_an_hour_counts_no_more(self):
        await self.tell("a", 1)
        await self.tell("b", 2)
        for age, count in ((-10, 2), (10, 1)):
            self.follower._answered["a"] = time.monotonic() - 3600 - age
            await self.tell("b", 2)
            self.assertEqual(len(self.lists[-1]), count)

    async def test_an_empty_list_and_nonsense_change_nothing(self):
        await self.tell("a", 1)
        for text in b"\n", b"-A nonsense\n", b"\xff\n", \
                b"-A -u 192.0.2.1:53 -s mhs\n":
            await self.tell("a", text=text)
        self.assertEqual(self.lists, [[["10.2.0.1"]]])
        self.assertFalse([words for words in self.said if "clear" in words])
        self.assertEqual(self.follower._lists["a"][0].servers[0].address,
                         "10.2.0.1")

    async def test_who_is_back_in_the_list_of_a_director(self):
        for director, servers in (("a", (1, 2)), ("b", (1, 2)), ("a", (1,)),
                                  ("c", (1, 2)), ("a", (1, 2))):
            await self.tell(director, *servers)
        self.assertEqual(self.back, [set()] * 4 + [{"10.2.0.2"}])

    async def test_who_is_back_is_not_lost_with_a_put_that_fails(self):
        await self.tell("a", 1)
        self.fails = [ToolError("no")]
        await self.tell("a", 1, 2)
        while len(self.lists) < 2:
            await asyncio.sleep(0)
        self.assertEqual(self.back[-1], {"10.2.0.2"})

    async def test_a_set_by_hand_is_put_right_a_clear_is_not(self):
        await self.tell("a", 1)
        self.record = {"layouts": [1], "lists": "others"}
        while len(self.lists) < 2:
            await asyncio.sleep(0)
        self.assertEqual(self.lists[1], self.lists[0])
        looked = []
        self.record = {"layouts": []}
        self.follower._look = lambda: looked.append(1) or self.record
        while len(looked) < 3:
            await asyncio.sleep(.01)
        self.assertEqual(len(self.lists), 2)

    async def test_what_is_left_out_is_said_once(self):
        text = b"-A -u 192.0.2.1:53 -s mhs\n-A -t 192.0.2.1:80 -s mhs\n"
        with mock.patch.object(chance_follow, "warn") as warn:
            for _ in range(3):
                await self.tell("a", text=text)
        self.assertEqual(warn.call_count, 1)

    async def test_what_failed_is_tried_again(self):
        self.fails = [ToolError("no"), ToolError("no"), OSError("never")]
        await self.tell("a", 1)
        while not self.lists:
            await asyncio.sleep(0)
        self.assertEqual(self.said, ["a: has told its list", "not set: never",
                                     "not set: no"])

    async def test_each_director_is_told_of_once(self):
        with socket.create_server(("127.0.0.1", 0)) as sock:
            port = sock.getsockname()[1]
        task = asyncio.ensure_future(self.follower._follow("127.0.0.1", port))
        self.addAsyncCleanup(stop, task)
        tried = 0

        async def sleep(_seconds, _sleep=asyncio.sleep):
            nonlocal tried
            tried += 1
            await _sleep(0.01)

        with mock.patch.object(chance_follow.asyncio, "sleep", sleep):
            while tried < 3:
                await asyncio.wait([task], timeout=.01)
        self.assertEqual(len(self.said), 1)
        self.assertRegex(self.said[0], "its last list stays: .*refused")


class Check(unittest.TestCase):
    """What check says of the directors"""

    def faults(self, *said, servers=("10.2.0.1",)):
        record = chance.Record({"size": 65521, "print": "ab", "services": {"192.0.2.1:80": {"sets": [
            [[[address, 80, 1] for address in servers], None]]}}})
        with tempfile.NamedTemporaryFile() as key, \
                tempfile.NamedTemporaryFile("w") as file:
            key.write(KEY)
            file.write("192.0.2.2 192.0.2.3")
            for one in key, file:
                one.flush()
            options = SimpleNamespace(directors=file.name, key_file=key.name,
                                      service=[])
            with mock.patch.object(chance_follow, "_asked_all",
                                   lambda _, __: dict(zip("ab", said))):
                return [(fault.severity, fault.text)
                        for fault in chance_follow.faults(options, record)]

    def test_all_is_well(self):
        self.assertEqual(self.faults(told(LIST, "10.2.0.1"), told()), [])

    def test_an_old_list(self):
        self.assertEqual(
            self.faults(told(LIST, "10.2.0.1"), servers=("10.2.0.2",)),
            [("error", "192.0.2.1:80: what is set is old")])

    def test_a_server_that_follows_nobody(self):
        (severity, text), = self.faults(told(), told())
        self.assertEqual(severity, "warning")
        self.assertIn("10.2.0.1 follows no director", text)

    def test_directors_that_do_not_answer(self):
        (severity, text), = self.faults(told(LIST, "10.2.0.1"), "no answer in time")
        self.assertEqual(severity, "warning")
        both = self.faults("refused", "no answer in time")
        self.assertEqual([severity for severity, _ in both], ["error"] * 2)
        self.assertIn("may be old", both[0][1])

    def test_a_director_with_another_module(self):
        found = self.faults(told(LIST, "10.2.0.1", size="251", key="cd"))
        self.assertEqual([severity for severity, _ in found], ["error"] * 2)
        self.assertIn("another table_size than this server: 251, not 65521",
                      found[0][1])
        self.assertEqual(self.faults(told(LIST, "10.2.0.1", size="65521",
                                          key="ab")), [])

    def test_without_directors(self):
        self.assertEqual(list(chance_follow.faults(SimpleNamespace(
            directors="/nonexistent"), None)), [])


if __name__ == "__main__":
    unittest.main()
