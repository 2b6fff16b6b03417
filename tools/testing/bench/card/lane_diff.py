# SPDX-License-Identifier: GPL-2.0-only
"""The same frames through the stack and through the lane: the same frames leave.

Frames go to card0 in batches, each batch twice: with the lane off and with the
lane on.  What the cards send to servers is compared byte by byte, but for the
padding of short frames and for the identification of tunnel headers without DF and
of IPv6 fragments, which the kernel chooses at random.  A frame of XDP that is
shorter than Ethernet's differs, too.

--changes: then neighbours, routes, devices, addresses and servers change.  The lane
has sent before the change, so that it knows the way of before, and sends right
after it, and then the stack does.

--stale: a neighbour grows stale while the lane knows it: the next packet asks for it.

Prints lines for report() of lib.sh: NAME<tab>STATUS<tab>TEXT.
"""

import argparse
import collections
import random
import socket
import struct
import subprocess

CARDS = "/proc/card"
CLIENT_MAC = bytes.fromhex("020000000001")
CARD_MAC = bytes.fromhex("020000000100")
VIP4, VIP6 = "10.9.0.1", "fd09::1"
BATCH = 512
# services: DR, IPIP, tunnels of the other family; none; plain UDP, QUIC
TCP_PORTS = (80, 81, 82, 83, 90)
UDP_PORTS = (53, 443, 90)
LENGTHS = (0, 0, 0, 1, 2, 6, 7, 20, 100, 500, 1280, 1400, 1419, 1420, 1421,
           1440, 1459, 1460)
# QUIC connection IDs: of the servers by IPv4, by IPv6, of none
IDS = [bytes.fromhex(id) for id in (
    "0a01000b", "0a01000c", "0a01000d", "0a01000e",
    "00000011", "00000012", "00000013", "00000014", "0a01000f")]
SEED = 20261125


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def with_checksum(header):
    header = header[:10] + b"\0\0" + header[12:]
    return header[:10] + struct.pack("!H", checksum(header)) + header[12:]


