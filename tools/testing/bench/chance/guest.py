#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
"""What the program of servers costs a packet; runs in the machine, see chance.py.

The kernel runs the program on a packet again and again (BPF_PROG_TEST_RUN) and tells
the nanoseconds of one run, which are instructions where the machine counts them (run
--icount).  Sockets are real.  Prints lines of CSV.
"""

import ctypes
import os
import socket
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "selftests/net/ipvs_mhs"))

import chance_packets as packets  # noqa: E402

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


def main():
    if ctypes.CDLL(None).unshare(CLONE_NEWNET):
        raise SystemExit("no network namespace")
    built = Path(os.environ["MHS_KO"]).parent / "chance/chance.bpf.o"
    subprocess.run(f"mountpoint -q /sys/fs/bpf || mount -t bpf bpf /sys/fs/bpf; "
                   f"bpftool prog loadall {built} {MAPS} type classifier pinmaps "
                   f"{MAPS}", shell=True, check=True)
    packets.network()
    program = packets.Program(MAPS)
    print("what,family,instructions")
    program.serve()
    for bits in 4, 6:
        for what, number in measure(program, bits):
            print(f"{what},{bits},{number:.0f}")


if __name__ == "__main__":
    main()
