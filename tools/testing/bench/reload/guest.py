#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
"""The ways to reload haproxy under load; runs in the machine, see run.

    load -> haproxy, reloaded again and again -> nginx

The load is on this host, or (ways named outside-) behind a router.  Two ways
are controls: a reload of nothing shows what the load's own wait for the CPU
is.  For each way: a line of JSON on stdout and in OUT/WAY.json, the latencies
of all requests in OUT/WAY.csv.
"""

import argparse
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, f"{HERE}/../../selftests/net/qdisc_tool")

import lib  # noqa: E402
import net  # noqa: E402
import servers  # noqa: E402

WAYS = ("nothing", "none", "drop", "recipe", "protect", "protect-new",
        "sockets", "outside-nothing", "outside-none", "outside-protect",
        "outside-protect-new")
# what the load's end and haproxy's end count: SYNs and data sent again, SYNs
# that found no room, SYNs and resets that met an old connection
COUNTED = ("TCPSynRetrans", "RetransSegs", "ListenOverflows", "ListenDrops",
           "TCPTimeouts", "TCPACKSkippedTimeWait", "TWRecycled")
RULE = (f"-p tcp -d {servers.LO} --dport {net.PORT} --syn -j DROP")
# A slow machine may need longer than the default allows.
PROTECT = ["qdisc_tool", "protect", "--json", "--max-hold", "5s"]


class Reloads:
    """How haproxy is reloaded in each way."""

    def __init__(self):
        command, self._pid_file = servers.haproxy()
        self._haproxy = command.split()
        self._drop = servers.script(
            "drop", f"iptables -w -I INPUT {RULE}",
            f"{command} -sf $(cat {self._pid_file})",
            f"iptables -w -D INPUT {RULE}")
        plug = "tc qdisc change dev lo handle 40: plug"
        self._recipe = servers.script(
            "recipe", f"{plug} block",
            f"{command} -sf $(cat {self._pid_file})",
            f"{plug} release_indefinite")

    def command(self, way):
        plain = [*self._haproxy, "-sf", *lib.read(self._pid_file).split()]
        return {
            "nothing": ["true"],
            "none": plain,
            "drop": [self._drop],
            "recipe": [self._recipe],
            "protect": [*PROTECT, "--", *plain],
            "protect-new": [*PROTECT, "--until-new-port", str(net.PORT), "--",
                            *plain],
            "sockets": [*plain, "-x", f"{servers.DIRECTORY}/haproxy.sock"],
        }[way.removeprefix("outside-")]


def spread(values):
    """The middle of some numbers, their 99th percentile, and the last."""
    values = sorted(values)
    return {name: round(values[int(share * (len(values) - 1))], 1)
            for name, share in (("50", 0.5), ("99", 0.99), ("longest", 1))}


def reload_again_and_again(way, reloads, load, options):
    """Until the load ends, which is told when there were enough: what each
    took, where it began and ended in time, and how often it had what status."""
    times, statuses = [], {}
    while load.poll() is None:
        began = time.monotonic()
        done = subprocess.run(reloads.command(way), check=False,
                              capture_output=True, text=True)
        ended = time.monotonic()
        took = {"reload_ms": 1000 * (ended - began)}
        if "protect" in way:
            report = json.loads(done.stderr.splitlines()[-1])
            took = {"reload_ms": report["command_ms"]}
            if report["holds"]:
                took["hold_ms"] = report["holds"][0]["hold_ms"]
        times.append((began, ended, took))
        status = done.returncode
        if status and status not in statuses:
            print(f"# status {status}: {done.stderr.strip()}", flush=True)
        statuses[status] = statuses.get(status, 0) + 1
        if len(times) == options.reloads:
            load.terminate()
        time.sleep(max(0, began + options.interval - time.monotonic()))
    return times, statuses


def summary(times, statuses):
    result = {"reloads": len(times), "statuses": statuses,
              "reload_ms": spread(took["reload_ms"] for _, _, took in times)}
    over_ms = [took["hold_ms"] - took["reload_ms"] for _, _, took in times
               if "hold_ms" in took]
    if over_ms:
        result["hold_beyond_reload_ms"] = spread(over_ms)
    return result


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
    outside = way.startswith("outside-")
    host = counters()
    with net.inside("client" if outside else None):
        client = counters()
        load = subprocess.Popen(
            [options.load, net.HOST4 if outside else servers.LO,
             str(net.PORT), str(options.clients), str(options.pause),
             str(options.seconds), str(options.requests),
             f"{options.out}/{way}.csv"], stdout=subprocess.PIPE, text=True)
    times, statuses = reload_again_and_again(way, reloads, load, options)
    result = {"way": way, **summary(times, statuses),
              **json.loads(load.stdout.read())}
    began = result.pop("longest_began_us") / 1e6
    result["longest_met"] = met(times, began,
                                began + result["longest_us"] / 1e6)
    if load.wait():
        raise SystemExit(f"{way}: the load failed")
    result["haproxy_counted"] = gained(host)
    if outside:
        with net.inside("client"):
            result["load_counted"] = gained(client)
    lib.write(f"{options.out}/{way}.json", json.dumps(result, indent=1) + "\n")
    print(json.dumps(result), flush=True)


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
    try:
        lib.fast_root("haproxy", "nginx", "cat", "iptables")
        net.network()
        servers.directory()
        reloads = Reloads()
        for way in options.ways.split(","):
            device, address = (("host0", net.HOST4) if "outside" in way else
                               ("lo", servers.LO))
            if "protect" in way:
                lib.tool("setup", "-q", "-d", device, "-a", address, "-p",
                         str(net.PORT))
            if way == "recipe":
                net.naive_loopback()
            measure(way, reloads, options)
            if way == "recipe":
                lib.run("tc qdisc del dev lo root")
            lib.tool("clear", "-q")
    finally:
        lib.undo()


if __name__ == "__main__":
    main()
