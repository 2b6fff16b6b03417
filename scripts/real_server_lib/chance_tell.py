# SPDX-License-Identifier: GPL-2.0-only
"""real_server chance tell: a director tells servers its list.  What it says and what
servers say, on one TCP connection:

    director  real_server 1 NONCE             the 1 is the version of all this
    server    NONCE DIGEST PROOF ADDRESS...   of the list it has; its own addresses
    director  PROOF LENGTH                    and so many bytes, a body:
              same                            or
              list SIZE PRINT ADDRESS...      table_size, print of hash_key or -, of
                                              servers that follow; and the list
    server    NONCE DIGEST PROOF ADDRESS...   and so on

The director answers when its list has another digest, or after HOLD_S.  A proof is the
HMAC, by the key that both have, of who speaks, the address by which the server came, the
nonces of both, which nobody uses twice, and what is said.  So what is heard is neither
made by others, nor old, nor of another director.
"""

import asyncio
import hashlib
import hmac
import ipaddress
import os
import re
import secrets
import socket
import time
from typing import NamedTuple

from ipvs_mhs_tool import ToolError, run

from mhsstat_lib import module
from mhsstat_lib.address import endpoint, unmapped
from mhsstat_lib.servers import PROC_IPVS

PORT = 6173
HOLD_S = 5          # a director waits for a change no longer
READ_S = 3          # for all that is due at once
_SET_S = 60         # for what a server does with a list before it asks again
LIST_MAX = 1 << 18  # bytes: thousands of servers, and 128 MiB for all followers
NO_DIGEST = b"0" * 64
_LOOK_S = 0.5       # servers have a change within two seconds
_AGAIN_S = 10       # what /proc does not show, the kinds of tunnels
_LINE_MAX = 4096    # bytes
_OWN_MAX = 64       # addresses in a question: fewer bytes than that
_STRANGERS = 400    # who did not prove yet that they have the key
_EACH = 8           # of one address
_FOLLOWERS = 512    # with these: fewer than 1024 open files
_KEY_MIN = 16       # bytes
_GREETING = re.compile(rb"real_server 1 [0-9a-f]{32}")
_GREETING_SIZE = 14 + 32 + 1
_QUESTION = re.compile(rb"([0-9a-f]{32}) ([0-9a-f]{64}) ([0-9a-f]{64})"
                       rb"((?: [0-9a-f.:]+)*)\n")
_HEAD = re.compile(rb"([0-9a-f]{64}) ([0-9]{8})\n")
_HEAD_SIZE = 64 + 1 + 8 + 1
_BODY_MAX = 2 * LIST_MAX    # with the addresses of followers
# what ends a connection
ERRORS = OSError, EOFError, asyncio.TimeoutError, asyncio.LimitOverrunError


class Refused(Exception):
    """What the other side says is not by the key, or makes no sense."""


def read_key(path):
    try:
        with open(path, "rb") as file:
            open_to_all = os.fstat(file.fileno()).st_mode & 0o007
            key = file.read(_LINE_MAX).strip()
    except OSError as error:
        raise ToolError(f"{path}: {error.strerror}") from error
    if len(key) < _KEY_MIN:
        raise ToolError(f"{path} has a key of less than {_KEY_MIN} bytes: make one "
                        "with 'openssl rand -hex 32', the same for all")
    if open_to_all:
        raise ToolError(f"everybody may read {path}: chmod 600 {path}")
    return key


def endpoint_of(text):
    """(address, port) of ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT"""
    try:
        return str(ipaddress.ip_address(text)), PORT
    except ValueError:
        address, port = endpoint(text)
        return str(address), port


def _where(name):
    """An address of a socket, in one spelling"""
    address = ipaddress.ip_address(name[0].partition("%")[0])
    return f"{unmapped(address)} {name[1]}".encode()


def digest_of(text):
    return hashlib.sha256(text).hexdigest().encode()


