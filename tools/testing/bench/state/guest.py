#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
"""State and CPU under short connections; runs in the machine, see state.py.

    requests -> director -> sink, for each of route, mh, published and mhs

All get the same connections at the same time, and the same servers flap.
"published" is mhs with hold_ms=0: its algorithm, not its implementation.  All
times are those of the default divided by COMPRESSION.  A line of CSV for each
director and run.
"""

import argparse
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

from lab import FAR, VIP, Director, dest, module, run  # noqa: E402

NAMES = ("route", "mh", "published", "mhs")
SERVERS = 100
HOLD_S, ESTABLISHED_S, FIN_S = 60, 900, 120  # the defaults
COLUMNS = ("rate", "flapping", "director", "requests", "packets", "moved",
           "lost", "long_moved", "long_lost", "ns", "entries", "entries_low", "entries_high",
           "rebuilds", "build_us", "seconds")


def serve(director, name, compression):
    if name == "route":
        return
    director.inside(run, "ipvsadm", "--set",
                    *(str(max(1, round(seconds / compression)))
                      for seconds in (ESTABLISHED_S, FIN_S, 300)))
    scheduler = "mh -b mh-port,mh-fallback" if name == "mh" else "mhs"
    service = f"-t {VIP[4]}:80"
    director.ipvs(f"-A {service} -s {scheduler}",
                  *(f"-a {service} -r {dest(i, 4)} -g -w 1"
                    for i in range(SERVERS)))
    if name != "mh":
        director.wait(State="stable")
        director.sysctl("net/ipv4/vs/mhs/hold_ms", 0 if name == "published"
                        else round(1000 * HOLD_S / compression))
        director.sysctl("net/ipv4/vs/mhs/pin_ms",
                        round(1000 * ESTABLISHED_S / compression))


def entries(director):
    """Connection entries, as ipvsadm counts them."""
    total = 0
    for line in director.read("/proc/net/ip_vs").splitlines():
        words = line.split()
        if words[:1] == ["->"] and words[-1].isdigit():
            total += int(words[-1]) + int(words[-2])
    return total


def flap(directors, flapping, weight):
    lines = [f"-e -t {VIP[4]}:80 -r {dest(i, 4)} -g -w {weight}"
             for i in range(flapping)]
    for name, director in directors.items():
        if name != "route" and lines:
            director.ipvs(*lines)


def one(options, rate, flapping):
    directors = {name: Director(name, SERVERS // 2, sink=True)
                 for name in NAMES}
    for name, director in directors.items():
        serve(director, name, options.compression)
    targets = [f"g-{name},{at.mac},s-{name},"
               f"{(FAR if name == 'route' else VIP)[4]}"
               for name, at in directors.items()]
    with subprocess.Popen(
            [options.requests, str(options.seconds), str(rate),
             str(options.long), *targets], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True) as load:
        began = time.monotonic()
        samples = {name: [] for name in NAMES[1:]}
        rebuilds = {name: [] for name in NAMES[2:]}
        step, out = 0, False
        while load.poll() is None:
            step += 1
            time.sleep(max(0, began + step * options.period / 2
                           - time.monotonic()))
            # long connections come first
            if time.monotonic() - began < 1:
                continue
            out = not out
            flap(directors, flapping, 0 if out else 1)
            for name, seen in rebuilds.items():
                seen.append(int(directors[name].mhs()["BuildUs"]))
            # the second half: what began at the start has merged
            if time.monotonic() - began > options.seconds * 0.6 and \
                    load.poll() is None:
                for name, seen in samples.items():
                    seen.append(entries(directors[name]))
        out_lines = load.stdout.read().splitlines()
        took = float(load.stderr.read())
    if load.returncode:
        raise SystemExit("requests failed")
    for name, line in zip(NAMES, out_lines):
        words = dict(zip(("requests", "packets", "moved", "lost",
                          "long_moved", "long_lost", "ns"), line.split()))
        seen = sorted(samples.get(name, [])) or [0]
        built = rebuilds.get(name, [0])
        row = {"rate": rate, "flapping": flapping, "director": name,
               **words,
               "entries": seen[len(seen) // 2], "entries_low": seen[0],
               "entries_high": seen[-1], "rebuilds": len(built),
               "build_us": sorted(built)[len(built) // 2],
               "seconds": took}
        print(",".join(str(row[c]) for c in COLUMNS), flush=True)
    for director in directors.values():
        director.remove()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", required=True)
    parser.add_argument("--rates", required=True, help="a second, R,R...")
    parser.add_argument("--seconds", type=int, required=True, help="of a run")
    parser.add_argument("--long", type=int, default=500)
    parser.add_argument("--compression", type=float, required=True)
    parser.add_argument("--period", type=float, required=True,
                        help="of flapping, in seconds")
    options = parser.parse_args()
    print(",".join(COLUMNS))
    with module():
        for rate in map(int, options.rates.split(",")):
            for flapping in (0, SERVERS // 100, SERVERS // 10):
                print(f"# {rate} requests/s, {flapping} of {SERVERS} servers "
                      "flap", flush=True)
                one(options, rate, flapping)


if __name__ == "__main__":
    main()
