#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""What the program of servers, chance.bpf.o, does with each kind of packet, and with
hostile ones.

    chance_packets.py DIRECTORY PACKETS [without-btf]

Runs in a network namespace of its own.  DIRECTORY is where bpftool has pinned the
program and its maps.  Packets do not come by a device: the kernel runs the program
on them (BPF_PROG_TEST_RUN) and says what it answered.  The sockets are real.  Prints
NAME<tab>STATUS<tab>TEXT for each check, for report() of lib.sh.
"""
import ctypes
import fcntl
import os
import random
import socket
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = HERE, os.path.join(HERE, "../../../../../scripts")
sys.dont_write_bytecode = True

from netlab import checksum, pack  # noqa: E402
from real_server_lib import chance, host  # noqa: E402
from real_server_lib.options import SetUp  # noqa: E402

TEST_RUN = 10
SENT_BACK, STAYS = 7, -1    # TC_ACT_REDIRECT, TC_ACT_UNSPEC
BPF = {"x86_64": 321, "aarch64": 280}   # the number of bpf(2)
OBJ_GET = 7
F, S, R, A = 1, 2, 4, 16
DIRECTORS = {4: "10.2.0.10", 6: "fd02::10"}
VIPS = {4: "10.9.0.1", 6: "fd09::1"}
CLIENTS = {4: "10.64.0.1", 6: "fd64::1"}
TUNSETIFF = 0x400454ca
TAP = 0x1032                # IFF_TAP, IFF_NO_PI, IFF_NAPI, IFF_NAPI_FRAGS


def tcp(src, dst, flags, seq=1, ack=0):
    """@src, @dst: (address, port)"""
    segment = bytearray(struct.pack("!HHIIBBHHH", src[1], dst[1], seq, ack,
                                    5 << 4, flags, 8192, 0, 0))
    pseudo = pack(src[0]) + pack(dst[0]) + struct.pack("!II", 20, 6)
    segment[16:18] = struct.pack("!H", checksum(pseudo + bytes(segment)))
    return bytes(segment)


def ip(src, dst, protocol, payload, fragment=0, options=b""):
    if ":" in src:
        return struct.pack("!IHBB", 6 << 28, len(payload), protocol, 64) + \
            pack(src) + pack(dst) + payload
    head = struct.pack("!BBHHHBBH", 0x45 + len(options) // 4, 0,
                       20 + len(options) + len(payload), 0, fragment, 64,
                       protocol, 0) + pack(src) + pack(dst) + options
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload


def segment(src, dst, flags, **words):
    fragment = words.pop("fragment", 0)
    options = words.pop("options", b"")
    return ip(src[0], dst[0], 6, tcp(src, dst, flags, **words), fragment, options)


def error(router, quoted):
    """About a packet from a server"""
    if quoted[0] >> 4 == 6:
        dst = socket.inet_ntop(socket.AF_INET6, quoted[8:24])
        return ip(router, dst, 58, struct.pack("!BBHI", 2, 0, 0, 1280) +
                  quoted[:48])
    dst = socket.inet_ntop(socket.AF_INET, quoted[12:16])
    return ip(router, dst, 1, struct.pack("!BBHI", 3, 4, 0, 1400) + quoted[:28])


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

    def run(self, packet, bits=None, repeat=0, source=bytes(6)):
        """The answer; @spent becomes the nanoseconds of one run."""
        kind = (packet[0] >> 4 if packet else 4) if bits is None else bits
        frame = bytes(6) + source + (b"\x86\xdd" if kind == 6 else b"\x08\x00") + packet
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


failed = 0


def check(name, want, got):
    global failed
    failed += want != got
    print(f"{name}\t{int(want != got)}\t"
          f"{'' if want == got else f'want {want}, got {got}'}")


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
    vip, port = VIPS[bits], 80
    name = f"IPv{bits}"
    mine = "10.1.0.2" if bits == 4 else "fd01::2"
    stranger = CLIENTS[bits], 5000
    router = "10.1.0.1" if bits == 4 else "fd01::1"

    def is_(what, want, packet):
        check(f"{name}: {what}", want, program.run(packet))

    ack = segment(stranger, (vip, port), A, ack=7)
    if bits == 4:
        is_("control: not a service", STAYS, ack)
    program.serve()
    is_("nobody listens", SENT_BACK, ack)
    family = socket.AF_INET6 if bits == 6 else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((vip, port))
        listener.listen(64)
        is_("ACK without a socket", SENT_BACK, ack)
        is_("RST without a socket", SENT_BACK,
            segment(stranger, (vip, port), R))
        is_("FIN without a socket", SENT_BACK,
            segment(stranger, (vip, port), F | A))
        is_("SYN", STAYS, segment(stranger, (vip, port), S))
        is_("another port", STAYS, segment(stranger, (vip, 81), A))
        is_("another address", STAYS,
            segment(stranger, (mine, port), A))
        is_("UDP", STAYS, ip(stranger[0], vip, 17, ack[-20:]))
        if bits == 4:
            is_("IP options", SENT_BACK,
                segment(stranger, (vip, port), A, options=bytes(8)))
            is_("a first fragment", SENT_BACK,
                segment(stranger, (vip, port), A, fragment=0x2000))
            is_("a later fragment", STAYS,
                segment(stranger, (vip, port), A, fragment=1))
        is_("an ICMP error", SENT_BACK,
            error(router, segment((vip, port), stranger, A)))
        is_("an ICMP error about something else", STAYS,
            error(router, segment((vip, 81), stranger, A)))
        with socket.socket(family) as client:
            client.bind((mine, 6000))
            client.connect((vip, port))
            of_flow = (mine, 6000), (vip, port)
            is_("ACK with a socket", STAYS, segment(*of_flow, A, ack=9))
            is_("RST with a socket", STAYS, segment(*of_flow, R))
            is_("an ICMP error with a socket", STAYS,
                error(router, segment(*reversed(of_flow), A)))
            # the server closes first
            server, _ = listener.accept()
            server.shutdown(socket.SHUT_WR)
            client.recv(1)
            client.close()
            server.close()

        half = Half(bits, 7001)
        good = half.isn + 1 & 0xffffffff
        bad = SENT_BACK if btf else STAYS
        is_("half-open: its ACK", STAYS, half.back(A, seq=1001, ack=good))
        is_("half-open: another flow's ACK", bad, half.back(A, ack=good + 5))
        is_("half-open: its RST", STAYS, half.back(R, seq=1001))
        is_("half-open: another flow's RST", bad, half.back(R, seq=5))
        is_("half-open: an error about its SYN-ACK", STAYS,
            error(router, half.answer))
        is_("half-open: an error about another flow", bad,
            error(router, segment((vip, port), half.src, A, seq=5)))

        with open("/proc/sys/net/ipv4/tcp_syncookies", "w") as file:
            file.write("2")
        half = Half(bits, 7002)
        good = half.isn + 1 & 0xffffffff
        is_("cookie: its ACK", STAYS, half.back(A, seq=1001, ack=good))
        is_("cookie: another ACK", SENT_BACK, half.back(A, seq=1001, ack=5))
        with open("/proc/sys/net/ipv4/tcp_syncookies", "w") as file:
            file.write("1")


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
        with socket.create_server(flow[0], family=socket.AF_INET6 if bits == 6
                                  else socket.AF_INET):
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
        packet = bytearray(ip(target, own, 58, struct.pack("!BBHI", 136, 0, 0, 0) +
                              pack(target)))
        packet[7] = limit
        mac = bytes([2, 0, 0, 0, 0, limit])
        program.run(bytes(packet), source=mac)
        known = {value[24:30] for value in host.Host().map(
            f"{program.maps}/chance_directors").values()}
        check(f"IPv6: an advertisement {name}", "director" in name, mac in known)


def hostile(program, n):
    """Every packet gets one of the answers, whatever is in it and wherever it
    ends."""
    dice = random.Random(n)
    seeds, listeners = [], []
    for bits in 4, 6:
        listeners.append(socket.create_server(
            (VIPS[bits], 80),
            family=socket.AF_INET6 if bits == 6 else socket.AF_INET))
        flow = (CLIENTS[bits], 5000), (VIPS[bits], 80)
        good = segment(*flow, A, ack=7)
        seeds += [good, error(CLIENTS[bits], segment(*reversed(flow), A)),
                  ip(*(end[0] for end in flow), 41 if bits == 6 else 4, good)]
    answers = {}
    for _ in range(n):
        packet = bytearray(dice.choice(seeds))
        bits = packet[0] >> 4
        for _ in range(dice.choice((0, 1, 1, 2, 8))):
            packet[dice.randrange(len(packet))] = dice.choice(
                (0, 1, 6, 0x45, 0x4f, 58, 255, dice.randrange(256)))
        if dice.random() < .5:
            del packet[dice.randrange(len(packet) + 1):]
        try:
            answer = program.run(bytes(packet), bits)
        except OSError as error_:
            answer = error_.errno   # the kernel itself takes no such packet
        answers[answer] = answers.get(answer, 0) + 1
    odd = set(answers) - {STAYS, SENT_BACK, 22}
    check("hostile packets: no odd answer", set(), odd)
    check("hostile packets: both answers", {STAYS, SENT_BACK},
          set(answers) & {STAYS, SENT_BACK})
    print(f"#\t0\t{n} hostile packets: {answers}")
    for listener in listeners:
        listener.close()


def main():
    network()
    program = Program(sys.argv[1])
    for bits in 4, 6:
        cases(program, bits, "without-btf" not in sys.argv)
    frags(program)
    advertised(program)
    hostile(program, int(sys.argv[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