class Told(NamedTuple):
    """What a director tells"""

    size: str           # table_size of its module, or -
    print: str          # of the hash key, or -
    followers: list     # addresses of servers
    text: bytes         # as 'ipvsadm -S -n' prints it


class Proofs:
    """Of one connection; whoever speaks has the other's nonce in them."""

    def __init__(self, key, where, greeting):
        self._key = key
        self._begin = b" ".join((_where(where), greeting))

    def _proof(self, *words):
        return hmac.new(self._key, b" ".join((self._begin, *words)),
                        "sha256").hexdigest().encode()

    def question(self, nonce, digest, addresses):
        told = b"".join(b" " + address.encode()
                        for address in list(addresses)[:_OWN_MAX])
        proof = self._proof(b"question", nonce, digest + told)
        return b" ".join((nonce, digest, proof)) + told + b"\n"

    def asked(self, line):
        """(nonce, digest, addresses) of a question"""
        found = _QUESTION.fullmatch(line)
        if not found or not hmac.compare_digest(found[3], self._proof(
                b"question", found[1], found[2] + found[4])):
            raise Refused
        return found[1], found[2], found[4].decode().split()

    def answer(self, nonce, body):
        return b"%s %08d\n" % (self._proof(b"answer", nonce, body),
                               len(body)) + body

    async def answered(self, reader, nonce):
        """The body of an answer"""
        found = _HEAD.fullmatch(await reader.readexactly(_HEAD_SIZE))
        if not found or int(found[2]) > _BODY_MAX:
            raise Refused
        body = await asyncio.wait_for(reader.readexactly(int(found[2])), READ_S)
        if not hmac.compare_digest(found[1],
                                   self._proof(b"answer", nonce, body)):
            raise Refused
        return body


class Link:
    """A server's connection to a director"""

    def __init__(self, address, port, key):
        self._to, self._key = (address, port), key
        self._reader = self._writer = self._proofs = None
        self.proven = False         # the director has the key

    async def open(self):
        self._reader, self._writer = await asyncio.wait_for(
            asyncio.open_connection(*self._to, limit=_LINE_MAX), READ_S)
        line = await asyncio.wait_for(
            self._reader.readexactly(_GREETING_SIZE), READ_S)
        if not _GREETING.fullmatch(line[:-1]) or line[-1:] != b"\n":
            raise Refused
        self._proofs = Proofs(self._key,
                              self._writer.get_extra_info("peername"), line[:-1])

    async def ask(self, digest, addresses=()):
        """Told; None: it has this digest"""
        nonce = secrets.token_hex(16).encode()
        self._writer.write(self._proofs.question(nonce, digest, addresses))
        body = await asyncio.wait_for(
            self._proofs.answered(self._reader, nonce), HOLD_S + READ_S)
        self.proven = True
        if body == b"same\n":
            return None
        head, _, text = body.partition(b"\n")
        word, *words = head.decode().split()
        if word != "list" or len(words) < 2:
            raise Refused
        return Told(*words[:2], words[2:], text)

    def close(self):
        if self._writer:
            self._writer.transport.abort()


class Source:
    """The director's list, as 'ipvsadm -S -n' prints it.  It is asked when /proc, which
    costs less, has anything else but other numbers of connections."""

    def __init__(self):
        self._seen, self._again, self._text = None, 0, b""

    def read(self):
        try:
            with open(PROC_IPVS, "rb") as file:
                seen = re.sub(rb"(?m)^(  -> .*?) +\d+ +\d+ *$", rb"\1",
                              file.read())
        except FileNotFoundError:
            return b""
        if seen != self._seen or time.monotonic() > self._again:
            self._text = run(["ipvsadm", "-S", "-n"]).stdout.encode()
            self._seen, self._again = seen, time.monotonic() + _AGAIN_S
        if len(self._text) > LIST_MAX:
            raise ToolError(f"the list has more than {LIST_MAX} bytes")
        return self._text


