#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Datagrams and downloads for the tests of masquerading.

serve   UDP: answer every datagram with its own bytes, the server's name first,
        and for --repeat seconds do so every second again
mirror  UDP: answer every datagram with the address that it came from
query   UDP: ask one from the address --bind and the port --from, which is --port
        if not given, and say who has answered and what
ask     UDP: a flow for each of --count ports; prints served= refused= lost=
        wrong= (the answer came from elsewhere or is damaged) and the number
        of flows that each server answered
again   UDP: the same, be silent for --pause seconds and ask again; prints moved=,
        flows that another server answers then, or none
give    TCP: send --size patterned bytes to whoever connects
take    TCP: fetch them --count times; prints good= bad= and the seconds
"""
import argparse
import collections
import contextlib
import select
import socket
import time


SO_NO_CHECK = 11


def family(host):
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def named(peer):
    host, port = peer[0].removeprefix("::ffff:"), peer[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def pattern(size):
    block = bytes(range(251))
    return (block * (size // len(block) + 1))[:size]


def serve(args):
    sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    sock.bind(("::", args.port))
    sock.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, args.no_checksum)
    sock.settimeout(1)
    name = args.name.encode() + b" "
    peers = {}
    sent = time.monotonic()
    while True:
        try:
            data, peer = sock.recvfrom(65535)
            peers[peer] = data, time.monotonic() + args.repeat
            sock.sendto(name + data, peer)
        except OSError:
            pass  # an ICMP error of an earlier answer
        now = time.monotonic()
        if not args.repeat or now - sent < 1:
            continue
        sent = now
        for peer, (data, until) in peers.items():
            if now < until:
                with contextlib.suppress(OSError):
                    sock.sendto(name + data, peer)


def mirror(args):
    sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    sock.bind(("::", args.port))
    while True:
        with contextlib.suppress(OSError):
            peer = sock.recvfrom(65535)[1]
            sock.sendto(named(peer).encode(), peer)


def query(args):
    sock = socket.socket(family(args.host), socket.SOCK_DGRAM)
    sock.bind((args.bind, args.source or args.port))
    sock.settimeout(args.timeout)
    for _ in range(3):
        with contextlib.suppress(OSError):
            sock.sendto(b"?", (args.host, args.port))
            data, peer = sock.recvfrom(65535)
            print(named(peer), data.decode())
            break


def ask(args):
    count = collections.Counter()
    data = pattern(args.size)
    socks = []
    for _ in range(args.count):
        sock = socket.socket(family(args.host), socket.SOCK_DGRAM)
        sock.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, args.no_checksum)
        sock.connect((args.host, args.port))  # refuses other sources
        sock.setblocking(False)
        try:
            sock.send(data)
        except OSError:
            count["refused"] += 1
            continue
        socks.append(sock)
    while socks and (ready := select.select(socks, [], [],
                                            args.timeout)[0]):
        for sock in ready:
            socks.remove(sock)
            try:
                name, _, rest = sock.recv(65535).partition(b" ")
            except ConnectionRefusedError:
                count["refused"] += 1
                continue
            if rest == data:
                count["served"] += 1
                count[name.decode()] += 1
            else:
                count["wrong"] += 1
    count["lost"] = len(socks)
    words = ["served", "refused", "lost", "wrong"]
    words += sorted(set(count) - set(words))
    print(*(f"{k}={count[k]}" for k in words))


def answerer(sock, data, timeout):
    """Ask, and wait for the answer among those of before: by whom?"""
    with contextlib.suppress(OSError):
        sock.send(data)
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            name, _, rest = sock.recv(65535).partition(b" ")
            if rest == data:
                return name
    return None


def again(args):
    socks = []
    for _ in range(args.count):
        sock = socket.socket(family(args.host), socket.SOCK_DGRAM)
        sock.connect((args.host, args.port))
        sock.settimeout(args.timeout)
        socks.append(sock)
    before = [answerer(sock, b"once", args.timeout) for sock in socks]
    print(f"served={len(socks) - before.count(None)}", flush=True)
    time.sleep(args.pause)  # why: to be silent so long is the matter
    after = [answerer(sock, b"again", args.timeout) for sock in socks]
    print(f"moved={sum(a != b for a, b in zip(before, after))}")


def give(args):
    sock = socket.create_server(("::", args.port), family=socket.AF_INET6,
                                dualstack_ipv6=True)
    data = pattern(args.size)
    while True:
        conn, _ = sock.accept()
        with conn:
            conn.settimeout(args.timeout)
            try:
                conn.sendall(data)
            except OSError:
                pass


def take(args):
    good = bad = 0
    want = pattern(args.size)
    start = time.monotonic()
    for _ in range(args.count):
        data = bytearray()
        try:
            with socket.create_connection((args.host, args.port),
                                          args.timeout) as sock:
                while chunk := sock.recv(65536):
                    data += chunk
        except OSError:
            pass
        good += data == want
        bad += data != want
    print(f"good={good} bad={bad} seconds={time.monotonic() - start:.1f}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("role", choices=["serve", "mirror", "query", "ask", "again",
                                         "give", "take"])
    parser.add_argument("--name", default="?")
    parser.add_argument("--host")
    parser.add_argument("--bind", default="")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--from", dest="source", type=int)
    parser.add_argument("--no-checksum", type=int, default=0,
                        help="1: UDP over IPv4 without")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--size", type=int, default=32, help="bytes")
    parser.add_argument("--repeat", type=float, default=0)
    parser.add_argument("--pause", type=float, default=0)
    parser.add_argument("--timeout", type=float, default=12,
                        help="seconds without an answer")
    args = parser.parse_args()
    globals()[args.role](args)


if __name__ == "__main__":
    main()
