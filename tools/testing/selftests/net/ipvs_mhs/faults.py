#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Faults beside changes, with mh as the control: see faults.sh.

      cl ---- rt ==== s1 .. s6      programs, each a process of its own
                 +==== mhs0, mhs1   directors of 10.9.0.1, fd09::1
                 +==== mh0, mh1     directors of 10.9.0.2, fd09::2, sloppy_tcp=1

An episode is a service, twins of flows and a dozen of random events.  Directors 0,
or 1, of both schedulers live through the same events at once, so a twin of mh says
what a flow with an entry would have met.  A health checker of each director deletes
dead servers, or sets their weight to 0, events later than they died: it is played
here, so that a seed replays it.

What nobody promises is not compared: flows of a server that has died; after a
failover a flow whose server the other director cannot know (its entry is on one
director: "Limits" of ipvs-mhs.rst); the flows of a deleted server after the merge,
or with expire_nodest_conn=1.

Prints NAME<tab>0 or 1<tab>TEXT for each check.
"""
import argparse
import collections
import contextlib
import os
import random
import selectors
import sys
import time

sys.dont_write_bytecode = True

from faults_lab import (Flow, LONG, Lab, Pair, SERVERS, SIDES,  # noqa: E402
                        SILENCE_S, say, sh)
from netlab import PATIENCE, until  # noqa: E402

PAIRS = 12          # when an episode begins
EVENTS = 14


def of_healthy(event):
    """An event of a server that is well; none if too few are."""
    def try_it(self, rng):
        well = [s for s in sorted(self.lab.conf) if self.servers[s].healthy]
        if len(well) < 3:
            return False
        event(self, rng, self.servers[rng.choice(well)])
        return True
    return try_it


class Episode:
    def __init__(self, lab, seed, number):
        self.lab, self.seed, self.number = lab, f"{seed}/{number}", number
        self.rng = random.Random(self.seed)
        self.directors, self.servers = lab.directors, lab.servers
        self.active = self.directors[0]
        self.pairs, self.log, self.due = [], [], []
        self.port = 34000 + number // 100 % 20 * 1500
        self.said = 0       # lines of the log
        self.begun = time.monotonic()

    def note(self, text):
        if os.environ.get("MHS_TRACE"):
            say(f"{time.monotonic() - self.begun:5.1f} {text}")
        self.log.append(f"{time.monotonic() - self.begun:5.1f} {text}")

    # Flows

    def open_flow(self, side, wait_s):
        host = 100 + self.number % 100
        self.port += 1
        bind = (f"fd01::{host}" if self.lab.v6 else f"10.1.0.{host}", self.port)
        return Flow(self.lab.net("cl"), self.lab.vip(side), bind, wait_s)

    def all_healthy(self):
        return all(self.servers[s].healthy
                   for s, w in self.active.listed.items() if w)

    def open(self, number):
        """Pairs: flows of mh to other ports until one is on the same server."""
        lab, healthy = self.lab, self.all_healthy()
        wait_s = SILENCE_S if healthy else 0.3 * PATIENCE
        for _ in range(number):
            flow = self.open_flow("mhs", wait_s)
            self.active.warm = self.active.begun = True
            if not flow.name:
                lab.counts["not opened"] += 1
                twin = self.open_flow("mh", wait_s)
                if healthy and twin.name:
                    self.failure(f"a new flow, {flow.text}, is not served: "
                                 f"{flow.broken}; one of mh is")
                twin.close()
                continue
            for _ in range(25 if healthy else 2):
                twin = self.open_flow("mh", wait_s)
                if twin.name == flow.name:
                    lab.counts["pairs"] += 1
                    self.pairs.append(Pair(
                        {"mhs": flow, "mh": twin}, self.active.tables(flow)))
                    break
                if twin.name:
                    twin.close()
            else:
                flow.close()
                lab.counts["without a twin"] += 1

    def drop(self, reason, test):
        keep = []
        for pair in self.pairs:
            if test(pair):
                pair.close()
                self.lab.counts[reason] += 1
            else:
                keep.append(pair)
        self.pairs = keep

    def reachable(self, pair):
        server = self.servers[pair.server]
        return server.healthy and pair.server in self.active.listed

    def ping(self):
        """Ask every flow whose server is there."""
        asked = [p for p in self.pairs if self.reachable(p)]
        if asked:
            self.active.warm = True
        with selectors.DefaultSelector() as sel:
            for pair in asked:
                for flow in pair.flows.values():
                    flow.ask()
                    if not flow.broken:
                        sel.register(flow.sock, selectors.EVENT_READ, flow)
            heard = time.monotonic()
            while sel.get_map():
                ready = sel.select(0.2)
                if not ready and time.monotonic() - heard > SILENCE_S:
                    break
                for key, _ in ready:
                    heard = time.monotonic()
                    sel.unregister(key.fileobj)
                    key.data.hear()
            for key in list(sel.get_map().values()):
                key.data.broken = "silent"
        for pair in asked:
            self.judge(pair)

    def judge(self, pair):
        ours, theirs = (pair.flows[side].broken for side in SIDES)
        counts = self.lab.counts
        if not ours and not theirs:
            counts["answers"] += 1
            return
        counts["both broke" if ours and theirs else
               "mhs broke" if ours else "mh broke"] += 1
        if ours and not theirs:
            flow = pair.flows["mhs"]
            self.failure(f"{flow.text} on {pair.server}: {ours}; mh keeps its "
                         f"twin; opened with {sorted(map(sorted, pair.tables))}")
        self.pairs.remove(pair)
        pair.close()

    def failure(self, text):
        self.lab.failures.append(f"MHS_SEED={self.seed}: {text}")
        if self.lab.args.control:
            return
        if self.said < len(self.log):
            row = self.active.row()
            self.log.append(" ".join(f"{k}={row.get(k)}" for k in (
                "State", "Servers", "Gone", "Hold", "Pin", "Entries")))
        if not self.said:
            say(f"MHS_SEED={self.seed}:")
        for line in self.log[self.said:]:
            say("  " + line)
        self.said = len(self.log)
        say("  FAILS " + text)

    # The operator

    def everywhere(self):
        for director in self.directors:
            if director.up:
                director.apply()

    def do_add(self, rng):
        free = [s for s in self.servers if s not in self.lab.conf]
        if not free:
            return False
        server = rng.choice(free)
        self.lab.conf[server] = rng.choice((1, 1, 1, 2, 3))
        self.note(f"add {server}, weight {self.lab.conf[server]}")
        self.everywhere()
        return True

    def do_delete(self, rng):
        if len(self.lab.conf) < 3:
            return False
        server = rng.choice(sorted(self.lab.conf))
        self.note(f"delete {server}")
        del self.lab.conf[server]
        self.everywhere()
        if self.lab.expire:
            self.drop("deleted", lambda p: p.server == server)
        return True

    def do_weight(self, rng):
        server = rng.choice(sorted(self.lab.conf))
        self.lab.conf[server] = rng.choice((0, 1, 1, 2, 3))
        self.note(f"weight of {server}: {self.lab.conf[server]}")
        self.everywhere()
        return True

    def edit(self, text, line):
        self.note(text)
        for director in self.directors:
            if director.up:
                director.rules(line)
        self.ping()

    def do_threshold(self, rng):
        """It comes, flows go on, it goes."""
        server = rng.choice(sorted(self.lab.conf))
        if any(server not in d.listed for d in self.directors if d.up):
            return False
        weight = self.active.listed[server]
        line = (f"-e {{svc}} {self.active.real(server)} {{how}} -w "
                f"{weight} -x ")
        if any(d.listed[server] != weight for d in self.directors if d.up):
            return False
        self.edit(f"{server} has a threshold", f"{line}1000")
        self.edit("none any more", f"{line}0")
        return True

    def do_persistence(self, _rng):
        self.edit("the service is persistent", "-E {svc} -s {sched} -p 60")
        self.edit("it is not any more", "-E {svc} -s {sched}")
        return True

    def do_restore(self, rng):
        """Deleted and made again, where no slot is in a transition: what a
        service knew of its old servers goes with it."""
        if not self.do_merge(rng):
            return False
        self.note("delete and restore the service")
        if self.lab.expire:     # the core deletes the entries meanwhile
            self.drop("deleted", lambda p: self.active.set not in p.tables)
        # what comes meanwhile meets the local stack: qdisc_tool would hold it
        with self.unplugged():
            for director in self.directors:
                if director.up:
                    director.rules("-D {svc}")
                    director.fill(rng)
        return True

    def quiet(self):
        """No flow has a segment on its way, which would meet no service."""
        return all(self.servers[p.server].healthy for p in self.pairs)

    def do_merge(self, _rng):
        """Hold and pin end; each flow sends meanwhile."""
        if self.lab.args.control or not self.quiet():
            return False
        self.note("the transition ends")
        self.drop("deleted", lambda p: p.server not in self.active.listed)
        for hold, pin, over in (0, LONG, self.pinned), (0, 100, self.merged):
            for director in self.directors:
                if director.up:
                    director.windows(hold, pin)
            until(lambda over=over: all(over(d) for d in self.directors if d.up))
            self.ping()
        for director in self.directors:
            if director.up:
                director.windows(LONG, LONG)
                director.old = director.set
        return True

    @staticmethod
    def pinned(director):
        return director.row().get("Hold") == "0"

    @staticmethod
    def merged(director):
        row = director.row()
        return row.get("State") == "stable" and row.get("Gone") == "0"

    # What happens to servers

    def lost(self, server):
        self.drop("server died", lambda p: p.server == server.name)

    def later(self, rng, what, server, on, most=3):
        """A director's checker notices, each at its own time."""
        for director in self.directors:
            self.due.append((rng.randint(0, most), what, director, server, on))

    def dead(self, rng, server):
        """Checkers notice, and it comes back."""
        server.kill()
        self.lost(server)
        self.later(rng, "notice", server, True)
        self.due.append((rng.randint(3, 6), "revive", None, server, False))

    @of_healthy
    def do_kill(self, rng, server):
        self.note(f"the program of {server.name} dies")
        self.dead(rng, server)

    @of_healthy
    def do_reboot(self, rng, server):
        self.note(f"{server.name} reboots")
        server.link(False)
        self.dead(rng, server)

    def do_start_beside_dead(self, rng):
        """A director that starts while a server is dead, and takes over."""
        return self.do_merge(rng) and self.start_beside_dead(rng)

    @of_healthy
    def start_beside_dead(self, rng, server):
        director = self.other()
        self.note(f"the program of {server.name} dies, both checkers notice")
        server.kill()
        self.lost(server)
        for each in self.directors:
            self.notice(each, server, True)
        self.do_merge(rng)
        self.open(4)
        director.boot()
        self.start(director, None, rng.random() < 0.3)
        if self.active is not director:
            self.switch()
        self.due.append((rng.randint(2, 4), "revive", None, server, False))

    @of_healthy
    def do_restart(self, _rng, server):
        self.note(f"the program of {server.name} restarts")
        server.kill()
        self.lost(server)
        self.open(1)
        server.start()

    @of_healthy
    def do_freeze(self, rng, server):
        """The program, or the cable: nothing is lost."""
        cable = rng.random() < 0.5
        self.note(f"{server.name} freezes, {'cable' if cable else 'program'}")
        if cable:
            server.link(False)
        else:
            server.freeze(True)
        for pair in self.pairs:     # its flows send, and send again
            if pair.server == server.name:
                for flow in pair.flows.values():
                    flow.ask()
        if rng.random() < 0.5:
            self.later(rng, "notice", server, True, 1)
        self.due.append((rng.randint(1, 3), "thaw", None, server, False))

    def notice(self, director, server, bad):
        if not director.up or (server.name in director.bad) == bad or \
                server.healthy == bad:
            return
        self.note(f"checker {director.number}: {server.name} is "
                  f"{'dead' if bad else 'back'}")
        (director.bad.add if bad else director.bad.discard)(server.name)
        director.apply()
        if bad and self.lab.expire and not self.lab.inhibit:
            self.drop("deleted", lambda p: p.server == server.name)

    def revive(self, _director, server, _on):
        self.note(f"{server.name} is back")
        server.link(True)
        server.start()
        self.later(self.rng, "notice", server, False)

    def thaw(self, _director, server, _on):
        self.note(f"{server.name} goes on")
        server.freeze(False)
        server.link(True)
        self.later(self.rng, "notice", server, False)

    # What happens to directors

    def other(self):
        return self.directors[1 - self.active.number]

    def switch(self):
        director = self.other()
        self.note(f"director {director.number} takes over")
        self.drop("unknown to the other director",
                  lambda p: director.old not in p.tables)
        self.active = director
        self.lab.route(director)

    def do_failover(self, _rng):
        if not self.other().up:
            return False
        self.switch()
        return True

    def do_die(self, rng):
        """The active one, or the standby; it boots some events later."""
        director = rng.choice(self.directors)
        other = self.directors[1 - director.number]
        if not (director.up and other.up):
            return False
        self.note(f"director {director.number} dies")
        if director is self.active:
            self.switch()
        director.up = False
        director.boot()
        director.up = False
        self.due.append((rng.randint(0, 3), "start", director, None,
                         rng.random() < 0.5))
        return True

    def start(self, director, _server, alpha):
        """With "alpha" no server is there until its first check; without it
        all are, and the first check takes the dead ones away."""
        dead = {s for s in self.lab.conf if not self.servers[s].healthy}
        director.up = True
        director.bad = dead if alpha else set()
        self.note(f"director {director.number} starts, "
                  f"{'alpha' if alpha else 'without alpha'}, dead: "
                  f"{sorted(dead)}")
        director.fill(self.rng, one_by_one=alpha)
        for name in sorted(dead - director.bad):
            self.notice(director, self.servers[name], True)
        if self.rng.random() < 0.5:
            self.switch()

    def do_director_freezes(self, _rng):
        """Its cable, for a moment in which all flows send."""
        self.note(f"director {self.active.number} freezes and goes on")
        with self.unplugged():
            for pair in self.pairs:
                if self.reachable(pair):
                    for flow in pair.flows.values():
                        flow.ask()
            time.sleep(0.3)     # why: a freeze is a time
        self.ping()
        return True

    @contextlib.contextmanager
    def unplugged(self):
        """The active director."""
        ports = [f"v{side}{self.active.number}" for side in SIDES]
        tool = ("ip", "-n", self.lab.net("rt"), "-batch", "-")
        sh(*[f"link set {port} down" for port in ports], tool=tool)
        try:
            yield
        finally:
            sh(*[f"link set {port} up" for port in ports], tool=tool)

    # An episode

    DECK = ("add delete weight kill restart reboot freeze failover die "
            "add delete weight merge restore threshold persistence "
            "failover die freeze kill director_freezes merge "
            "start_beside_dead start_beside_dead").split()

    def run(self):
        lab, rng = self.lab, self.rng
        lab.v6 = rng.random() < 0.4
        lab.how = rng.choice(("-g", "-g", "-i"))
        lab.inhibit = rng.random() < 0.3
        lab.expire = rng.random() < 0.2
        lab.conf = {s: rng.choice((1, 1, 1, 2))
                    for s in rng.sample(SERVERS, 4)}
        self.note(f"{'IPv6' if lab.v6 else 'IPv4'} {lab.how} "
                  f"{'inhibit ' if lab.inhibit else ''}"
                  f"{'expire ' if lab.expire else ''}servers {lab.conf}")
        for director in self.directors:
            director.boot()
            director.fill(rng)
            if lab.args.control:
                director.windows(0, 1)
        # of a standby without packets a change of the first minute is a correction
        warm = rng.random() < 0.7
        for director in self.directors[::-1] if warm else self.directors[:1]:
            self.active = director
            lab.route(director)
            self.open(PAIRS if director.number == 0 else 2)
        deck = rng.sample(self.DECK, len(self.DECK))
        try:
            for index in range(EVENTS):
                self.step(deck, random.Random(f"{self.seed}/{index}"))
        finally:
            self.clean()

    def step(self, deck, rng):
        due, self.due = self.due, []
        for left, what, director, server, on in due:
            if left:
                self.due.append((left - 1, what, director, server, on))
            elif what != "start" or not director.up:    # it may run already
                getattr(self, what)(director, server, on)
        self.ping()
        while deck:
            name = deck.pop()
            if getattr(self, "do_" + name)(rng):
                self.lab.events[name] += 1
                break
        self.ping()
        self.open(2 if self.all_healthy() else 1)

    def clean(self):
        self.drop("kept to the end", lambda p: True)
        for server in self.servers.values():
            server.freeze(False)
            server.link(True)
            server.start()


