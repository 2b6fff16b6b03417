#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
"""What a packet costs with the second chance: the program of servers, and a director
to which a packet comes back; runs in the machine, see chance.py.

The kernel runs the program on a packet again and again (BPF_PROG_TEST_RUN) and tells
the nanoseconds of one run, which are instructions where the machine counts them (run
--icount).  Sockets are real.  Prints lines of CSV.
"""

import ctypes
import gc
import os
import socket
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = (str(HERE.parents[1] / "selftests/net/ipvs_mhs"),
                str(HERE.parent))

import chance_packets as packets  # noqa: E402
import ipvs_mhs_tool  # noqa: E402
import lab  # noqa: E402

# pylint: disable=protected-access
ipvs_mhs_tool._COMMAND_TIMEOUT_S = 600      # the host may have other things to do

MAPS = "/sys/fs/bpf/mhs-bench"
REPEAT, TIMES = 64, 15
CLONE_NEWNET = 0x40000000


def cost(program, packet, answer, repeat=REPEAT):
    """Of one run, which must answer that."""
    spent = []
    for _ in range(TIMES):
        got = program.run(packet, repeat=repeat)
        if got != answer:
            raise SystemExit(f"the program answers {got}, not {answer}")
        spent.append(program.spent)
    return statistics.median(spent)


def measure(program, bits):
    """(what, instructions) of each kind of packet"""
    vip, stranger = (packets.VIPS[bits], 80), (packets.CLIENTS[bits], 5000)
    mine = "10.1.0.2" if bits == 4 else "fd01::2"
    ack = packets.segment(stranger, vip, packets.A, ack=7)
    family = socket.AF_INET6 if bits == 6 else socket.AF_INET
    with socket.create_server(vip, family=family), \
            socket.socket(family) as client:
        client.bind((mine, 6000))
        client.connect(vip)
        flow = (mine, 6000), vip
        for what, answer, packet in (
                ("other", packets.STAYS,
                 packets.segment(stranger, (vip[0], 81), packets.A)),
                ("syn", packets.STAYS,
                 packets.segment(stranger, vip, packets.S)),
                ("stays", packets.STAYS,
                 packets.segment(*flow, packets.A, ack=9))):
            yield what, cost(program, packet, answer)
        # a packet is sent back once; the clock is paid once for a run
        clock = cost(program, packet, packets.STAYS, 1) - \
            cost(program, packet, packets.STAYS)
        yield "sent", cost(program, ack, packets.SENT_BACK, 1) - clock
        with open("/proc/sys/net/ipv4/tcp_syncookies", "w",
                  encoding="ascii") as file:
            file.write("2")
        half = packets.Half(bits, 7002)
        yield "cookie", cost(program, half.back(
            packets.A, seq=1001, ack=half.isn + 1 & 0xffffffff), packets.STAYS)


class Director:
    """One with two servers, of which the first is drained: flows in moved slots"""

    FLOWS = 200

    def __init__(self, bits):
        self.bits = bits
        self.ports = 54 if bits == 6 else 34    # where a frame has them
        self.at = lab.Director(f"d{bits}", 2)
        self.way_in = self.tap(f"g-d{bits}")
        self.way_out = self.at.inside(self.tap, "out")
        self.words = f"-t {lab.at_port(lab.VIP[bits])}"
        self.at.sysctl("net/ipv4/vs/mhs/second_chance", lab.at_port(lab.VIP[bits]))
        self.at.ipvs(f"-A {self.words} -s mhs", *(
            f"-a {self.words} -r {lab.dest(i, bits)} -g -w 1" for i in (0, 1)))
        self.answer()
        homes = [(port, self.home(port)) for port in range(1024, 1024 + self.FLOWS)]
        self.at.ipvs(f"-e {self.words} -r {lab.dest(0, bits)} -g -w 0")
        self.answer()
        self.moved = [port for port, home in homes if home == 0]

    @staticmethod
    def tap(device):
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        sock.bind((device, 0))
        sock.settimeout(.01)
        return sock

    def frame(self, packet, mac=None):
        mac = bytes.fromhex((mac or self.at.mac).replace(":", ""))
        return mac + bytes.fromhex("020000000001") + (
            b"\x86\xdd" if self.bits == 6 else b"\x08\x00") + packet

    def back(self, packet, number):
        """As the server sends it back"""
        own = {4: "10.2.0.1", 6: "fd02::1"}[self.bits]
        gre = struct.pack("!HHI", 0x2000, 0x86dd if self.bits == 6 else 0x800,
                          0x6d687300)
        return packets.ip(lab.server(number, self.bits), own, 47, gre + packet)

    def flow(self, port):
        return packets.segment((packets.CLIENTS[self.bits], port),
                               (lab.VIP[self.bits], 80), packets.A, ack=7)

    def home(self, port):
        """The server that the director sends it to, by the address of its frame"""
        self.way_in.send(self.frame(self.flow(port)))
        while True:
            got = self.way_out.recv(2048)
            if got[self.ports:self.ports + 2] == struct.pack("!H", port):
                return got[5]

    def answer(self):
        """The questions, as both servers do, until the table has the change"""
        until = time.monotonic() + 3
        at = 22 if self.bits == 6 else 26
        size = 16 if self.bits == 6 else 4
        while time.monotonic() < until:
            try:
                got = self.way_out.recv(2048)
            except socket.timeout:
                continue
            if got[at:at + size] == got[at + size:at + 2 * size]:
                self.way_in.send(self.frame(self.back(got[14:], got[5])))
        self.at.wait(State="stable")

    def take(self, frames, left):
        """Instructions of one, of those that must all have left the director or not"""
        before = self.at.sent()
        began = time.monotonic_ns()
        for frame in frames:
            self.way_in.send(frame)
        took = time.monotonic_ns() - began
        gone = self.at.sent() - before
        if not 0 <= gone - left * len(frames) <= 4:     # with questions
            raise SystemExit(f"{gone} left, of {len(frames)}")
        return took / len(frames)

    def measure(self):
        come = [self.flow(port) for port in self.moved]
        backs = [self.back(packet, 1) for packet in come]
        spent = {}
        for _ in range(TIMES):
            for what, sent, mac, left in (
                    ("lost", come, "02:00:00:00:00:fe", 0), ("director", come, None, 1),
                    ("lost back", backs, "02:00:00:00:00:fe", 0),
                    ("back", backs, None, 1)):
                spent.setdefault(what, []).append(
                    self.take([self.frame(packet, mac) for packet in sent], left))
        cost = {what: statistics.median(all_) for what, all_ in spent.items()}
        yield "director", cost["director"] - cost["lost"]
        yield "back", cost["back"] - cost["lost back"]


def main():
    gc.disable()
    print("what,family,instructions")
    servers()
    with lab.module():
        for bits in 4, 6:
            for what, number in Director(bits).measure():
                print(f"{what},{bits},{number:.0f}", flush=True)


def servers():
    if ctypes.CDLL(None).unshare(CLONE_NEWNET):
        raise SystemExit("no network namespace")
    built = Path(os.environ["MHS_KO"]).parent / "chance/chance.bpf.o"
    subprocess.run(f"mountpoint -q /sys/fs/bpf || mount -t bpf bpf /sys/fs/bpf; "
                   f"bpftool prog loadall {built} {MAPS} type classifier pinmaps "
                   f"{MAPS}", shell=True, check=True)
    packets.network()
    program = packets.Program(MAPS)
    program.serve()
    for bits in 4, 6:
        for what, number in measure(program, bits):
            print(f"{what},{bits},{number:.0f}")


if __name__ == "__main__":
    main()
