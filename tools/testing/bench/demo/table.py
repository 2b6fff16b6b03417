#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""Print the demo's verdict and its table from the figures that it has measured.

usage: table.py FILE SECONDS     lines "NAME MH MHS WLC"; length of an interval
"""
import sys

# A section begins with a text; its rows are (figures, label, meaning): more
# than one figure are added.  In texts, {NAME} is mhs's figure of that name
# and {s} the length of an interval.
ROWS = [
    "No server changes; {open-downloads} slow downloads run over each",
    ("quiet-served", "requests served", "short connections (wrk), in turn"),
    ("quiet-failed", "requests failed", "errors that wrk reports"),
    ("quiet-rate", "requests/s, by round", "noisy: a virtual machine"),
    ("quiet-entries", "connection entries",
     "flows the director remembers, at most"),
    ("quiet-kib", "memory of these, KiB", "entries x size of an entry"),

    "Server 1 is drained (weight 0) for {s} s",
    ("drain-broken", "downloads cut off", "closed or reset, of {drain-alive}"),
    ("drain-held", "downloads held up", "stand still at the end, not cut off"),
    ("drain-served", "requests served", "a new connection for each"),
    ("drain-failed drain-slow", "requests failed or slow",
     "no answer, or 0.9 s to connect"),
    ("drain-s1", "requests to server 1", "new ones, which it should not get"),
    ("plain-refused", "without mh-fallback",
     "refused, of {plain-tried} tried at once"),

    "Server 2 is deleted for {s} s",
    ("delete-broken", "downloads cut off", "closed or reset"),
    ("delete-held", "downloads held up", "their packets were dropped"),
    ("delete-served", "requests served", "as above"),
    ("delete-failed delete-slow", "requests failed or slow", "as above"),

    "Server 2 is added again",
    ("readd-broken", "downloads cut off", "closed or reset"),
    ("readd-held", "downloads still held up", "{s} s after it came back"),
    ("readd-served", "requests served", "as above"),
    ("readd-failed readd-slow", "requests failed or slow", "as above"),
    ("change-entries", "connection entries", "at most, since the drain"),
    ("change-kib", "memory of these, KiB", "as above"),

    "The director is replaced; the new one has sloppy_tcp=1, for mh",
    ("sloppy-broken", "downloads cut off",
     "known to the new one: wlc's"),
    ("sloppy-held", "downloads held up", "as above"),
    ("sloppy-served", "requests served", "as above"),
    ("sloppy-failed sloppy-slow", "requests failed or slow", "as above"),

    "It is replaced again; the new one has sloppy_tcp=0, the default",
    ("fresh-broken", "downloads cut off", "reset by the new one"),
    ("fresh-held", "downloads held up", "as above"),
    ("fresh-served", "requests served", "as above"),
    ("fresh-failed fresh-slow", "requests failed or slow", "as above"),
]

# of the verdict: figure, label, what was counted
VERDICT = [
    ("quiet-entries", "connection entries", "at most, while no server changes"),
    ("delete-held", "server deleted", "of {delete-alive} downloads hang"),
    ("fresh-broken", "director replaced", "of {fresh-alive} downloads cut off"),
]

NOTES = """
Everything above was measured in this run, over all at the same time except
for wrk.  wlc has directors of its own, whose sync daemon tells the backups of
each flow that has had three packets.  mh had -b mh-port,mh-fallback, which
suits it best (kube-proxy does not set mh-fallback: see that row); all else is
the default.  mh and wlc send a new connection to a drained or deleted server
when the director still remembers the client's port from an earlier one.  Where
mhs pays: flows go by hash, where wlc takes the least busy server; and a server that is
deleted for good keeps its flows only for hold_ms + pin_ms, 16 minutes by default.

What next?  In a machine like this one, with the module loaded and the tools:
    make shell
On a Debian machine, as root; README.md says more:
    apt-get install build-essential dkms ipvsadm python3 iproute2 linux-headers-amd64
    make dkms install-tools
    ipvsadm -A -t VIP:80 -s mhs && ipvsadm -a -t VIP:80 -r SERVER:80 -g
    mhsstat show && mhsstat check
"""


def main():
    with open(sys.argv[1], encoding="ascii") as file:
        figures = {name: all3 for name, *all3 in map(str.split, file)}
    names = {"s": sys.argv[2]}
    names.update((name, all3[1]) for name, all3 in figures.items())

    def cell(keys, column):
        values = [figures[key][column] for key in keys.split()]
        if len(values) > 1:
            return f"{sum(map(int, values)):,}"
        if values[0].isdigit():
            return f"{int(values[0]):,}"
        return values[0].replace("/", " / ")    # of two rounds

    print()
    print("In this run, mh / mhs / wlc with its sync daemon:")
    for key, label, meaning in VERDICT:
        print(f"  {label:20}" + " / ".join(cell(key, n) for n in range(3)) +
              " " + meaning.format_map(names))
    print(f"\n{'':25}" + "".join(f"{name:>12}" for name in
                                 ("mh", "mhs", "wlc, sync")))
    for row in ROWS:
        if isinstance(row, str):
            print(f"\n{row.format_map(names)}")
            continue
        keys, label, meaning = row
        print(f"  {label:23}" + "".join(f"{cell(keys, n):>12}"
                                        for n in range(3)) +
              f"   {meaning.format_map(names)}")
    print(NOTES.format_map(names), end="")


main()
