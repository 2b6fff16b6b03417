# SPDX-License-Identifier: GPL-2.0-only
"""real_server chance follow: a server has what the directors tell (chance_tell).  And
whether it has, for check."""

import asyncio
import contextlib
import os
import random
import sys
import time

from ipvs_mhs_tool import ToolError

from mhsstat_lib.snapshot import read_text

from .chance_options import services_of, warn
from .chance_slots import in_service, present
from .chance_tell import (ERRORS, HOLD_S, NO_DIGEST, PORT, Link, Refused, Told,
                          digest_of, endpoint_of, read_key)
from .parts import Fault

_RETRY_S = 1        # a director's process that was restarted has a change in time
_SILENT_S = 3600    # then a director's last list is a former one
RESTART = "systemctl restart real_server-follow"


def read_directors(path):
    """[(address, port)]"""
    words = [word for line in read_text(path).splitlines()
             for word in line.partition("#")[0].split()]
    if not words:
        raise ToolError(f"{path} names no director")
    return list(dict.fromkeys(map(endpoint_of, words)))


def _wrong(error, link):
    """In words"""
    if isinstance(error, Refused):
        return "what it says is not by the key of this server, and refused"
    if isinstance(error, EOFError):
        return "it has closed the connection" + (
            "" if link.proven else ": has it another key?")
    if getattr(error, "errno", None):
        return os.strerror(error.errno)
    return "no answer in time" if isinstance(error, asyncio.TimeoutError) \
        else str(error) or repr(error)


class Known:
    """What a follower has of its last put: only what has changed is computed, written
    and said."""

    def __init__(self):
        self.circles = {}       # {name: (of what, Circles)}
        self.written = {}       # {name: (where and what, the table's number)}
        self.back = set()       # servers that a director has again
        self.changed = []       # names
        self._warned = set()
        self._words = set()

    def warn(self, words):
        if words not in self._warned:
            warn(words)
        self._words.add(words)

    def end(self, names):
        """Of a put, of these services"""
        self._warned, self._words, self.changed = self._words, set(), []
        for those in self.circles, self.written:
            for name in those.keys() - names:
                del those[name]


class Follower:
    """All directors of a server"""

    def __init__(self, directors, key, those, put, look):
        self._directors, self._key = directors, key
        self._those = those         # --service
        self._put = put             # (lists, who is back) -> own addresses, record
        self._look = look           # () -> the record now
        self._back = set()
        self._lists = {}            # {director: its services}, the last ones
        self._answered = {}         # {director: when}
        self._left_out = set()      # words
        self._said = {}             # {director, or None: what was wrong}
        self._own = ()
        self._new, self._idle = asyncio.Event(), asyncio.Event()

    def _say(self, whom, words):
        """Each change"""
        if words != self._said.get(whom):
            print(f"{whom}: {words}", flush=True)
        self._said[whom] = words

    def _leave_out(self, words):
        """Once"""
        if words not in self._left_out:
            warn(words)
        self._left_out.add(words)

    async def _heard(self, director, text):
        before = self._lists.get(director)
        try:
            self._lists[director] = services_of(
                text.decode(), "its list now", self._those, self._leave_out)
        except (ToolError, UnicodeDecodeError) as error:
            self._say(director, f"its last list stays: {error}")
        else:
            if before is not None:
                self._back |= in_service(
                    one.servers for one in self._lists[director]) - in_service(
                        one.servers for one in before)
            self._say(director, "has told its list")
            self._idle.clear()
            self._new.set()
            await self._idle.wait()     # what it has is what is set

    async def _follow(self, address, port):
        """One director, without an end"""
        director, digest = f"{address} port {port}", NO_DIGEST
        while True:
            link = Link(address, port, self._key)
            try:
                await link.open()
                while True:
                    said = await link.ask(digest, self._own)
                    self._answered[director] = time.monotonic()
                    if said:
                        digest = digest_of(said.text)
                        await self._heard(director, said.text)
            except Exception as error:      # whatever it is, others go on
                self._say(director, f"its last list stays: {_wrong(error, link)}")
            finally:
                link.close()
            # not all servers at once, when a director is back
            await asyncio.sleep(_RETRY_S * random.uniform(.5, 1.5))

    def _fresh(self):
        now = time.monotonic()
        return {director: those for director, those in self._lists.items()
                if self._answered.get(director, now) > now - _SILENT_S}

    async def _put_new(self, last, record):
        """What there is now: (lists, record).  The last ones, if neither has changed,
        or somebody has cleared it."""
        lists, back = self._fresh(), set(self._back)
        if lists in (last, {}):
            now = await asyncio.to_thread(self._look)
            if not lists or now == record or not now["layouts"]:
                return last, record
        self._own, record = await asyncio.to_thread(
            self._put, list(lists.values()), back)
        self._back = self._back - back
        self._said.pop("not set", None)
        return lists, record

    async def _set(self):
        done = None, None
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._new.wait(), HOLD_S)
            self._new.clear()
            try:
                done = await self._put_new(*done)
                if not self._new.is_set():
                    self._idle.set()
            except Exception as error:
                self._say("not set", str(error) or repr(error))
                done = None, None
                self._idle.set()
                await asyncio.sleep(_RETRY_S)
                self._new.set()

    async def run(self):
        """Without an end"""
        await asyncio.gather(self._set(), *(
            self._follow(*where) for where in self._directors))