class Frames:
    """Random frames, most of them good, each other one with something odd."""

    def __init__(self, seed, mac, vid=None):
        self.random = random.Random(seed)
        self.mac = mac
        self.vid = vid

    def pick(self, *what):
        return self.random.choice(what)

    def data(self, length):
        return self.random.randbytes(length)

    def id(self):
        return self.data(1) + self.pick(*IDS) + self.data(4)

    def transport(self):
        r = self.random
        sport = self.pick(0, 20, *range(1024, 1088), *range(30000, 30064))
        if r.random() < 0.7:
            flags = self.pick(0x10, 0x10, 0x10, 0x18, 0x02, 0x12, 0x11, 0x04,
                              0x14, 0x00, r.randrange(256))
            head = struct.pack("!HHIIBBHHH", sport, r.choice(TCP_PORTS),
                               r.getrandbits(32), r.getrandbits(32), 0x50,
                               flags, 1000, r.getrandbits(16), 0)
            return 6, head + self.data(r.choice(LENGTHS))
        data = self.data(r.choice(LENGTHS))
        if r.random() < 0.3:  # QUIC: long headers of known versions
            data = struct.pack("!BIB", self.pick(0xc0, 0xd0, 0xe0, 0xf0),
                               self.pick(1, 0x6b3343cf, 0, 7),
                               self.pick(8, 9, 20, 4, 0)) + self.id() + \
                data[:1200]
        elif r.random() < 0.5:
            data = (b"\x40" + self.id() + data[:1200])[:self.pick(
                5, 6, 1300, 1300, 1300)]
        return 17, struct.pack("!HHHH", sport, r.choice(UDP_PORTS),
                               8 + len(data), r.getrandbits(16)) + data

    def ttl(self):
        return self.pick(64, 64, 64, 255, 2, 1, 0)

    def tos(self):
        return self.pick(0, 0, 0, 1, 2, 3, 0xb8, self.random.randrange(256))

    def ipv4(self, odd):
        r = self.random
        protocol, body = self.transport()
        source = socket.inet_aton(f"10.7.{r.randrange(4)}.{1 + r.randrange(60)}")
        target, options, frag = VIP4, b"", self.pick(0x4000, 0x4000, 0x4000, 0)
        if odd == "source":
            source = socket.inet_aton(self.pick(
                "127.0.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255",
                "239.1.2.3", "0.1.2.3"))
        elif odd == "target":
            target = self.pick("10.9.0.2", "10.1.0.1", "224.0.0.1")
        elif odd == "options":
            options = b"\1" * 4
        elif odd == "fragment":
            frag = self.pick(0x2000, 0x0010, 0x2010, 0x8000)
        elif odd == "protocol":
            protocol = self.pick(1, 4, 41, 47, 50, 132)
        length = 20 + len(options) + len(body)
        if odd == "length":
            length = max(0, length + self.pick(-30, -1, 1, 4000))
        header = struct.pack("!BBHHHBBH4s4s", 0x45 + len(options) // 4,
                             self.tos(), length, r.getrandbits(16), frag,
                             self.ttl(), protocol, 0, source,
                             socket.inet_aton(target)) + options
        header = with_checksum(header)
        if odd == "checksum":
            header = header[:10] + self.data(2) + header[12:]
        elif odd == "version":
            header = bytes([self.pick(0x44, 0x55, 0x65, 0x40)]) + header[1:]
        return b"\x08\0", header + body

    def ipv6(self, odd):
        r = self.random
        protocol, body = self.transport()
        source = f"fd07::{1 + r.randrange(60):x}"
        target, extension = VIP6, b""
        if odd == "source":
            source = self.pick("::1", "::", "ff02::1", "::ffff:10.7.0.1")
        elif odd == "target":
            target = self.pick("fd09::2", "fd01::1", "ff02::1")
        elif odd == "options":
            extension = bytes([protocol, 0]) + b"\1\4\0\0\0\0"
            protocol = self.pick(0, 60)
        elif odd == "fragment":
            # what reassembly makes of them depends on others and on time
            target = "fd09::2"
            extension = struct.pack("!BBHI", protocol, 0,
                                    self.pick(0, 1, 8, 9),
                                    r.getrandbits(32))
            protocol = 44
        elif odd == "protocol":
            protocol = self.pick(58, 4, 41, 59, 132)
        length = len(extension) + len(body)
        if odd == "length":
            length = max(0, length + self.pick(-30, -1, 1, 4000))
        word = (self.pick(6, 6, 4, 7) if odd == "version" else 6) << 28 | \
            self.tos() << 20 | self.pick(0, r.getrandbits(20))
        header = struct.pack("!IHBB16s16s", word, length, protocol,
                             self.ttl(), socket.inet_pton(10, source),
                             socket.inet_pton(10, target))
        return b"\x86\xdd", header + extension + body

    def tag(self, odd=None):
        """The tag of the VLAN, if the frames have one."""
        if self.vid is None:
            return b""
        if odd == "tag":
            return self.pick(b"", b"\x88\xa8\0\7", b"\x81\0\0\0", b"\x81\0",
                             b"\x81\0\x1f\xff", b"\x81\0\0\7" * 2)
        return struct.pack("!HH", 0x8100,
                           self.pick(0, 0, 0x1000, 0xe000) | self.vid)

    def frame(self):
        odd = self.pick(*[None] * 14, "source", "target", "options",
                        "fragment", "protocol", "length", "checksum",
                        "version", "mac", "type", "short", "long", "bytes",
                        *["tag"] * (self.vid is not None))
        kind, packet = self.pick(self.ipv4, self.ipv4, self.ipv6)(odd)
        mac = self.mac
        if odd == "mac":
            mac = self.pick(b"\xff" * 6, b"\x01\0\x5e\0\0\1", b"\2" * 6)
        elif odd == "type":
            kind = self.pick(b"\x81\0\0\7" + kind, b"\x88\xa8", b"\0\x20",
                             b"\x88\xcc")
        elif odd == "short":
            packet = packet[:self.random.randrange(len(packet))]
        elif odd == "long":
            packet += self.data(self.random.choice((1, 7, 100)))
        elif odd == "bytes":
            place = self.random.randrange(min(len(packet), 60))
            packet = packet[:place] + self.data(1) + packet[place + 1:]
        head = mac + CLIENT_MAC + self.tag(odd) + kind
        frame = head + packet
        return (frame + bytes(60))[:max(60, len(frame))][:1500 + len(head)]

    def plain(self):
        """A frame of which nothing is odd."""
        kind, packet = self.pick(self.ipv4, self.ipv6)(None)
        frame = self.mac + CLIENT_MAC + self.tag() + kind + packet
        return frame.ljust(60, b"\0")


