#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Datagrams and downloads for the tests of masquerading.

serve   UDP: answer every datagram with its own bytes, the server's name first
ask     UDP: a flow for each of --count ports; prints served= refused= lost=
        wrong= (the answer came from elsewhere or is damaged) and the number
        of flows that each server answered
give    TCP: send --size patterned bytes to whoever connects
take    TCP: fetch them --count times; prints good= bad= and the seconds
"""
import argparse
import collections
import select
import socket
import time


SO_NO_CHECK = 11


def family(host):
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def pattern(size):
    block = bytes(range(251))
    return (block * (size // len(block) + 1))[:size]


def serve(args):
    sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    sock.bind(("::", args.port))
    sock.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, args.no_checksum)
    name = args.name.encode() + b" "
    while True:
        try:
            data, peer = sock.recvfrom(65535)
            sock.sendto(name + data, peer)
        except OSError:
            pass  # an ICMP error of an earlier answer


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
    parser.add_argument("role", choices=["serve", "ask", "give", "take"])
    parser.add_argument("--name", default="?")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--no-checksum", type=int, default=0,
                        help="1: UDP over IPv4 without")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--size", type=int, default=32, help="bytes")
    parser.add_argument("--timeout", type=float, default=12,
                        help="seconds without an answer")
    args = parser.parse_args()
    globals()[args.role](args)


if __name__ == "__main__":
    main()
