#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Random control operations, each compared with a reference: see random.sh.

usage: random_ops.py SEED OPERATIONS SIZE MHS_TABLE TO FROM: descriptors of a client of
flows.py

Prints NAME<tab>0 or 1<tab>TEXT for each check.
"""
import contextlib
import os
import random
import socket
import sys
import time
import types

sys.dont_write_bytecode = True

sys.path.append(os.path.join(os.path.dirname(os.path.realpath(__file__)),
                             "../../../../../scripts"))

from craft import (LONG_MS, PATIENCE, check, ipvsadm,  # noqa: E402
                   mhs_state, until, vs_sysctl, windows)
from mhsstat_lib import options, plan  # noqa: E402
from reference import Reference, WRONG, server  # noqa: E402

WEIGHTS = (0, 0, 1, 1, 1, 2, 3, 10, 50, 100)
EARLY_S = 120   # without a flow


class Service:
    def __init__(self, option, key, pool, methods, size):
        self.option, self.key, self.methods = option, key, methods
        self.pool = pool
        self.listed = {}
        self.right = Reference(size)
        self.wrong = {name: Reference(size, name) for name in WRONG}
        self.models = [self.right, *self.wrong.values()]
        self.changed_at = 0
        self.planned = None     # what mhsstat plan said of the last change
        self.plan_moves = False

    def changed(self, expire):
        self.changed_at = time.monotonic()
        for model in self.models:
            model.change(self.listed, expire)

    def real_of(self, name):
        """The server that mhsstat calls so."""
        return next(s for s in self.pool
                    if name == f"{text_of(s[0], 0)}:{s[1]}")

    def quiet(self):
        for model in self.models:
            model.quiet()

    def flow(self):
        for model in self.models:
            model.flow()


def text_of(address, port):
    text = f"[{address}]" if address.version == 6 else str(address)
    return f"{text}:{port}" if port else text


class Run:
    def __init__(self, args):
        self.args = args
        self.random = random.Random(args.seed)
        self.expire = False
        self.faults, self.flow_faults = [], []
        self.caught, self.done = set(), {}
        self.compared = self.pinged = 0
        self.plan_faults, self.plans, self.other_plans = [], 0, 0

        def pool(text, port, n):
            return [server(text.format(11 + i), port) for i in range(n)]

        size = args.size
        self.services = [
            Service("-t 10.9.0.1:80", "TCP 10.9.0.1:80",
                    pool("10.2.0.{}", 80, 4), ("-g",), size),
            Service("-t [fd09::1]:80", "TCP [fd09::1]:80",
                    pool("fd02::{}", 80, 8), ("-g", "-i"), size),
            Service("-u 10.9.0.1:53", "UDP 10.9.0.1:53",
                    pool("10.2.0.{}", 53, 8), ("-g", "-i"), size),
            Service("-f 7", "FWM 7", pool("10.2.0.{}", 0, 8), ("-g",),
                    size),
        ]

    def flow(self, *words):
        print(*words, file=self.args.to, flush=True)
        reply = self.args.from_.readline().split()
        return {k: int(v) for k, v in (w.split("=") for w in reply)}

    def until(self, condition):
        if not until(lambda: all(condition(row) for row in mhs_state().values())):
            self.faults.append("waited too long")

    def change(self, svc, line):
        """A command for a server of @svc.listed.  Near the end nobody can say
        whether a service is still early."""
        age = time.monotonic() - svc.changed_at
        if svc.right.early and age > EARLY_S - 10:
            # why: the end shows in nothing but a change
            time.sleep(max(EARLY_S + 2 * PATIENCE - age, 0))
            for model in svc.models:
                model.late()
        self.plan(svc, line)
        ipvsadm([line])
        svc.changed(self.expire)

    def plan(self, svc, line):
        """Ask mhsstat what the command will do."""
        words = line.split()
        real = words[words.index("-r") + 1]
        if svc.key[:3] == "FWM":
            real += ":0"
        change = {"-a": "--add", "-e": "--weight", "-d": "--delete"}[words[0]]
        if change != "--delete":
            real += "=" + words[-1]
        svc.planned = plan.compute(options.parser().parse_args(
            ["plan", *svc.option.split(), change, real,
             "--table-program", self.args.table_program]))
        # every slot that changes opens a transition
        svc.plan_moves = None not in svc.right.old and \
            svc.right.old == svc.right.cand and \
            not svc.right.corrects(svc.listed)
        for name, fate in svc.planned["deleted"].items():
            ours = self.flow("ping").get(f"s{int(name[7:9]) - 10}", 0) \
                if svc is self.services[0] else 0
            want = {"move" if svc.key[:3] == "UDP" else
                    "cut" if self.expire else "kept"}
            if not svc.right.listed[svc.real_of(name)] and not ours:
                want.add("none")
            if fate not in want:
                self.plan_faults.append(f"{line}: {ours} flows: {fate}")

    def compare_plan(self, svc, row):
        """Has the change come out as planned?"""
        said, svc.planned = svc.planned, None
        if not said:
            return
        self.plans += 1
        after = row["CandidatePrint"]
        self.other_plans += said["print_before"] != after
        faults = [] if said["print_after"] == after else ["fingerprint"]
        if said["refused"] != (after == "0" * 16):
            faults.append("refused")
        if svc.plan_moves and not self.expire and \
                str(said["slots_moved"]) != row["Hold+Pin"]:
            faults.append(f"{said['slots_moved']} slots move, not "
                          f"{row['Hold+Pin']}")
        if faults:
            self.plan_faults.append(f"{svc.option}: {said['summary']}: {faults}")

    def packet(self, svc):
        """From this host; the answer does not matter."""
        protocol, name = svc.key.split()
        mark = int(name) if protocol == "FWM" else 0
        host, _, port = ("10.9.0.1:9" if mark else name).rpartition(":")
        family = socket.AF_INET6 if "[" in host else socket.AF_INET
        kind = socket.SOCK_STREAM if protocol == "TCP" else socket.SOCK_DGRAM
        with socket.socket(family, kind) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)
            sock.setblocking(False)
            with contextlib.suppress(OSError):
                sock.connect((host.strip("[]"), int(port)))
                sock.send(b"x")
        svc.flow()

    # Operations: each leaves the references at what the kernel must show

    def line(self, letter, svc, real, weight=None):
        line = f"{letter} {svc.option} -r {text_of(*real)}"
        if weight is None:
            return line
        return f"{line} {self.random.choice(svc.methods)} -w {weight}"

    def op_add(self, svc):
        """New, or deleted a while ago."""
        free = [s for s in svc.pool if s not in svc.listed]
        back = [s for s in free if s in svc.right.gone]
        free = back if back and self.random.random() < 0.6 else free
        if not free:
            return False
        real = self.random.choice(free)
        svc.listed[real] = self.random.choice(WEIGHTS)
        self.change(svc, self.line("-a", svc, real, svc.listed[real]))
        return True

    def op_delete(self, svc):
        if len(svc.listed) < 2:
            return False
        real = self.random.choice(sorted(svc.listed))
        with self.cutting(svc, {real} if self.expire else set()):
            del svc.listed[real]
            self.change(svc, self.line("-d", svc, real))
        return True

    def op_weight(self, svc):
        if not svc.listed:
            return False
        real = self.random.choice(sorted(svc.listed))
        weight = self.random.choice(WEIGHTS)
        line = self.line("-e", svc, real, weight)
        if weight == svc.listed[real]:
            ipvsadm([line])
        else:
            svc.listed[real] = weight
            self.change(svc, line)
        return True

    def op_packet(self, svc):
        """Ends the early time of a service, and nothing else that is shown."""
        self.packet(svc)
        return True

    def op_flags(self, svc):
        """Of a live service: they change nothing that is shown."""
        flags = self.random.choice(("", " -b flag-1", " -b flag-2"))
        ipvsadm([f"-E {svc.option} -s mhs{flags}"])
        return True

    def op_windows(self, _svc):
        windows(self.random.choice((LONG_MS, LONG_MS // 2)), LONG_MS)
        return True

    def op_expire(self, _svc):
        """Deleted servers are cut in the next walk: no server is deleted
        when it is set, so that every walk says the same."""
        if not self.expire:
            self.op_merge(None)
        self.expire = not self.expire
        vs_sysctl("expire_nodest_conn", int(self.expire))
        return True

    def op_merge(self, _svc):
        """Hold and pin end; flows that sent meanwhile are pinned."""
        first = self.services[0]
        with self.cutting(first, set(first.right.gone)):
            windows(0, LONG_MS)
            self.until(lambda row: row["Hold"] == "0")
            self.ping(0)
            windows(0, 100)
            self.until(lambda row: row["State"] == "stable" and
                       row["Gone"] == "0")
            windows(LONG_MS, LONG_MS)
            for svc in self.services:
                for model in svc.models:
                    model.merged()
        return True

    def restore(self, svc):
        """Delete the service and make it again.  When a packet of before is
        late, and the machine pauses in the middle, it may settle before its last
        server comes: so again."""
        lines = [self.line("-a", svc, s, w) for s, w in svc.listed.items()]
        self.random.shuffle(lines)
        for _ in range(5):
            ipvsadm([f"-D {svc.option}", f"-A {svc.option} -s mhs", *lines])
            self.until(lambda row: row["State"] not in ("settling",
                                                        "rebuilding"))
            if mhs_state()[svc.key]["State"] == "stable":
                break

    def op_restore(self, svc):
        """The service is deleted and made again."""
        if svc is self.services[0]:
            self.flow("reset")
        self.restore(svc)
        for model in svc.models:
            model.fresh()
        svc.changed(self.expire)
        svc.quiet()
        if svc is self.services[0]:
            self.flow("open", 12)
            svc.flow()
            self.ping(0)
        return True

    # Flows of the first service

    def ping(self, broken):
        reply = self.flow("ping")
        self.pinged += reply["flows"]
        if reply["moved"] or reply["broken"] != broken:
            self.flow_faults.append(f"{broken} to be broken: {reply}")
        return reply

    @contextlib.contextmanager
    def cutting(self, svc, reals):
        """Flows to these servers break meanwhile, and no others; then there are
        new ones."""
        if svc is not self.services[0] or not reals:
            yield
            return
        reply = self.ping(0)
        yield
        self.ping(sum(reply.get(f"s{int(a) % 256 - 10}", 0) for a, _ in reals))
        self.flow("reset")
        self.flow("open", 24)
        self.ping(0)

    def compare(self, name):
        self.until(lambda row: row["State"] in ("stable", "transition"))
        rows = mhs_state()
        for svc in self.services:
            row = rows[svc.key]
            row["Hold+Pin"] = str(int(row["Hold"]) + int(row["Pin"]))
            svc.quiet()
            self.compare_plan(svc, row)
            self.compared += 1
            for model in svc.models:
                want = model.columns()
                differ = [f"{k} {row.get(k)}, want {v}"
                          for k, v in want.items() if row.get(k) != v]
                if differ and model.wrong:
                    self.caught.add(model.wrong)
                elif differ:
                    self.faults.append(f"{name}: {svc.option}: {differ}")

    def opening(self):
        """What each wrong reference must stumble over: servers come, one after
        the other, to an early service and to one that has had a flow."""
        self.packet(self.services[1])
        for svc in self.services[3], self.services[1]:
            for real in [s for s in svc.pool if s not in svc.listed][:2]:
                svc.listed[real] = 3
                self.change(svc, self.line("-a", svc, real, 3))
                self.compare("opening")

    def operate(self):
        names = ("add delete weight " * 4 + "add merge restore "
                 "restore packet flags windows expire").split()
        windows(LONG_MS, LONG_MS)
        vs_sysctl("expire_nodest_conn", 0)
        for svc in self.services:
            ipvsadm([f"-A {svc.option} -s mhs"])
            svc.listed = {s: 1 for s in svc.pool[:4]}
            self.restore(svc)
            svc.changed(False)
            svc.quiet()
        self.flow("open", 24)
        self.services[0].flow()
        self.opening()
        deck = []
        for i in range(self.args.operations):
            if not deck:
                deck = self.random.sample(names, len(names))
            name = deck.pop()
            svc = self.random.choice(self.services)
            if not getattr(self, "op_" + name)(svc):
                continue
            self.done[name] = self.done.get(name, 0) + 1
            self.compare(f"operation {i}, {name}")
            if i % 5 == 4:
                self.ping(0)
            if self.faults or self.flow_faults or self.plan_faults:
                break
        self.ping(0)


def main():
    seed, operations, size, table_program, *client = sys.argv[1:]
    args = types.SimpleNamespace(
        seed=seed, operations=int(operations), size=int(size),
        table_program=table_program, to=os.fdopen(int(client[0]), "w"),
        from_=os.fdopen(int(client[1])))
    check("#", True, f"MHS_SEED={args.seed}")
    run = Run(args)
    run.operate()
    done = " ".join(f"{k} {v}" for k, v in sorted(run.done.items()))
    check("#", True, done)
    check("the kernel shows what the reference does", not run.faults,
          "; ".join(run.faults[:3]) or f"{run.compared} comparisons")
    check("flows go on, and only those of deleted servers are cut",
          not run.flow_faults,
          "; ".join(run.flow_faults[:3]) or f"{run.pinged} answers")
    check("each change comes out as mhsstat plan said", not run.plan_faults,
          "; ".join(run.plan_faults[:3]) or f"{run.plans} plans")
    check("control: a plan of no change does not",
          run.other_plans > run.plans // 4, f"{run.other_plans} of {run.plans}")
    least = args.operations // 3
    check("enough was compared", run.compared >= 4 * least,
          f"{run.compared} of {4 * least}")
    absent = {"add", "delete", "weight", "merge", "packet"} - run.done.keys()
    check("there was every operation that matters", not absent,
          " ".join(sorted(absent)))
    for name in WRONG:
        check(f"control: a wrong reference is noticed: {name}",
              name in run.caught)


main()
