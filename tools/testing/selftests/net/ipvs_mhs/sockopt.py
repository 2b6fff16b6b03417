#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""What a user can do in a namespace of its own.

Netlink, and so ipvsadm, is for root; the socket options that it had before are
for every user in a namespace of the user's own.

methods  Forwarding methods that ipvsadm does not know, to which packets go.  Prints
         how many were sent.
refused  What becomes of a service of mhs and of one of rr.
"""
import errno
import socket
import struct
import sys
import time

# IP_VS_SO_SET_*
ADD, DEL, ADD_DEST, DEL_DEST, EDIT_DEST = 1154, 1156, 1159, 1160, 1161
ADDR = socket.inet_aton("127.0.0.2")
PORT = socket.htons(53)


def service(scheduler=b"mhs", port=PORT):
    return struct.pack("@H2x4sH2xI16sIII", socket.IPPROTO_UDP, ADDR, port, 0,
                       scheduler, 0, 0, 0xffffffff)


def dest(host, weight, method=3):
    return struct.pack("@4sH2xIiII", socket.inet_aton(host), PORT, method,
                       weight, 0, 0)


def control():
    """A function that gives the kernel a command and its data."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    return lambda what, data: sock.setsockopt(socket.IPPROTO_IP, what, data)


def column(name):
    with open("/proc/net/ip_vs_mhs", encoding="ascii") as f:
        head, line = (text.split() for text in f)
    return line[head.index(name)]


def wait(state):
    end = time.monotonic() + 20
    while column("State") != state and time.monotonic() < end:
        time.sleep(0.02)    # why: the pace of looks


def send(packets):
    for _ in range(packets):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            try:
                sock.sendto(b"?", ("127.0.0.2", 53))
            except OSError:
                pass


def methods(do):
    sent = 0
    do(ADD, service())
    do(ADD_DEST, service() + dest("127.0.0.3", 1))
    for method in range(8):
        do(EDIT_DEST, service() + dest("127.0.0.3", 1, method))
        send(20)
        do(ADD_DEST, service() + dest("127.0.0.4", 1, method))
        wait("stable")
        send(20)
        do(DEL_DEST, service() + dest("127.0.0.4", 1, method))
        sent += 40
    return sent


def refused(do):
    answers = []
    for name in b"mhs", b"rr":
        try:
            do(ADD, service(name))
            answers.append("made")
        except OSError as error:
            answers.append(errno.errorcode[error.errno])
    return " ".join(answers)


if __name__ == "__main__":
    print({"methods": methods, "refused": refused}
          [sys.argv[1]](control()))