class Teller:
    """All connections of a director"""

    def __init__(self, key, read):
        self._key, self._read = key, read
        self._list = self._digest = self._changed = None
        self._strangers = {}        # {connection: address}, the oldest first
        self._followers = {}        # {connection: addresses}
        self._said = {}             # {words: when}

    def _say(self, words):
        """As seldom as strangers cannot fill a log"""
        kind, now = words.partition(":")[0], time.monotonic()
        if now > self._said.get(kind, -HOLD_S) + HOLD_S:
            self._said[kind] = now
            print(words, flush=True)

    async def _look(self):
        text = await asyncio.to_thread(self._read)
        if text != self._list:
            changed, self._changed = self._changed, \
                asyncio.get_running_loop().create_future()
            self._list, self._digest = text, digest_of(text)
            if changed:
                changed.set_result(None)

    async def _body(self, digest):
        if digest == self._digest:
            await asyncio.wait([self._changed], timeout=HOLD_S)
        if digest == self._digest:
            return b"same\n"
        about = module.describe()
        followers = sorted(set().union(*self._followers.values()))
        head = " ".join(["list", str(about["table_size"] or "-"),
                         about["hash_key_print"] or "-", *followers]).encode()
        return head[:LIST_MAX - 1] + b"\n" + self._list

    async def _talk(self, reader, writer):
        greeting = b"real_server 1 " + secrets.token_hex(16).encode()
        proofs = Proofs(self._key, writer.get_extra_info("sockname"), greeting)
        writer.transport.set_write_buffer_limits(0)
        writer.write(greeting + b"\n")
        while True:
            line = await asyncio.wait_for(
                reader.readuntil(b"\n"),
                READ_S if writer in self._strangers else _SET_S)
            number, digest, addresses = proofs.asked(line)
            if self._strangers.pop(writer, None):
                if len(self._followers) >= _FOLLOWERS:
                    self._say(f"too many servers: {_FOLLOWERS} follow already")
                    return
            self._followers[writer] = addresses
            writer.write(proofs.answer(number, await self._body(digest)))
            await asyncio.wait_for(writer.drain(), READ_S)

    async def serve(self, reader, writer):
        """One connection"""
        source, *_ = writer.get_extra_info("peername") or ("nobody",)
        if list(self._strangers.values()).count(source) >= _EACH:
            writer.transport.abort()
            return
        if len(self._strangers) >= _STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.transport.abort()
        self._strangers[writer] = source
        try:
            await self._talk(reader, writer)
        except Refused:
            self._say(f"refused, by another key: a question from {source}")
        except (*ERRORS, asyncio.CancelledError):
            pass
        finally:
            self._strangers.pop(writer, None)
            self._followers.pop(writer, None)
            writer.transport.abort()

    async def run(self, listeners):
        """Without an end"""
        await self._look()
        # All servers may come at once.  Who finds the queue full may have a SYN cookie,
        # and waits in vain then: the kernel forgets who has one.
        servers = [await asyncio.start_server(self.serve, sock=sock, limit=_LINE_MAX,
                                              backlog=2 * _FOLLOWERS)
                   for sock in listeners]
        while servers:
            await asyncio.sleep(_LOOK_S)
            try:
                await self._look()
            except (ToolError, OSError) as error:
                self._say(f"the list is as before: {error}")


def _listeners(addresses):
    try:
        if not addresses:
            return [socket.create_server(("", PORT), family=socket.AF_INET6,
                                         dualstack_ipv6=True)
                    if socket.has_dualstack_ipv6() else
                    socket.create_server(("", PORT))]
        return [socket.create_server(
            where, family=socket.AF_INET6 if ":" in where[0] else socket.AF_INET)
            for where in map(endpoint_of, addresses)]
    except OSError as error:
        raise ToolError(f"cannot listen: {error.strerror}") from error


def tell(options):
    """Until it is ended"""
    asyncio.run(Teller(read_key(options.key_file), Source().read).run(
        _listeners(options.listen)))
