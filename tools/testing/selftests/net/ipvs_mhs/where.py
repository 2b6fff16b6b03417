#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Flows with ports that the caller chooses, and which server answers each.

client  takes commands on standard input, one a line, answered by one line

    open FIRST N    open N flows from the ports FIRST, FIRST + 1, ...
    ask             send a line, or a datagram, on each; PORT=SERVER for each
    close           close all flows, with a reset
    quit

Options: --proto tcp|udp, --host, --port, --bind ADDRESS.  SERVER is the name that
the server answers with, "none" without an answer.
"""
import argparse
import socket
import struct
import sys

TIMEOUT_S = 10      # for hangs


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["client"])
    parser.add_argument("--proto", choices=["tcp", "udp"], default="tcp")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--bind")
    return parser.parse_args()


def connect(args, port):
    sock = socket.socket(
        socket.AF_INET6 if ":" in args.host else socket.AF_INET,
        socket.SOCK_STREAM if args.proto == "tcp" else socket.SOCK_DGRAM)
    sock.settimeout(TIMEOUT_S)
    sock.bind((args.bind, port))
    sock.connect((args.host, args.port))
    return sock


def answer(sock):
    try:
        sock.send(b"x\n")
        return sock.recv(100).decode().strip() or "none"
    except OSError:
        return "none"


def main():
    args = options()
    flows = {}
    for line in sys.stdin:
        command, *numbers = line.split()
        if command == "quit":
            break
        if command == "open":
            first, count = map(int, numbers)
            for port in range(first, first + count):
                flows[port] = connect(args, port)
        elif command == "close":
            for sock in flows.values():
                if args.proto == "tcp":
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                    struct.pack("ii", 1, 0))
                sock.close()
            flows.clear()
        print(*(f"{port}={answer(sock)}" for port, sock in flows.items())
              if command == "ask" else ["done"], flush=True)


main()
