# SPDX-License-Identifier: GPL-2.0-only
"""Servers that are restarted, and clients that would notice."""

import contextlib
import json
import os
import select
import signal
import socket
import threading
import time

from lib import WAIT_S, child, end_process, read
from net import inside

_SYN_RECEIVED = "03"
_HTTP_REQUEST = b"GET / HTTP/1.0\r\nHost: test\r\n\r\n"
# Longer than any hold here; a connection without an end by then has failed.
_GIVE_UP_S = 90


def processes(name):
    """The processes of this name."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if read(f"/proc/{entry}/comm").strip() == name:
                found.append(int(entry))
    return found


def handshakes(port):
    """How many handshakes with @port wait for their last packet."""
    return sum(words[3] == _SYN_RECEIVED and words[1].endswith(f":{port:04X}")
               for family in ("tcp", "tcp6")
               for words in map(str.split, read(f"/proc/net/{family}").splitlines()))


class Child:
    """A process that runs self.main(); that returns a result when self.ending is true."""

    def __init__(self):
        self.pid, self.ending = 0, []
        self._result_fd, self._child_fd = os.pipe()

    def __enter__(self):
        def run():
            signal.signal(signal.SIGTERM, lambda *_: self.ending.append(True))
            os.write(self._child_fd, json.dumps(self.main()).encode())
        self.pid = child(run)
        os.close(self._child_fd)
        return self

    def __exit__(self, *_):
        end_process(self.pid)
        os.close(self._result_fd)

    def finish(self):
        """Let what is under way end; the result."""
        os.kill(self.pid, signal.SIGTERM)
        return json.loads(b"".join(iter(lambda: os.read(self._result_fd, 65536), b"")))

    def main(self):
        raise NotImplementedError


class Server(Child):
    """Sends a byte to whoever connects, or an answer of HTTP.  On SIGUSR1 it stops
    listening, for @gap_s, having served everybody who had got in."""

    def __init__(self, port, gap_s=2.0, answer=b"x"):
        super().__init__()
        self._port, self._gap_s, self._answer = port, gap_s, answer
        self._listener = self._listen()

    def _listen(self):
        listener = socket.create_server(("::", self._port), family=socket.AF_INET6, backlog=4096,
                                        dualstack_ipv6=True)
        listener.setblocking(False)
        return listener

    def __enter__(self):
        super().__enter__()
        self._listener.close()
        return self

    def _serve(self):
        with contextlib.suppress(BlockingIOError):
            while True:
                peer, _ = self._listener.accept()
                with contextlib.suppress(OSError):
                    # what is not read would make its close a reset
                    self._answer == b"x" or peer.recv(65536)
                    peer.send(self._answer)
                peer.close()

    def main(self):
        asked = []
        signal.signal(signal.SIGUSR1, lambda *_: asked.append(True))
        while True:
            select.select([self._listener], [], [], 0.02)
            self._serve()
            if asked:
                asked.clear()
                self._listener.close()
                time.sleep(self._gap_s)    # why: nobody listens so long
                self._listener = self._listen()


class Load(Child):
    """@count clients that connect, wait for an answer and begin again."""

    def __init__(self, address, port, count, where=None, http=False):
        super().__init__()
        self._target = (address, port)
        self._count, self._where, self._http = count, where, http
        self._lock = threading.Lock()
        self._result = {"ok": 0, "failed": 0, "longest_ms": 0, "errors": {}}
        self._progress_fd, self._child_progress_fd = os.pipe()

    def wait_for_progress(self, count):
        """Wait until @count more connections have ended."""
        while count > 0:
            if not select.select([self._progress_fd], [], [], WAIT_S)[0]:
                raise AssertionError(f"no connection ended within {WAIT_S} s")
            count -= len(os.read(self._progress_fd, count))

    def __exit__(self, *_):
        super().__exit__()
        os.close(self._progress_fd)
        os.close(self._child_progress_fd)

    # In the child.

    def main(self):
        os.set_blocking(self._child_progress_fd, False)
        clients = [threading.Thread(target=self._client) for _ in range(self._count)]
        with inside(self._where):
            for client in clients:
                client.start()
        for client in clients:
            client.join()
        return self._result

    def _client(self):
        while not self.ending:
            began = time.monotonic()
            try:
                with socket.create_connection(self._target, timeout=_GIVE_UP_S) as peer:
                    self._end(None if self._is_answered(peer) else "no answer but an end", began)
            except OSError as error:
                self._end(error.strerror or "no answer", began)

    def _is_answered(self, peer):
        got = b""
        if self._http:
            peer.sendall(_HTTP_REQUEST)
        while data := peer.recv(65536):
            got += data
        return b" 200 " in got[:20] if self._http else got == b"x"

    def _end(self, error, began):
        result = self._result
        with self._lock, contextlib.suppress(BlockingIOError):
            if error:
                result["failed"] += 1
                result["errors"][error] = result["errors"].get(error, 0) + 1
            else:
                result["ok"] += 1
                result["longest_ms"] = max(result["longest_ms"],
                                           round(1000 * (time.monotonic() - began)))
            os.write(self._child_progress_fd, b".")
