#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
"""State and CPU under short connections; runs in the machine, see state.py.

    requests -> director -> sink, for each of route, mh, published and mhs

All get the same connections at the same time, and the same servers flap.
"published" is mhs with hold_ms=0: its algorithm, not its implementation.  All
times are those of the default divided by COMPRESSION.  A line of CSV for each
director and run; into DIRECTORY, with a line for each sample: entries over
time, and CPU for a request over time.
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
COUNTS = ("requests", "packets", "moved", "lost", "long_moved", "long_lost")
RUN = ("round", "rate", "flapping", "director")
COLUMNS = (*RUN, *COUNTS, "new_entries", "pinned_entries", "flaps", "build_us",
           "real_rate", "sending_s")


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


class Run:
    """One round at one rate, with some of the servers flapping."""

    def __init__(self, options, number, rate, flapping):
        self.options, self.rate, self.flapping = options, rate, flapping
        self.number = number
        self.directors = {name: Director(name, SERVERS // 2, sink=True)
                          for name in NAMES}
        for name, director in self.directors.items():
            serve(director, name, options.compression)
        self.samples = []  # (director, seconds since the beginning, entries)
        self.build_us = {name: [] for name in NAMES}
        self.flaps = 0

    def watch(self, load):
        """Flap and count entries while the load runs."""
        began = time.monotonic()
        step = 0
        while load.poll() is None:
            # long connections come first
            if self.flapping and time.monotonic() - began > 1:
                flap(self.directors, self.flapping, self.flaps % 2)
                self.flaps += 1
                for name in NAMES[2:]:
                    self.build_us[name].append(
                        int(self.directors[name].mhs()["BuildUs"]))
            for name in NAMES[1:]:
                counted = entries(self.directors[name])
                # those after the end are of no load
                if load.poll() is None:
                    self.samples.append(
                        (name, round(time.monotonic() - began, 2), counted))
            step += 1
            time.sleep(max(0, began + step * self.options.period / 2
                           - time.monotonic()))

    def load(self):
        """{director: words of requests.c}, and the seconds of its sending."""
        targets = [f"g-{name},{at.mac},s-{name},"
                   f"{(FAR if name == 'route' else VIP)[4]}"
                   for name, at in self.directors.items()]
        with subprocess.Popen(
                [self.options.requests, str(self.options.seconds),
                 str(self.rate), str(self.options.long), *targets],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True) as load:
            self.watch(load)
            counted = [line.split() for line in load.stdout]
            said = load.stderr.read()
        if load.returncode:
            raise SystemExit(f"requests failed: {said}")
        return dict(zip(NAMES, counted)), float(said)

    def write(self, counted, sending_s, entries_csv):
        run_of = (self.number, self.rate, self.flapping)
        real_rate = min(self.rate, round(self.rate * self.options.seconds
                                         / sending_s))
        for name, director in self.directors.items():
            made = director.mhs()
            built = sorted(self.build_us[name]) or [0]
            print(*run_of, name, *counted[name][:len(COUNTS)],
                  made.get("NewEntries", ""), made.get("PinnedEntries", ""),
                  self.flaps, built[len(built) // 2], real_rate, sending_s,
                  sep=",", flush=True)
        for sample in self.samples:
            print(*run_of, *sample, sep=",", file=entries_csv)

    def remove(self):
        for director in self.directors.values():
            director.remove()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", required=True)
    parser.add_argument("--rates", required=True, help="a second, R,R...")
    parser.add_argument("--seconds", type=int, required=True, help="of a run")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--directory", required=True, help="for samples")
    parser.add_argument("--long", type=int, default=500)
    parser.add_argument("--compression", type=float, required=True)
    parser.add_argument("--period", type=float, required=True,
                        help="of flapping, in seconds")
    options = parser.parse_args()
    print(*COLUMNS, sep=",")
    with open(f"{options.directory}/state-time.csv", "w",
              encoding="ascii") as entries_csv, module():
        print(*RUN, "time_s", "entries", sep=",", file=entries_csv)
        for number in range(options.rounds):
            for rate in map(int, options.rates.split(",")):
                for flapping in (0, SERVERS // 100, SERVERS // 10):
                    print(f"# {rate} requests/s, {flapping} of {SERVERS} "
                          "servers flap", flush=True)
                    measured = Run(options, number, rate, flapping)
                    measured.write(*measured.load(), entries_csv)
                    measured.remove()


if __name__ == "__main__":
    main()
