#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""What a user can do in a namespace of its own, by the socket options of before Netlink,
which is for root.

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
ADD, ADD_DEST, DEL_DEST, EDIT_DEST = 1154, 1159, 1160, 1161
PORT = socket.htons(53)


def service(scheduler=b"mhs"):
    return struct.pack("@H2x4sH2xI16sIII", socket.IPPROTO_UDP, b"\x7f\0\0\2", PORT, 0,
                       scheduler, 0, 0, 0xffffffff)


def dest(host, method=3):
    return service() + struct.pack("@4sH2xIiII", bytes([127, 0, 0, host]), PORT, method,
                                   1, 0, 0)


def stable():
    with open("/proc/net/ip_vs_mhs", encoding="ascii") as f:
        return " stable " in f.read()


def send(packets):
    for _ in range(packets):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            try:
                sock.sendto(b"?", ("127.0.0.2", 53))
            except OSError:
                pass
    return packets


def methods(do):
    do(ADD, service())
    do(ADD_DEST, dest(3))
    sent = 0
    for method in range(8):
        do(EDIT_DEST, dest(3, method))
        sent += send(20)
        do(ADD_DEST, dest(4, method))
        end = time.monotonic() + 20
        while not stable() and time.monotonic() < end:
            time.sleep(0.02)    # why: the pace of looks
        sent += send(20)
        do(DEL_DEST, dest(4, method))
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
    control = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    print({"methods": methods, "refused": refused}[sys.argv[1]](
        lambda what, data: control.setsockopt(socket.IPPROTO_IP, what, data)))