def check(name, passed, text=""):
    print(name, int(not passed), text, sep="\t", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--suffix", required=True,
                        help="of the names of network namespaces")
    parser.add_argument("--seed", required=True,
                        help="of the random numbers, or SEED/EPISODE")
    parser.add_argument("--seconds", type=int, required=True)
    args = parser.parse_args()
    args.control = False
    seed, _, only = args.seed.partition("/")
    say(f"MHS_SEED={args.seed}")
    lab = Lab(args)
    numbers = iter([int(only)] if only else range(1 << 30))
    end = time.monotonic() + args.seconds
    episodes = 0
    try:
        for number in numbers:
            if episodes and time.monotonic() > end:
                break
            Episode(lab, seed, number).run()
            episodes += 1
        found, counts, events = lab.failures, lab.counts, lab.events
        lab.failures, lab.counts, lab.events = [], collections.Counter(), \
            collections.Counter()
        args.control = True
        for number in range(8):
            if not lab.failures:
                Episode(lab, seed, number).run()
    finally:
        lab.end()
    say(f"{episodes} episodes: " +
        ", ".join(f"{k} {v}" for k, v in sorted(counts.items())))
    say("events: " + ", ".join(f"{k} {v}" for k, v in sorted(events.items())))
    check("mhs breaks no flow that mh keeps", not found,
          f"{len(found)} of {counts['pairs']}" if found else
          f"0 of {counts['pairs']}")
    check("flows were compared", counts["answers"] > 20 * episodes,
          f"{counts['answers']} answers of both")
    few = only or episodes < 10
    check("mh broke some that mhs kept", few or counts["mh broke"],
          counts["mh broke"])
    check("every event came", few or not set(Episode.DECK) - events.keys(),
          " ".join(set(Episode.DECK) - events.keys()))
    check("control: without a transition mhs breaks such flows",
          lab.failures, f"{len(lab.failures)}")


main()
