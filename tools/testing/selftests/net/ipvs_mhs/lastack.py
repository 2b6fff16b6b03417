#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""TCP flows with both ends in one process, so that either may end first.

client  takes commands, one a line, on standard input; each is answered by one
        line of key=value pairs on standard output:

    open N      open N more flows, one after another
    speak N     each server says N lines: the client only confirms them
    half        each client sends FIN, and goes on reading
    close       each client closes, then its server
    end         each server closes; the clients leave their ends open
    forget      close what is left of all flows, with a reset
    quit

After each command: flows, broken (reset, closed by the other side, or silent),
heard (lines of servers) and waiting (bytes of servers that no client has
confirmed).

Options: --host, --port; --bind, the client's address; --servers NETNS,NETNS...
where to listen; --timeout SECONDS
"""
import array
import contextlib
import fcntl
import select
import socket
import struct
import sys
import termios

sys.dont_write_bytecode = True

import netlab  # noqa: E402

OPTIONS = {"host": "", "port": "80", "bind": "", "servers": "",
           "timeout": "10"}


class Flow:
    def __init__(self, client, server):
        self.client = client
        self.server = server
        self.broken = False


class Ends:
    def __init__(self, args):
        self.args = args
        self.family = socket.AF_INET6 if ":" in args["host"] else \
            socket.AF_INET
        self.timeout = float(args["timeout"]) * netlab.PATIENCE
        self.flows = []
        self.heard = 0
        self.listeners = [self.listen(name)
                          for name in args["servers"].split(",")]

    def listen(self, name):
        with netlab.netns(name):
            sock = socket.socket(self.family, socket.SOCK_STREAM)
        if self.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("", int(self.args["port"])))
        sock.listen(64)
        return sock

    def alive(self):
        return [flow for flow in self.flows if not flow.broken]

    def do_open(self, n):
        for _ in range(int(n)):
            client = socket.socket(self.family, socket.SOCK_STREAM)
            client.settimeout(self.timeout)
            netlab.bind_fresh(client, self.args["bind"])
            client.connect((self.args["host"], int(self.args["port"])))
            ready, _, _ = select.select(self.listeners, [], [], self.timeout)
            server, peer = ready[0].accept()
            if peer[:2] != client.getsockname()[:2]:
                raise OSError(f"accepted {peer}")
            server.settimeout(self.timeout)
            self.flows.append(Flow(client, server))

    @contextlib.contextmanager
    def trying(self, flow):
        try:
            yield
        except OSError:
            flow.broken = True

    def say(self, flow, speaker, listener):
        """A line, and it is heard."""
        with self.trying(flow):
            speaker.send(b"line\n")
            data = b""
            while not data.endswith(b"\n"):
                more = listener.recv(64)
                if not more:
                    raise OSError("ended")
                data += more
            return True
        return False

    def do_speak(self, n):
        for _ in range(int(n)):
            for flow in self.alive():
                self.heard += self.say(flow, flow.server, flow.client)
        # a flow whose confirmations go elsewhere is found out by a reset
        netlab.until(lambda: not self.waiting())
        for flow in self.alive():
            with self.trying(flow):
                flow.client.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    if not flow.client.recv(64):
                        raise OSError("ended")
            flow.client.settimeout(self.timeout)

    def do_half(self):
        for flow in self.alive():
            with self.trying(flow):
                flow.client.shutdown(socket.SHUT_WR)
                if flow.server.recv(64):
                    raise OSError("more than the end")

    def do_close(self):
        for flow in self.flows:
            flow.client.close()
            with self.trying(flow):
                while flow.server.recv(64):
                    pass
            flow.server.close()
        self.flows = []

    def do_end(self):
        for flow in self.alive():
            flow.server.close()
            with self.trying(flow):
                if flow.client.recv(64):
                    raise OSError("more than the end")

    def do_forget(self):
        for flow in self.flows:
            for sock in flow.client, flow.server:
                if sock.fileno() >= 0:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                    struct.pack("ii", 1, 0))
                    sock.close()
        self.flows = []

    def waiting(self):
        size = array.array("i", [0])
        n = 0
        for flow in self.flows:
            if flow.server.fileno() >= 0 and not flow.broken:
                fcntl.ioctl(flow.server, termios.TIOCOUTQ, size)
                n += size[0]
        return n

    def report(self):
        broken = sum(flow.broken for flow in self.flows)
        print(f"flows={len(self.flows)} broken={broken} heard={self.heard} "
              f"waiting={self.waiting()}", flush=True)


def main():
    role, *words = sys.argv[1:] or ["--help"]
    if role != "client":
        print(__doc__, end="")
        sys.exit(role not in ("-h", "--help"))
    args = dict(OPTIONS)
    for key, value in zip(words[::2], words[1::2]):
        if key.removeprefix("--") not in OPTIONS:
            sys.exit(f"lastack.py: no option {key}")
        args[key.removeprefix("--")] = value
    ends = Ends(args)
    for line in sys.stdin:
        word, *rest = line.split() or [""]
        if word == "quit":
            break
        command = getattr(ends, "do_" + word, None)
        if not command:
            sys.exit(f"lastack.py: no command {word!r}")
        command(*rest)
        ends.report()


if __name__ == "__main__":
    main()