def follow(options, put, look):
    """Until it is ended"""
    sys.stdout.reconfigure(line_buffering=True)

    async def run():
        await Follower(read_directors(options.directors),
                       read_key(options.key_file), options.service, put,
                       look).run()

    asyncio.run(run())


async def _asked(address, port, key):
    link = Link(address, port, key)
    try:
        await link.open()
        return await link.ask(NO_DIGEST)
    except (*ERRORS, Refused) as error:
        return _wrong(error, link)
    finally:
        link.close()


def _asked_all(directors, key):
    """{director: Told, or what is wrong}"""
    async def asked():
        return await asyncio.gather(*(_asked(*where, key) for where in directors))

    names = [f"{address} port {port}" for address, port in directors]
    return dict(zip(names, asyncio.run(asked())))


def old(lists, record, remedy):
    """Services of directors' lists that are not set"""
    for name in dict.fromkeys(
            service.name for those in lists for service in those
            if service.servers and service.servers not in [
                one.servers for one in present(record.sets_of(service.name))]):
        yield Fault(f"{name}: what is set is old", remedy)


def faults(options, record):
    """What the directors say that this server follows"""
    if not os.path.exists(options.directors):
        return
    try:
        asked = _asked_all(read_directors(options.directors),
                           read_key(options.key_file))
    except ToolError as error:
        yield Fault(str(error), "the steps in real_server(8)")
        return
    told = {director: said for director, said in asked.items()
            if isinstance(said, Told)}
    for director in asked.keys() - told.keys():
        yield Fault(
            f"director {director}: {asked[director]}; " + (
                "a change that it makes breaks flows" if told else
                "no director answers, and what is set may be old"),
            f"on it 'systemctl status real_server-tell'; TCP port {PORT} must be "
            "open, and the key be the same",
            "warning" if told else "error")
    lists = []
    for director, said in told.items():
        for name, theirs, ours in (
                ("table_size", said.size, str(record.size)),
                ("hash_key", said.print, record.print)):
            if theirs not in ("-", ours):
                yield Fault(
                    f"director {director} has another {name} than this server: "
                    f"{theirs}, not {ours}", "'systemctl edit real_server-follow', "
                    f"OPTIONS with --{name.replace('_', '-')}")
        try:
            lists.append(services_of(said.text.decode(), director, options.service,
                                     lambda _: None))
        except ToolError as error:
            yield Fault(f"director {director}: {error}", "ipvsadm -S -n there",
                        "warning")
    yield from old(lists, record, RESTART)
    following = {address for said in told.values() for address in said.followers}
    for address in sorted({server.address for services in lists
                           for service in services
                           for server in service.servers} - following):
        if told:
            yield Fault(f"{address} follows no director that answers: is the "
                        "program there?", f"on it 'real_server chance check', {RESTART}",
                        "warning")
