#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""The demo's client of one service: slow downloads and short requests.

It takes commands, one a line, on standard input; each is answered by one line
of key=value pairs on standard output:

    open N     begin N downloads, wait until each has its first bytes
    begin      an interval begins: 4 clients ask for the small page, each
               again and again, every time over a new connection
    mark       forget which servers have answered so far
    half       forget what downloads got so far
    end        the interval ends, this is what happened in it:
               alive     downloads that were running when it began
               broken    of these: cut off
               held      of these, not cut off: got, since half, less than
                         a quarter of what most got
               served    requests with a complete answer
               failed    requests without, within 5 s
               slow      served, but connecting took 0.9 s or longer (a lost
                         SYN is repeated after 1 s)
               NAME      requests made after the mark that this server answered
    try PORT N N connections at once to another port of the host: refused,
               those that are not there after 2 s
    quit

`load.py entries HOST PORT...` prints every half second the uptime and, for each
service, the connection entries of its servers (ActiveConn and InActConn).
"""
import asyncio
import collections
import re
import socket
import sys
import time

CLIENTS = 4
AT_ONCE = 20    # downloads that are begun together
PAUSE = 0.2     # of a client between two requests, in seconds
PATIENCE = 5    # for one request
BEGIN = 30      # for the first bytes of a download
SLOW = 0.9      # to connect


class Download(asyncio.Protocol):
    """A download that nginx lets trickle: some bytes a second, for ever."""

    def __init__(self):
        self.first = asyncio.get_running_loop().create_future()
        self.bytes = 0
        self.broken = False

    def connection_made(self, transport):
        transport.write(b"GET /slow HTTP/1.0\r\n\r\n")

    def data_received(self, data):
        self.bytes += len(data)
        if not self.first.done():
            self.first.set_result(None)

    def connection_lost(self, exc):
        self.broken = True
        if not self.first.done():
            self.first.set_exception(exc or ConnectionError("closed"))


class Load:
    def __init__(self, host, port):
        self.host = host
        self.port = port
        self.downloads = []
        self.alive = []     # at the start of the interval
        self.clients = []
        self.going = False
        self.marks = 0
        self.count = collections.Counter()

    async def open(self, n):
        left = int(n)
        while left > 0:
            some = min(left, AT_ONCE)
            self.downloads += await asyncio.gather(
                *(asyncio.wait_for(self.download(), BEGIN)
                  for _ in range(some)))
            left -= some
        return {"downloads": len(self.downloads)}

    async def download(self):
        _, download = await asyncio.get_running_loop().create_connection(
            Download, self.host, self.port)
        await download.first
        return download

    async def begin(self):
        self.count.clear()
        self.alive = [d for d in self.downloads if not d.broken]
        await self.half()
        self.going = True
        self.clients = [asyncio.create_task(self.client())
                        for _ in range(CLIENTS)]
        return {"alive": len(self.alive)}

    async def mark(self):
        self.marks += 1
        return {"mark": self.marks}

    async def half(self):
        for download in self.alive:
            download.bytes = 0
        return {"half": len(self.alive)}

    async def client(self):
        while self.going:
            mark = self.marks
            try:
                server = await asyncio.wait_for(self.request(), PATIENCE)
            except (OSError, asyncio.TimeoutError):
                self.count["failed"] += 1
            else:
                self.count["served"] += 1
                self.count[f"{server} {mark}"] += 1
            await asyncio.sleep(PAUSE)

    async def request(self):
        """Fetch the page; return the name of the server that is on it."""
        start = time.monotonic()
        reader, writer = await asyncio.open_connection(self.host, self.port)
        took = time.monotonic() - start
        try:
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            page = re.fullmatch(rb"HTTP/1.1 200 .*I am server (\w+)\n",
                                await reader.read(), re.DOTALL)
        finally:
            writer.close()
        if not page:
            raise ConnectionError("no complete answer")
        self.count["slow"] += took >= SLOW
        return page[1].decode()

    async def end(self):
        self.going = False
        await asyncio.gather(*self.clients)
        running = sorted(d.bytes for d in self.alive if not d.broken)
        # The upper quartile, in place of a time: where the machine itself
        # is slow, all get less, and later.
        most = running[len(running) * 3 // 4] if running else 0
        answer = {
            "alive": len(self.alive),
            "broken": len(self.alive) - len(running),
            "held": sum(n < max(most / 4, 1) for n in running),
        }
        for key in ("served", "failed", "slow"):
            answer[key] = self.count[key]
        for key in sorted(self.count):
            if key.endswith(f" {self.marks}"):
                answer[key.split()[0]] = self.count[key]
        return answer

    async def attempt(self, port, n):
        async def connect():
            _, writer = await asyncio.open_connection(self.host, int(port))
            writer.close()

        done = await asyncio.gather(
            *(asyncio.wait_for(connect(), 2) for _ in range(int(n))),
            return_exceptions=True)
        for error in done:
            if error and not isinstance(error,
                                        (OSError, asyncio.TimeoutError)):
                raise error
        return {"tried": len(done), "refused": sum(map(bool, done))}


async def serve(host, port):
    load = Load(host, port)
    commands = {"open": load.open, "begin": load.begin, "mark": load.mark,
                "half": load.half, "end": load.end, "try": load.attempt}
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := (await lines.readline()).decode():
        name, *words = line.split()
        if name == "quit":
            break
        answer = await commands[name](*words)
        print(*(f"{k}={v}" for k, v in answer.items()), flush=True)


def entries(host, ports):
    """Watch /proc/net/ip_vs, where addresses and ports are in hex."""
    services = [f"{socket.inet_aton(host).hex().upper()}:{int(p):04X}"
                for p in ports]
    while True:
        number = dict.fromkeys(services, 0)
        service = None
        with open("/proc/net/ip_vs", encoding="ascii") as file:
            for line in file:
                words = line.split()
                if words[0] == "TCP":
                    service = words[1]
                elif words[0] == "->" and service in number:
                    number[service] += int(words[-2]) + int(words[-1])
        with open("/proc/uptime", encoding="ascii") as file:
            print(file.read().split()[0], *number.values(), flush=True)
        time.sleep(0.5)


if __name__ == "__main__":
    if sys.argv[1] == "entries":
        entries(sys.argv[2], sys.argv[3:])
    else:
        asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
