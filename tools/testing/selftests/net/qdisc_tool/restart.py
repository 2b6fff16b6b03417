# SPDX-License-Identifier: GPL-2.0-only
"""Servers that are restarted, and clients that would notice."""

import contextlib
import json
import os
import select
import signal
import socket
import time

from lib import WAIT_S, read
from net import inside

_SYN_RECEIVED = "03"
_HTTP_REQUEST = b"GET / HTTP/1.0\r\nHost: test\r\n\r\n"
# Longer than any hold here; a connection without an end by then has failed.
_GIVE_UP_S = 90


def processes(name):
    """The processes of this name."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if read(f"/proc/{entry}/comm").strip() == name:
                    found.append(int(entry))
    return found


def handshakes(port):
    """How many handshakes with @port wait for their last packet."""
    lines = [line.split() for family in ("tcp", "tcp6")
             for line in read(f"/proc/net/{family}").splitlines()]
    return sum(fields[3] == _SYN_RECEIVED and
               fields[1].endswith(f":{port:04X}") for fields in lines)


class Child:
    """A process that runs self._main() until it is told to end."""

    def __init__(self):
        self.pid = 0

    def __enter__(self):
        self._prepare()
        self.pid = os.fork()
        if not self.pid:
            try:
                self._main()
            finally:
                os._exit(0)
        return self

    def __exit__(self, *_):
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def _prepare(self):
        pass

    def _main(self):
        raise NotImplementedError


class Server(Child):
    """Sends a byte to whoever connects.  On SIGUSR1 it stops listening, for
    @gap_s, having served everybody who had got in."""

    def __init__(self, port, gap_s=2.0):
        super().__init__()
        self._port = port
        self._gap_s = gap_s
        self._listener = None

    def _listen(self):
        self._listener = socket.create_server(
            ("::", self._port), family=socket.AF_INET6, backlog=4096, dualstack_ipv6=True)
        self._listener.setblocking(False)

    def _prepare(self):
        self._listen()

    def __enter__(self):
        super().__enter__()
        self._listener.close()
        return self

    def _serve(self):
        with contextlib.suppress(BlockingIOError):
            while True:
                peer, _ = self._listener.accept()
                with contextlib.suppress(OSError):
                    peer.send(b"x")
                peer.close()

    def _main(self):
        asked = []
        signal.signal(signal.SIGUSR1, lambda *_: asked.append(True))
        while True:
            select.select([self._listener], [], [], 0.02)
            self._serve()
            if asked:
                asked.clear()
                self._listener.close()
                time.sleep(self._gap_s)    # why: nobody listens so long
                self._listen()


class Load(Child):
    """@count clients that connect, wait for an answer and begin again."""

    def __init__(self, address, port, count, where=None, http=False):
        super().__init__()
        self._target = (address, port)
        self._count = count
        self._where = where
        self._http = http
        self._sockets = {}         # fd -> [socket, begin, what was read]
        self._poll = None
        self._result = {"ok": 0, "failed": 0, "longest_ms": 0, "errors": {}}
        self._progress_fd = self._result_fd = None

    def _prepare(self):
        self._progress_fd, self._child_progress_fd = os.pipe()
        self._result_fd, self._child_result_fd = os.pipe()

    def __enter__(self):
        super().__enter__()
        os.close(self._child_progress_fd)
        os.close(self._child_result_fd)
        return self

    def wait_for_progress(self, count):
        """Wait until @count more connections have ended."""
        while count > 0:
            if not select.select([self._progress_fd], [], [], WAIT_S)[0]:
                raise AssertionError(f"no connection ended within {WAIT_S} s")
            count -= len(os.read(self._progress_fd, count))

    def finish(self):
        """Let what is under way end; the counts."""
        os.kill(self.pid, signal.SIGTERM)
        data = b""
        while chunk := os.read(self._result_fd, 65536):
            data += chunk
        return json.loads(data)

    # In the child.

    def _main(self):
        ending = []
        signal.signal(signal.SIGTERM, lambda *_: ending.append(True))
        os.set_blocking(self._child_progress_fd, False)
        self._poll = select.epoll()
        with inside(self._where):
            for _ in range(self._count):
                self._begin()
            while self._sockets:
                for fd, _ in self._poll.poll(0.1):
                    self._advance(fd)
                now = time.monotonic()
                for fd in [fd for fd, entry in self._sockets.items()
                           if now - entry[1] > _GIVE_UP_S]:
                    self._end(fd, "no answer")
                while not ending and len(self._sockets) < self._count:
                    self._begin()
        os.write(self._child_result_fd, json.dumps(self._result).encode())

    def _begin(self):
        client = socket.socket()
        client.setblocking(False)
        self._sockets[client.fileno()] = [client, time.monotonic(), None]
        client.connect_ex(self._target)
        self._poll.register(client, select.EPOLLOUT)

    def _advance(self, fd):
        entry = self._sockets[fd]
        client, _, got = entry
        try:
            if got is None:
                error = client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if error:
                    raise OSError(error, os.strerror(error))
                if self._http:
                    client.send(_HTTP_REQUEST)
                entry[2] = b""
                self._poll.modify(fd, select.EPOLLIN)
                return
            data = client.recv(65536)
            entry[2] += data
            if not data:
                good = (b" 200 " in got[:20] if self._http else got == b"x")
                self._end(fd, None if good else "no answer but an end")
        except BlockingIOError:
            pass
        except OSError as error:
            self._end(fd, error.strerror)

    def _end(self, fd, error):
        client, began, _ = self._sockets.pop(fd)
        self._poll.unregister(fd)
        client.close()
        result = self._result
        if error:
            result["failed"] += 1
            result["errors"][error] = result["errors"].get(error, 0) + 1
        else:
            result["ok"] += 1
            result["longest_ms"] = max(
                result["longest_ms"], round(1000 * (time.monotonic() - began)))
        with contextlib.suppress(BlockingIOError):
            os.write(self._child_progress_fd, b".")
