#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
"""The four ways to reload haproxy under load; runs in the machine, see run.

    load -> haproxy on loopback, reloaded again and again -> nginx

For each way: a line of JSON on stdout and in OUT/WAY.json, the latencies of
all requests in OUT/WAY.csv.
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
import servers  # noqa: E402

WAYS = ("none", "drop", "protect", "sockets")
RULE = (f"-p tcp -d {servers.LO} --dport {lib.PORT} --syn -j DROP")


def reload_commands():
    """Way -> the command that reloads haproxy in that way."""
    haproxy, pid_file = servers.haproxy()
    plain = f"{haproxy} -sf $(cat {pid_file})"
    passing = (f"{haproxy} -x {servers.DIRECTORY}/haproxy.sock "
               f"-sf $(cat {pid_file})")
    reload = servers.script("reload", plain)
    return {
        "none": [reload],
        "drop": [servers.script("drop", f"iptables -w -I INPUT {RULE}", plain,
                                f"iptables -w -D INPUT {RULE}")],
        # A slow machine may need longer than the default allows.
        "protect": ["qdisc_tool", "protect", "--quiet", "--max-hold", "5s",
                    "--", reload],
        "sockets": [servers.script("sockets", passing)],
    }


def reload_again_and_again(command, load, interval_s):
    """Until the load ends; how often, and how often with what status."""
    statuses = {}
    count = 0
    while load.poll() is None:
        began = time.monotonic()
        done = subprocess.run(command, check=False, capture_output=True,
                              text=True)
        count += 1
        status = done.returncode
        if status and status not in statuses:
            print(f"# status {status}: {done.stderr.strip()}", flush=True)
        statuses[status] = statuses.get(status, 0) + 1
        time.sleep(max(0, began + interval_s - time.monotonic()))
    return count, statuses


def measure(way, command, options):
    load = subprocess.Popen(
        [options.load, servers.LO, str(lib.PORT), str(options.clients),
         str(options.pause), str(options.seconds), str(options.requests),
         f"{options.out}/{way}.csv"], stdout=subprocess.PIPE, text=True)
    reloads, statuses = reload_again_and_again(command, load,
                                               options.interval)
    result = {"way": way, "reloads": reloads, "statuses": statuses,
              **json.loads(load.stdout.read())}
    if load.wait():
        raise SystemExit(f"{way}: the load failed")
    lib.write(f"{options.out}/{way}.json", json.dumps(result, indent=1) + "\n")
    print(json.dumps(result), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--load", required=True)
    parser.add_argument("--seconds", type=int, required=True)
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--clients", type=int, required=True)
    parser.add_argument("--pause", type=int, required=True)
    parser.add_argument("--interval", type=float, required=True)
    parser.add_argument("--ways", default=",".join(WAYS))
    options = parser.parse_args()
    try:
        lib.fast_root("haproxy", "nginx", "cat", "iptables")
        lib.loopback()
        servers.directory()
        commands = reload_commands()
        for way in options.ways.split(","):
            if way == "protect":
                lib.set_up("lo", "-a", servers.LO, "-p", str(lib.PORT))
            measure(way, commands[way], options)
    finally:
        lib.undo()


if __name__ == "__main__":
    main()
