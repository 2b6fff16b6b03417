# SPDX-License-Identifier: GPL-2.0-only
"""What the second chance costs a packet at a server and at a director, in instructions:
on the stock kernel, in an emulated machine that counts them, see chance/guest.py."""

import bench
import packets
import source

KERNELS = (packets.COUNTED,)
SECONDS = {"quick": 90, "full": 90}
SOURCES = ("tools/net/ipvs_mhs/chance.bpf.c", source.CHANCE)
EXACT = {"chance": 0.01}
WHAT = {"other": "of another port", "syn": "a SYN",
        "stays": "of a flow of this server", "cookie": "with a valid SYN cookie",
        "sent": "sent back, without the tunnel",
        "director": "director: of a flow, to its server",
        "back": "director: come back, to the next server"}


def measure(docs, _mode):
    lines = bench.machine(packets.COUNTED, [bench.HERE / "chance" / "guest.py"],
                          8 * SECONDS["full"], "--icount", "--memory", "1G",
                          "--append", "cryptomgr.notests=1 nokaslr")
    bench.write_csv(docs / "chance.csv", bench.parse_csv(lines))


def draw(docs):
    cost = {(row["what"], row["family"]): row["instructions"]
            for row in bench.read_csv(docs / "chance.csv")}
    bench.write_table(docs, "chance", ["packet", "IPv4", "IPv6"],
                      [[text, cost[what, "4"], cost[what, "6"]]
                       for what, text in WHAT.items()])