def ip_length(packet, kind):
    if kind == b"\x08\0":
        return struct.unpack("!H", packet[2:4])[0]
    return 40 + struct.unpack("!H", packet[4:6])[0]


def kind_at(frame):
    """Where the Ethernet type is."""
    return 16 if frame[12:14] == b"\x81\0" else 12


def comparable(frame):
    """Without padding, and without what the kernel chooses at random."""
    at = kind_at(frame)
    kind, packet = frame[at:at + 2], frame[at + 2:]
    packet = packet[:ip_length(packet, kind)]
    if kind == b"\x08\0" and packet[9] in (4, 41) and not packet[6] & 0x40:
        packet = packet[:4] + b"\0\0" + packet[6:10] + b"\0\0" + packet[12:]
    elif kind != b"\x08\0" and packet[6] == 44:
        packet = packet[:44] + bytes(4) + packet[48:]
    return frame[:at + 2] + packet


# (what changes, how, and back): commands of ip and ipvsadm
CHANGES = (
    ("an IPv4 neighbour",
     "ip neigh replace 10.1.0.11 lladdr 02:00:00:00:00:21 dev card0",
     "ip neigh replace 10.1.0.11 lladdr 02:00:00:00:00:11 dev card0"),
    ("an IPv6 neighbour",
     "ip neigh replace fd01::11 lladdr 02:00:00:00:00:21 dev card0",
     "ip neigh replace fd01::11 lladdr 02:00:00:00:00:11 dev card0"),
    ("an IPv4 route", "ip route add 10.1.0.12 via 10.1.0.13",
     "ip route del 10.1.0.12"),
    ("an IPv6 route", "ip route add fd01::12 via fd01::13",
     "ip route del fd01::12"),
    ("the device of a server", "ip route add 10.1.0.14 dev card1",
     "ip link set card1 down; ip link set card1 up"),
    ("the MTU", "ip link set card0 mtu 1300", "ip link set card0 mtu 1500"),
    ("the virtual address", f"ip addr del {VIP4}/32 dev lo",
     f"ip addr add {VIP4}/32 dev lo"),
    ("the IPv6 virtual address", f"ip addr del {VIP6}/128 dev lo",
     f"ip addr add {VIP6}/128 dev lo nodad"),
    ("the method of a server",
     f"ipvsadm -e -t {VIP4}:80 -r 10.1.0.13 -i",
     f"ipvsadm -e -t {VIP4}:80 -r 10.1.0.13 -g"),
)


class Rig:
    def __init__(self, cards=False):
        self.sent = collections.Counter()
        self.cards = cards
        self.lane = None
        self.short = 0

    def put(self, frames):
        with open(f"{CARDS}/card0/frames", "wb", buffering=0) as file:
            for frame in frames:
                file.write(frame)

    def run(self, number, lane):
        """What the servers get; clients get errors and resets, and
        questions for neighbours come by time."""
        if lane != self.lane:
            with open("/proc/sys/net/ipv4/vs/mhs/lane", "w") as file:
                file.write(str(lane))
        self.lane = lane
        with open(f"{CARDS}/card0/run", "w") as file:
            file.write(str(number))
        got = collections.Counter()
        for card in ("card0", "card1"):
            for way in ("xdp_tx", "xdp_xmit", "start_xmit"):
                with open(f"{CARDS}/{card}/sent/{way}", "rb",
                          buffering=0) as file:
                    while frame := file.read(2048):
                        if frame[:6] == CLIENT_MAC or frame[0] & 1 or \
                                frame[kind_at(frame):][:2] not in (
                                    b"\x08\0", b"\x86\xdd"):
                            continue
                        self.sent[lane, way] += 1
                        self.short += way != "start_xmit" and len(frame) < 60
                        name = card.encode() if self.cards else b""
                        got[name + comparable(frame)] += 1
        return got


def lane_counts():
    with open("/proc/net/ip_vs_mhs_lane") as file:
        return {key: int(value) for key, value in map(str.split, file)}


