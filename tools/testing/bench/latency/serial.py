#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""A web server that takes one request at a time, each for a given time.

usage: serial.py PORT MILLISECONDS
"""
import socket
import sys
import time

ANSWER = (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n"
          b"x")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    seconds = float(sys.argv[2]) / 1000
    with socket.create_server(("", int(sys.argv[1])), backlog=4096) as server:
        while True:
            sock, _ = server.accept()
            with sock:
                try:
                    if sock.recv(4096):
                        time.sleep(seconds)
                        sock.sendall(ANSWER)
                except OSError:
                    pass


if __name__ == "__main__":
    main()
