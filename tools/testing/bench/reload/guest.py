#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
"""The ways to reload haproxy under load; runs in the machine, see run.

    load -> haproxy, reloaded again and again -> nginx

The load is on this host, or (ways named outside-) behind a router.  Two ways
are controls: a reload of nothing shows what the load's own wait for the CPU
is.  The ways take turns, so that a host that is busy for a while is so for all.
For each way: OUT/WAY.json, and a line of it on stdout after each of its turns;
the latencies of all requests in OUT/WAY.csv.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import time
from collections import Counter

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, f"{HERE}/../../selftests/net/qdisc_tool")

import lib  # noqa: E402
import net  # noqa: E402
import servers  # noqa: E402

WAYS = ("nothing", "none", "drop", "recipe", "protect", "protect-new",
        "sockets", "outside-nothing", "outside-none", "outside-recipe",
        "outside-protect", "outside-protect-new")
# what the load's end and haproxy's end count: SYNs and data sent again, SYNs
# that found no room, SYNs and resets that met an old connection
COUNTED = ("TCPSynRetrans", "RetransSegs", "ListenOverflows", "ListenDrops",
           "TCPTimeouts", "TCPACKSkippedTimeWait", "TWRecycled")
RULE = (f"-p tcp -d {servers.LO} --dport {net.PORT} --syn -j DROP")
# reloads of a way before it is another's turn
TURN = 50
# A slow machine may need longer than the default allows.
PROTECT = ["qdisc_tool", "protect", "--json", "--max-hold", "20s"]


class Reloads:
    """How haproxy is reloaded in each way."""

    def __init__(self):
        command, self._pid_file = servers.haproxy()
        self._haproxy = command.split()
        self._drop = servers.script(
            "drop", f"iptables -w -I INPUT {RULE}",
            f"{command} -sf $(cat {self._pid_file})",
            f"iptables -w -D INPUT {RULE}")
        self._recipe = servers.script(
            "recipe", "tc qdisc change dev lo handle 40: plug block",
            f"{command} -sf $(cat {self._pid_file})",
            "tc qdisc change dev lo handle 40: plug release_indefinite")

    def command(self, way):
        plain = [*self._haproxy, "-sf", *lib.read(self._pid_file).split()]
        ways = {
            "nothing": ["true"],
            "none": plain,
            "drop": [self._drop],
            "recipe": [self._recipe],
            "protect": [*PROTECT, "--", *plain],
            "protect-new": [*PROTECT, "--until-new-port", str(net.PORT), "--",
                            *plain],
            "sockets": [*plain, "-x", f"{servers.DIRECTORY}/haproxy.sock"],
        }
        return ways.get(way) or ways[way.removeprefix("outside-")]


def spread(values):
    """The middle of some numbers, their 99th percentile, and the last."""
    values = sorted(values)
    return {name: round(values[int(share * (len(values) - 1))], 1)
            for name, share in (("50", 0.5), ("99", 0.99), ("longest", 1))}


def reload_again_and_again(way, reloads, load, options):
    """Until the load ends, which is told when there were enough: what each
    took, where it began and ended in time, and how often it had what status."""
    times, statuses = [], Counter()
    while load.poll() is None:
        began = time.monotonic()
        done = subprocess.run(reloads.command(way), check=False,
                              capture_output=True, text=True)
        ended = time.monotonic()
        took = {"reload_ms": 1000 * (ended - began)}
        if "protect" in way:
            report = json.loads(done.stderr.splitlines()[-1])
            took = {"reload_ms": report["command_ms"]}
            # (Of a hold that came to its end too early there is no report.)
            took |= {name: ms for hold in report["holds"]
                     for name, ms in hold.items() if name == "hold_ms"}
        times.append((began, ended, took))
        status = done.returncode
        if status and status not in statuses:
            print(f"# status {status}: {done.stderr.strip()}", flush=True)
        statuses[status] += 1
        if len(times) == options.turn_reloads:
            load.terminate()
        time.sleep(max(0, began + options.interval - time.monotonic()))
    return times, statuses


class Sum:
    """What all turns of a way have given."""

    def __init__(self, way):
        self._way = way
        self._took = []
        self._statuses, self._latencies, self._errors = (Counter() for _ in range(3))
        self._counts = {"answered": 0, "failed": 0, "seconds": 0}
        self._longest = {"longest_us": 0, "longest_met": []}
        self._counted = {}         # by the kernel, at haproxy's end and the load's

    def add(self, times, statuses, load, latencies, counted):
        self._took += [took for _, _, took in times]
        self._statuses += statuses
        self._latencies += latencies
        self._errors += Counter(load["errors"])
        for name in self._counts:
            self._counts[name] += load[name]
        if load["longest_us"] > self._longest["longest_us"]:
            began = load["longest_began_us"] / 1e6
            self._longest = {
                "longest_us": load["longest_us"],
                "longest_met": met(times, began, began + load["longest_us"] / 1e6)}
        for name, counts in counted.items():
            self._counted.setdefault(name, Counter()).update(counts)

    def write(self, directory):
        over_ms = [took["hold_ms"] - took["reload_ms"] for took in self._took
                   if "hold_ms" in took]
        result = {
            "way": self._way, "reloads": len(self._took),
            "statuses": self._statuses,
            "reload_ms": spread(took["reload_ms"] for took in self._took),
            **({"hold_beyond_reload_ms": spread(over_ms)} if over_ms else {}),
            **self._counts, "seconds": round(self._counts["seconds"], 3),
            **self._longest, "errors": self._errors,
            **{f"{name}_counted": counts
               for name, counts in self._counted.items()}}
        lib.write(f"{directory}/{self._way}.json",
                  json.dumps(result, indent=1) + "\n")
        lib.write(f"{directory}/{self._way}.csv", "microseconds,count\n" + "".join(
            f"{us},{count}\n" for us, count in sorted(self._latencies.items())))
        print(json.dumps(result), flush=True)


def met(times, began, ended):
    """The reloads of which a request from BEGAN to ENDED saw a part."""
    found = [{**took, "began_ms": 1000 * (start - began),
              "ended_ms": 1000 * (end - began)}
             for start, end, took in times if start < ended and end > began]
    return [{name: round(ms, 1) for name, ms in one.items()} for one in found]


def counters():
    """What the kernel has counted in this namespace."""
    found = {}
    for name in "snmp", "netstat":
        lines = lib.read(f"/proc/net/{name}").splitlines()
        for names, values in zip(lines[::2], lines[1::2]):
            found.update(zip(names.split(), values.split()))
    return {name: int(found[name]) for name in COUNTED}


def gained(before):
    now = counters()
    return {name: now[name] - was for name, was in before.items()
            if now[name] != was}


def measure(way, reloads, options):
    """One turn; what Sum.add() takes."""
    outside = way.startswith("outside-")
    histogram = f"{options.out}/turn.csv"
    host = counters()
    with net.inside("client" if outside else None):
        client = counters()
        load = subprocess.Popen(
            [options.load, net.HOST4 if outside else servers.LO,
             str(net.PORT), str(options.clients), str(options.pause),
             str(options.turn_seconds), str(options.turn_requests), histogram],
            stdout=subprocess.PIPE, text=True)
    times, statuses = reload_again_and_again(way, reloads, load, options)
    result = json.loads(load.stdout.read())
    if load.wait():
        raise SystemExit(f"{way}: the load failed")
    with open(histogram, encoding="utf-8") as file:
        latencies = Counter({int(row["microseconds"]): int(row["count"])
                             for row in csv.DictReader(file)})
    os.unlink(histogram)
    counted = {"haproxy": gained(host)}
    if outside:
        with net.inside("client"):
            counted["load"] = gained(client)
    return times, statuses, result, latencies, counted


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--load", required=True)
    parser.add_argument("--seconds", type=int, required=True)
    parser.add_argument("--reloads", type=int, required=True)
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--clients", type=int, required=True)
    parser.add_argument("--pause", type=int, required=True)
    parser.add_argument("--interval", type=float, required=True)
    parser.add_argument("--ways", default=",".join(WAYS))
    options = parser.parse_args()
    turns = -(-options.reloads // TURN)
    for name in "reloads", "requests", "seconds":
        setattr(options, f"turn_{name}", -(-getattr(options, name) // turns))
    try:
        lib.own_directory()
        net.network()
        servers.directory()
        reloads = Reloads()
        sums = {way: Sum(way) for way in options.ways.split(",")}
        for way, total in [*sums.items()] * turns:
            device, address = (("host0", net.HOST4) if "outside" in way else
                               ("lo", servers.LO))
            if "protect" in way:
                lib.tool("setup", "-q", "-d", device, "-a", address, "-p",
                         str(net.PORT))
            depth = len(lib._deferred)
            if way == "recipe":
                net.naive_loopback()
            total.add(*measure(way, reloads, options))
            total.write(options.out)
            lib.undo(depth)
            lib.tool("clear", "-q")
    finally:
        lib.undo()


if __name__ == "__main__":
    main()
