# SPDX-License-Identifier: GPL-2.0-only
"""What a service must look like, from the rules in the documentation: the
table of a set of servers, and the slots after each change.  And wrong variants
of these, which a test has to notice.

As a command: reference.py SIZE C-D CLIENT FIRST N SERVER [SERVER]...
prints how many of N clients, CLIENT with the ports from FIRST on, belong to
each SERVER, which is ADDRESS/PORT, all of one weight, in a table of SIZE slots,
when their slots are found by SipHash with C rounds a word and D at the end.
"""
import ipaddress
import sys

MASK = (1 << 64) - 1
KEY = (0x243f6a8885a308d3, 0x13198a2e03707344)  # the module's default
WRONG = ("turns", "at once", "forgets old", "never early")


def siphash(words, last=None, c=2, d=4):
    """SipHash-c-d of 64-bit words with that key; the last one closes the
    message and has its length in the first byte."""
    if last is None:
        last = 8 * len(words) << 56
    v = [KEY[0] ^ 0x736f6d6570736575, KEY[1] ^ 0x646f72616e646f6d,
         KEY[0] ^ 0x6c7967656e657261, KEY[1] ^ 0x7465646279746573]

    def rotate(x, n):
        return (x << n | x >> 64 - n) & MASK

    def rounds(n):
        for _ in range(n):
            v[0] = v[0] + v[1] & MASK
            v[2] = v[2] + v[3] & MASK
            v[1] = rotate(v[1], 13) ^ v[0]
            v[3] = rotate(v[3], 16) ^ v[2]
            v[0] = rotate(v[0], 32)
            v[2] = v[2] + v[1] & MASK
            v[0] = v[0] + v[3] & MASK
            v[1] = rotate(v[1], 17) ^ v[2]
            v[3] = rotate(v[3], 21) ^ v[0]
            v[2] = rotate(v[2], 32)

    for word in words + [last]:
        v[3] ^= word
        rounds(c)
        v[0] ^= word
    v[2] ^= 0xff
    rounds(d)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def server_id(server):
    """The hash of a server, which is an address and a port."""
    address, port = server
    number = int(address)
    if address.version == 4:
        return siphash([number << 16 | port])
    return siphash([number >> 64, number & MASK, port])


def slot(size, address, port, c=1, d=3):
    """The slot of a client."""
    number = int(address)
    if address.version == 4:
        hashed = siphash([], 6 << 56 | number << 16 | port, c, d)
    else:
        hashed = siphash([number >> 64, number & MASK], 18 << 56 | port, c, d)
    return (hashed >> 32) * size >> 32


def table(weights, size, turns=False):
    """Maglev with weights by credit: the k-th slot of a server falls due in
    round (k - 1/2) * heaviest / weight, rounded up; who was there first claims
    first.  Wrong: turns, without the half."""
    slots = [None] * size
    heaviest = max(weights.values(), default=0)
    queues = [[] for _ in range(size + 1)]
    claims = dict.fromkeys(weights, 0)
    where = {}

    def enqueue(server):
        credit = 2 * claims[server] + (2 if turns else 1)
        due = -(-credit * heaviest // (2 * weights[server]))
        if due <= size:
            queues[due].append(server)

    for server in sorted(weights):
        hashed = server_id(server)
        where[server] = [(hashed >> 32) * size >> 32,
                         ((hashed & 0xffffffff) * (size - 1) >> 32) + 1]
        enqueue(server)
    free = size if weights else 0
    for queue in queues[1:]:
        for server in queue:
            if not free:
                break
            at, skip = where[server]
            while slots[at]:
                at = (at + skip) % size
            slots[at] = server
            where[server][0] = (at + skip) % size
            claims[server] += 1
            free -= 1
            enqueue(server)
    return slots, sum(not n for n in claims.values())


def fingerprint(slots, ids):
    value = 0
    for server in slots:
        value = (value ^ ids[server]) * 0x9e3779b97f4a7c15 & MASK
        value ^= value >> 29
    return f"{value:016x}"


class Reference:
    """A service with long hold and pin times and, once it has settled, a packet
    in every slot; wrong in one way if so told."""

    def __init__(self, size, wrong=None):
        self.size, self.wrong = size, wrong
        self.ids = {None: 0}
        self.fresh()

    def fresh(self):
        """A new service: no transitions until it has settled."""
        self.listed, self.gone, self.empty = {}, set(), 0
        self.old = [None] * self.size
        self.cand = [None] * self.size
        self.settling, self.early = True, self.wrong != "never early"

    def quiet(self):
        """The servers have not changed for some time."""
        self.settling = False

    def flow(self):
        """A flow begins, if a server takes it."""
        self.early &= not any(self.cand)

    def late(self):
        """Two minutes have gone."""
        self.early = False

    def drains(self, listed):
        """Does a server get no new flows any more that is not dead?"""
        return any(self.listed.get(s) and not weight
                   for s, weight in listed.items())

    def corrects(self, listed):
        """Is that a correction of the first set of servers?"""
        return self.settling or (self.early and not self.drains(listed))

    def change(self, listed, expire):
        """The servers are these now."""
        self.settling = self.corrects(listed)
        self.early &= self.settling
        self.gone = (self.gone | self.listed.keys()) - listed.keys()
        self.listed = dict(listed)
        weights = {s: w for s, w in listed.items() if w}
        target, self.empty = table(weights, self.size, self.wrong == "turns")
        cut = self.gone if expire else set()
        for i, server in enumerate(target):
            if self.slot_moves_at_once(i, server, cut):
                self.old[i] = server
            self.cand[i] = server
        self.gone -= cut

    def slot_moves_at_once(self, i, server, cut):
        old, cand = self.old[i], self.cand[i]
        if self.settling or old in cut or self.wrong == "at once":
            return True
        if old == cand:
            return old is None
        if self.wrong == "forgets old" and server not in (old, cand):
            self.old[i] = cand
        return False

    def merged(self):
        """Every transition has ended, and the deleted are forgotten."""
        self.old = list(self.cand)
        self.gone = set()

    def columns(self):
        """What /proc/net/ip_vs_mhs shows."""
        for server in self.listed.keys() | self.gone:
            if server not in self.ids:
                self.ids[server] = server_id(server)
        stable = sum(a == b for a, b in zip(self.old, self.cand))
        shown = {"Servers": len(self.listed), "Gone": len(self.gone),
                 "NoSlot": self.empty, "Size": self.size,
                 "Stable": stable, "Hold+Pin": self.size - stable,
                 "CandidatePrint": fingerprint(self.cand, self.ids),
                 "OldPrint": fingerprint(self.old, self.ids)}
        return {k: str(v) for k, v in shown.items()}


def server(address, port):
    return ipaddress.ip_address(address), port


def main():
    if len(sys.argv) < 7:
        sys.exit(__doc__)
    size, rounds, client, first, n, *servers = sys.argv[1:]
    size, first, n = int(size), int(first), int(n)
    c, d = map(int, rounds.split("-"))
    named = {server(address, int(port)): 1
             for address, port in (s.split("/") for s in servers)}
    slots, _ = table(named, size)
    client = ipaddress.ip_address(client)
    found = [slots[slot(size, client, port, c, d)]
             for port in range(first, first + n)]
    print(*(found.count(one) for one in named))


if __name__ == "__main__":
    main()