def by_id():
    """Packets that went where a connection ID says."""
    with open("/proc/net/ip_vs_mhs") as file:
        names, *rows = map(str.split, file)
    return sum(int(row[names.index("PktById")]) for row in rows)


def change(rig, frames, command):
    """Frames that differ right after a command."""
    rig.put([frames.plain() for _ in range(BATCH)])
    rig.run(BATCH, 0)  # the stack caches routes
    rig.run(BATCH, 1)
    before = rig.run(BATCH, 1)
    subprocess.run(command, shell=True, check=True)
    lane, stack = rig.run(BATCH, 1), rig.run(BATCH, 0)
    changed = sum((stack - before).values()) + sum((before - stack).values())
    return sum((stack - lane).values()) + sum((lane - stack).values()), changed


def changes(rig, frames, control, door):
    for name, there, back in CHANGES:
        # the hook of the kernel asks the neighbour itself for its address
        if control and door == "ingress" and "neighbour" in name:
            continue
        differ = changed = 0
        for command in (there, back):
            more = change(rig, frames, command)
            differ += more[0]
            changed += more[1]
        print(f"{'control: ' if control else ''}{name} changes: frames that "
              f"differ\t{int((differ > 0) != control)}\t{differ}")
        print(f"{'control: ' if control else ''}{name} changes: it matters\t"
              f"{int(not changed)}\t{changed}")


def stale(rig, frames, control):
    rig.put([frames.plain() for _ in range(BATCH)])
    rig.run(BATCH, 0)
    rig.run(BATCH, 1)
    neighbour = ["dev", "card0", "to", "10.1.0.11"]
    subprocess.run(["ip", "neigh", "change", *neighbour, "lladdr",
                    "02:00:00:00:00:11", "nud", "stale"], check=True)
    rig.run(BATCH, 1)
    state = subprocess.run(["ip", "neigh", "show", *neighbour], check=True,
                           capture_output=True, text=True).stdout.strip()
    print(f"{'control: ' if control else ''}a stale neighbour is asked for\t"
          f"{int(('STALE' in state) != control)}\t{state}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("frames", type=int, help="how many")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--control", action="store_true",
                        help="the module has a bug, which has to be seen")
    parser.add_argument("--door", help="xdp or ingress")
    parser.add_argument("--cards", action="store_true",
                        help="compare by which card they leave, too")
    parser.add_argument("--tag", type=int, help="a VLAN has the frames")
    parser.add_argument("--changes", action="store_true",
                        help="only changes; with --control all must be seen")
    parser.add_argument("--stale", action="store_true",
                        help="only a neighbour that grows stale")
    args = parser.parse_args()
    frames, rig = Frames(args.seed, CARD_MAC, args.tag), Rig(args.cards)
    for card in ("card0", "card1"):
        with open(f"{CARDS}/{card}/keep", "w") as file:
            file.write(str(2 * BATCH))
    if args.changes:
        changes(rig, frames, args.control, args.door)
        return
    if args.stale:
        stale(rig, frames, args.control)
        return
    differences = total = 0
    while total < args.frames:
        batch = [frames.frame() for _ in range(BATCH)]
        rig.put(batch)
        stack, lane = rig.run(BATCH, 0), rig.run(BATCH, 1)
        total += sum(stack.values())
        for name, more in (("stack", stack - lane), ("lane", lane - stack)):
            for frame in list(more)[:4]:
                print(f"#\t0\tby the {name} only: {frame[:90].hex()}")
            differences += sum(more.values())
    differences += rig.short
    print(f"#\t0\t{dict(rig.sent)}, {rig.short} too short")
    print(f"#\t0\t{lane_counts()}")
    print(f"{'control: ' if args.control else ''}frames sent that differ\t"
          f"{int((differences > 0) != args.control)}\t"
          f"{differences} of {total}")
    share = lane_counts()["Forwarded"] * 100 // max(1, total)
    print(f"the lane forwarded enough to compare\t{int(share < 30)}\t"
          f"{share} % of those sent")
    print(f"frames went by connection ID\t{int(not by_id())}\t{by_id()}")
    for reason in ("Frame", "Service", "Address", "Mtu"):
        print(f"frames went up for {reason}\t"
              f"{int(not lane_counts()[reason])}\t{lane_counts()[reason]}")


if __name__ == "__main__":
    main()
