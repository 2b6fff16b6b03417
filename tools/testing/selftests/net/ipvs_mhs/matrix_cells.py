# SPDX-License-Identifier: GPL-2.0-only
"""The cells of matrix.py, what mhs promises in each, and the table of them
for matrix.txt, which make matrix prints.
"""
import itertools

KNOBS = {"expire_nodest_conn": (0, 1), "conn_reuse_mode": (0, 1, 2),
         "sloppy_tcp": (0, 1), "schedule_icmp": (0, 1)}
SHORT = {"event": "event", "expire_nodest_conn": "expire",
         "conn_reuse_mode": "reuse", "sloppy_tcp": "sloppy",
         "schedule_icmp": "icmp"}
COLUMNS = {
    "plain": "older flow without an entry",
    "plain, pin": "the same, in the pin phase",
    "plain, later": "the same, after the merge",
    "entry": "older flow with an entry",
    "entry, later": "the same, after the merge",
    "of B": "older flow of another server",
    "new": "new flow",
    "reuse": "SYN from the port of a flow without an entry",
    "reuse entry": "SYN from the port of an ended flow with an entry",
    "error": "ICMP error about a flow without an entry",
    "error entry": "ICMP error about a flow with an entry",
}


def expected(cell):
    """What mhs promises, of whatever the other sysctls are."""
    want = dict.fromkeys(COLUMNS, "A")
    want.update(dict.fromkeys(("of B", "new", "reuse", "reuse entry"), "B"))
    if cell["event"] == "delete":
        want.update({"plain, later": "B", "entry, later": "lost"})
        if cell["expire_nodest_conn"]:
            want = dict.fromkeys(COLUMNS, "B")
    # is there an entry for the flow that had none, in hold and in pin?
    want["entries"] = [False, cell["event"] == "drain"]
    return want


def all_cells(expire):
    for values in itertools.product(("drain", "delete"), *KNOBS.values()):
        cell = dict(zip(SHORT, values))
        if cell["expire_nodest_conn"] == expire:
            yield cell


def name_of(cell):
    return " ".join(f"{SHORT[k]}={v}" for k, v in cell.items())


def merged(services):
    """(cell, result) with "any" where a sysctl makes no difference."""
    rows = [(s.cell, s.result) for s in services]
    values = {"event": ("drain", "delete"), **KNOBS}
    for knob in reversed(values):
        groups = {}
        for cell, result in rows:
            rest = tuple((k, v) for k, v in cell.items() if k != knob)
            groups.setdefault(rest, []).append((cell, result))
        rows = []
        for group in groups.values():
            if (len(group) == len(values[knob]) and
                    all(r == group[0][1] for _, r in group)):
                group = [({**group[0][0], knob: "any"}, group[0][1])]
            rows += group
    return rows


def table(services, columns):
    """Outcomes by column."""
    head = [*SHORT.values(), *columns]
    body = [[str(v) for v in cell.values()] +
            [result[c] for c in columns] for cell, result in merged(services)]
    body.sort(key=lambda row: (row[0] == "delete", row))
    return grid(head, body)


def grid(head, body):
    """A table with rules of =."""
    wide = [max(len(row[i]) for row in [head, *body])
            for i in range(len(head))]
    rule = "  ".join("=" * w for w in wide)
    lines = ["  ".join(t.ljust(w) for t, w in zip(row, wide)).rstrip()
             for row in [head, *body]]
    return "\n".join([rule, lines[0], rule, *lines[1:], rule])


TEXT = """Drain and delete (written by matrix.sh; do not edit)
====================================================

In short: with ``mhs`` a drain breaks no flow, whatever the sysctls are.  A deletion breaks
the flows of that server at once with ``expire_nodest_conn=1``, and after hold + pin with 0.
No new flow is refused.  With ``mh`` the outcome depends on all four sysctls.

The tables say what becomes of a packet when a server is drained or deleted, for each setting
of ``expire_nodest_conn`` (*expire*), ``conn_reuse_mode`` (*reuse*), ``sloppy_tcp`` (*sloppy*)
and ``schedule_icmp`` (*icmp*); *any* stands where the sysctl makes no difference.

A service has the servers A and B.  The flows here are those of A, which is drained (weight 0)
or deleted.  A cell names the server that gets the packet; *reset* and *refused* (an ICMP
error) are answers of the director, and *lost* is no answer at all.  B resets an older flow
that reaches it.

{columns}

``mhs``:

{mhs}

``mh`` with ``-b mh-port``, where a flow without an entry is one that began on
another director:

{mh}
"""


def write(path, mhs, mh):
    columns = "\n\n".join(f"{k}\n\t{v}" for k, v in COLUMNS.items())
    with open(path, "w") as f:
        f.write(TEXT.format(columns=columns, mhs=table(mhs, COLUMNS),
                            mh=table(mh, [c for c in COLUMNS
                                          if c in mh[0].result])))
