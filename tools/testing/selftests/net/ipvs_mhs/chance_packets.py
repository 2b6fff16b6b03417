#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""What the program of servers, chance.bpf.o, does with each kind of packet.

    chance_packets.py DIRECTORY [without-btf]

Runs in a network namespace of its own.  DIRECTORY is where bpftool has pinned the
program and its maps.  Packets do not come by a device: the kernel runs the program
on them (BPF_PROG_TEST_RUN) and says what it answered.  The sockets are real.  Prints
NAME<tab>STATUS<tab>TEXT for each check, for report() of lib.sh.
"""
import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = HERE, os.path.join(HERE, "../../../../../scripts")
sys.dont_write_bytecode = True

import craft  # noqa: E402
import hostile_shapes  # noqa: E402
import netlab  # noqa: E402
from craft import ACK as A, FIN as F, RST as R, SYN as S  # noqa: E402
from netlab import ip, pack  # noqa: E402
from real_server_lib import chance, host  # noqa: E402
from real_server_lib.options import SetUp  # noqa: E402

TEST_RUN = 10
SENT_BACK, STAYS = 7, -1    # TC_ACT_REDIRECT, TC_ACT_UNSPEC
BPF = {"x86_64": 321, "aarch64": 280}   # the number of bpf(2)
OBJ_GET = 7
DIRECTORS = {4: "10.2.0.10", 6: "fd02::10"}
VIPS = {4: "10.9.0.1", 6: "fd09::1"}
CLIENTS = {4: "10.64.0.1", 6: "fd64::1"}
TUNSETIFF = 0x400454ca
TAP = 0x1032                # IFF_TAP, IFF_NO_PI, IFF_NAPI, IFF_NAPI_FRAGS


def segment(src, dst, flags, **words):
    """@src, @dst: (address, port)"""
    return netlab.tcp(*src, *dst, flags, **words)


def error(router, quoted):
    """About a packet from a server"""
    v6 = quoted[0] >> 4 == 6
    kind = (2, 0, 1280) if v6 else (3, 4, 1400)
    return netlab.icmp(router, quoted[8:24] if v6 else quoted[12:16], *kind,
                       quoted[:48 if v6 else 28])


def bpf(command, attr):
    buffer = ctypes.create_string_buffer(attr, 128)
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(BPF[os.uname().machine], command, buffer, 128)
    if result < 0:
        raise OSError(ctypes.get_errno(), "bpf(2)")
    return result, buffer


class Program:
    def __init__(self, directory):
        self.maps = directory
        path = ctypes.create_string_buffer(
            host.Host.program_path(directory).encode())
        self.fd, _ = bpf(OBJ_GET, struct.pack("=QI", ctypes.addressof(path), 0))

    def run(self, packet, repeat=0, source=bytes(6)):
        """The answer; @spent becomes the nanoseconds of one run."""
        frame = bytes(6) + source + craft.ETH[packet[0] >> 4] + packet
        data = ctypes.create_string_buffer(frame, len(frame))
        _, attr = bpf(TEST_RUN, struct.pack(
            "=4I2QI", self.fd, 0, len(frame), 0, ctypes.addressof(data), 0,
            repeat))
        self.spent = struct.unpack_from("=I", attr, 36)[0]
        return struct.unpack_from("=i", attr, 4)[0]

    def directory(self):
        """As of a part"""
        return self.maps

    def serve(self):
        """As setup does it"""
        told = host.Host()
        for part in (chance.Services(self, SetUp(tuple(VIPS.values()),
                                                 ports=(("tcp", 80),))),
                     chance.Directors(self, tuple(DIRECTORS.values()))):
            while commands := part.making(told):
                told.do(commands[0])


def check(name, want, got):
    craft.check(name, want == got, f"want {want}, got {got}")


def sh(*commands):
    for command in commands:
        subprocess.run(command, shell=True, check=True)


def network():
    """Clients that never answer are behind a device that drops everything."""
    sh("modprobe -q tun || [ -e /dev/net/tun ]",
       "ip link set lo up", "ip link add away type dummy",
       "ip link set away up",
       "ip addr add 10.9.0.1/32 dev lo", "ip addr add fd09::1/128 dev lo nodad",
       "ip route add 10.64.0.0/10 dev away",
       "ip -6 route add fd64::/64 dev away",
       "ip link add mhs-chance4 type dummy", "ip link add mhs-chance6 type dummy",
       "ip addr add 10.1.0.2/32 dev lo", "ip addr add fd01::2/128 dev lo nodad")


class Half:
    """A half-open connection from a client that never answers"""

    def __init__(self, bits, port):
        family = socket.AF_INET6 if bits == 6 else socket.AF_INET
        with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM,
                           socket.htons(3)) as sniff, \
                socket.socket(family, socket.SOCK_RAW,
                              socket.IPPROTO_RAW) as raw:
            sniff.bind(("away", 3))
            sniff.settimeout(10)
            self.src = CLIENTS[bits], port
            self.dst = VIPS[bits], 80
            raw.sendto(segment(self.src, self.dst, S, seq=1000),
                       (VIPS[bits], 0))
            while True:
                got = sniff.recv(2048)
                at = 40 if got[0] >> 4 == 6 else 20
                if len(got) >= at + 20 and got[at + 13] & 0x3f == S | A and \
                        got[at:at + 4] == struct.pack("!HH", 80, port):
                    break
            self.isn = struct.unpack_from("!I", got, at + 4)[0]
            self.answer = got

    def back(self, flags, **words):
        return segment(self.src, self.dst, flags, **words)


def cases(program, bits, btf):
    vip, name = (VIPS[bits], 80), f"IPv{bits}"
    mine = "10.1.0.2" if bits == 4 else "fd01::2"
    stranger = CLIENTS[bits], 5000
    router = "10.1.0.1" if bits == 4 else "fd01::1"

    def are(*rows):
        for what, want, packet in rows:
            check(f"{name}: {what}", want, program.run(packet))

    def written(value):
        with open("/proc/sys/net/ipv4/tcp_syncookies", "w") as file:
            file.write(value)

    ack = segment(stranger, vip, A, ack=7)
    if bits == 4:
        are(("control: not a service", STAYS, ack))
    program.serve()
    are(("nobody listens", SENT_BACK, ack))
    with listening(bits) as listener, \
            socket.socket(listener.family) as client:
        are(("ACK without a socket", SENT_BACK, ack),
            ("RST without a socket", SENT_BACK, segment(stranger, vip, R)),
            ("FIN without a socket", SENT_BACK, segment(stranger, vip, F | A)),
            ("SYN", STAYS, segment(stranger, vip, S)),
            ("another port", STAYS, segment(stranger, (vip[0], 81), A)),
            ("another address", STAYS, segment(stranger, (mine, 80), A)),
            ("UDP", STAYS, ip(stranger[0], vip[0], 17, ack[-20:])),
            ("an ICMP error", SENT_BACK, error(router, segment(vip, stranger, A))),
            ("an ICMP error about something else", STAYS,
             error(router, segment((vip[0], 81), stranger, A))))
        if bits == 4:
            are(("IP options", SENT_BACK, hostile_shapes.options4(ack, bytes(8))),
                *((what, want, ip(stranger[0], vip[0], 6, ack[-20:], frag=at))
                  for what, want, at in (("a first fragment", SENT_BACK, 0x2000),
                                         ("a later fragment", STAYS, 1))))
        client.bind((mine, 6000))
        client.connect(vip)
        flow = (mine, 6000), vip
        are(("ACK with a socket", STAYS, segment(*flow, A, ack=9)),
            ("RST with a socket", STAYS, segment(*flow, R)),
            ("an ICMP error with a socket", STAYS,
             error(router, segment(*reversed(flow), A))))
        # the server closes first
        server, _ = listener.accept()
        server.shutdown(socket.SHUT_WR)
        client.recv(1)
        client.close()
        server.close()

        half = Half(bits, 7001)
        good = half.isn + 1 & 0xffffffff
        bad = SENT_BACK if btf else STAYS
        are(("half-open: its ACK", STAYS, half.back(A, seq=1001, ack=good)),
            ("half-open: another flow's ACK", bad, half.back(A, ack=good + 5)),
            ("half-open: its RST", STAYS, half.back(R, seq=1001)),
            ("half-open: another flow's RST", bad, half.back(R, seq=5)),
            ("half-open: an error about its SYN-ACK", STAYS,
             error(router, half.answer)),
            ("half-open: an error about another flow", bad,
             error(router, segment(vip, half.src, A, seq=5))))
        written("2")
        half = Half(bits, 7002)
        good = half.isn + 1 & 0xffffffff
        are(("cookie: its ACK", STAYS, half.back(A, seq=1001, ack=good)),
            ("cookie: another ACK", SENT_BACK, half.back(A, seq=1001, ack=5)))
        written("1")


def listening(bits):
    return socket.create_server((VIPS[bits], 80), family=socket.AF_INET6 if
                                bits == 6 else socket.AF_INET)


def sent_back(program):
    return sum(int.from_bytes(cpu, sys.byteorder) for cpu in host.Host().map(
        f"{program.maps}/chance_counts")[struct.pack("=I", 1)])


def frags(program):
    """By a device that leaves all but the link's header in pages"""
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", b"frags", TAP))
    sh("ip link set frags address 02:00:00:00:00:01 up",
       "tc qdisc add dev frags clsact", "tc filter add dev frags ingress bpf "
       f"direct-action pinned {program.maps}/mhs_chance")
    for bits in 4, 6:
        flow = (VIPS[bits], 80), (CLIENTS[bits], 5000)
        frame = bytes([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]) + \
            (b"\x86\xdd" if bits == 6 else b"\x08\x00")
        with listening(bits):
            before = sent_back(program)
            os.writev(tap, [frame, error(flow[1][0], segment(*flow, A))])
            check(f"IPv{bits}: headers in pages", before + 1,
                  sent_back(program))
    os.close(tap)


def advertised(program):
    """A neighbour advertisement of the director, with that hop limit, in a frame of
    that address: the one that the program has of the director then"""
    own = "fd02::11"
    for name, limit, target in (("control: of another link", 64, DIRECTORS[6]),
                                ("of another host", 255, own),
                                ("of the director", 255, DIRECTORS[6])):
        packet = ip(target, own, 58, struct.pack("!BBHI", 136, 0, 0, 0) +
                    pack(target), ttl=limit)
        mac = bytes([2, 0, 0, 0, 0, limit])
        program.run(packet, source=mac)
        known = {value[24:30] for value in host.Host().map(
            f"{program.maps}/chance_directors").values()}
        check(f"IPv6: an advertisement {name}", "director" in name, mac in known)


def main():
    network()
    program = Program(sys.argv[1])
    for bits in 4, 6:
        cases(program, bits, "without-btf" not in sys.argv)
    frags(program)
    advertised(program)


if __name__ == "__main__":
    main()
