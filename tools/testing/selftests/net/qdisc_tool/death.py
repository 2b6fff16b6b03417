#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 1200
# weight: 130
"""Whatever dies, hangs or collides, the plug opens again and the wrapped
command's own exit is what the caller sees."""

import json
import os
import random
import signal
import socket
import time
from contextlib import suppress
from unittest import mock

from lib import (LONG, WAIT_S, Protecting, Tool, check, child, defer, end_process, equal, main,
                 note, program, read, run, set_up, sysctl, test, tool, wait_for, write)
from net import (HOST4, PORT, Clients, Load, Server, listen, neighbours_known, network, passes,
                 picture, plug_device, plug_waiting, processes, ready)
from qdisc_tool_lib import flower
from qdisc_tool_lib.hold import Plug

LO = "127.0.0.1"
# Most listeners here accept nobody, and that is waited for.
AT_ONCE = (*LONG, "--pause", "0")
SHORT = ("--max-hold", "900ms", "--pause", "0")
# A hold that is left behind is seen by this.
ALIVE_S = 1
KILLS = 12


def connects(within_s=ALIVE_S):
    """Whether a new connection is made, and not lost."""
    return passes(LO, PORT, None, within_s)


def holds():
    """Who holds, if anybody does."""
    status, = json.loads(tool("status", "--json").out)
    return status["hold"] and status["hold"]["command"]


def wait_for_sleep():
    """The command of a protect: its process."""
    wait_for(lambda: processes("sleep"), "the command")
    return processes("sleep")[0]


def took_s(*arguments):
    """How long a run of the tool takes now: the machine's speed may change."""
    began = time.monotonic()
    tool(*arguments)
    return time.monotonic() - began


@test
def s1_killed_at_any_moment_nothing_waits_longer_than_its_hold():
    ready("lo")
    prepared = picture("lo")
    seed = random.randrange(1 << 30)
    note(f"seed {seed}")
    moment = random.Random(seed)
    # one in each part of the run, in any order, but for each fourth: in a hold
    for number, part in enumerate(moment.sample(range(KILLS), KILLS)):
        inside = not number % 4
        if inside:
            whole_s = took_s("protect", *AT_ONCE, "--", "sleep", "0.3")
        process = Tool("protect", *SHORT, "--", "sleep", "2" if inside else "0.3",
                       new_session=True)
        if inside:
            wait_for(holds, "a hold")
        else:
            # why: any moment of its run, whatever it does then
            time.sleep((part + moment.random()) / KILLS * 1.1 * whole_s)
        with suppress(ProcessLookupError):         # it is over already
            (os.kill if number % 2 else os.killpg)(process.pid, signal.SIGKILL)
        process.wait()
        with Clients(LO, 5) as clients:
            clients.succeed()
        wait_for(connects, "a connection that is not held")
    # What they left holds nothing, and goes with the next.
    tool("protect", *AT_ONCE, "--", "true")
    equal(picture("lo"), prepared, "after the next")


def kill(pid):
    os.kill(pid, signal.SIGKILL)


def stop(pid):
    os.kill(pid, signal.SIGSTOP)


def out_of_memory(pid):
    """The kernel's OOM killer finds it."""
    write(f"/proc/{pid}/oom_score_adj", "1000")
    write("/proc/sysrq-trigger", "f")
    wait_for(lambda: f"Out of memory: Killed process {pid} " in run("dmesg"), "the OOM killer")


def left_alone(end=kill, max_hold="900ms"):
    """A protect that was ended or stopped in its hold."""
    process = Tool("protect", "--max-hold", max_hold, "--pause", "0", "--", "sleep", "600")
    command = wait_for_sleep()
    end(process.pid)
    kill(command)
    defer(lambda: process.poll() is None and process.send_signal(signal.SIGKILL))
    if end != stop:                # else it is its parent's to take
        wait_for(lambda: not processes("sleep"), "the end of the command")
    return process


def ends_by_itself(end, device, address, where):
    """A hold that is left: what came in it, and what comes later, is lost by nobody."""
    process = left_alone(end)
    for wait_s in WAIT_S, ALIVE_S:
        with Clients(address, 20, where=where) as clients:
            clients.finish(wait_s)
            equal(clients.errors, [], f"errors on {device} after {end.__name__}")
        wait_for(lambda: not plug_waiting(device), "an end")
    check("flower" in run(f"tc filter show dev {device} ingress"), "no hold")
    equal(holds(), None, "status")
    tool("check")
    # Who is stopped had its turn, and hears of that.
    tool("protect", "--require", *AT_ONCE, "true")
    process.send_signal(signal.SIGCONT)
    equal(process.wait().status, 128 + signal.SIGKILL if end == stop else -signal.SIGKILL, "status")


@test
def s1_the_kernel_has_the_deadline():
    """Also for who comes from outside, and beside a tool that was stopped."""
    # The OOM killer's words on the console, a fault elsewhere, are wanted here.
    sysctl("../../sys/module/printk/parameters/ignore_loglevel", "N")
    sysctl("kernel/printk", "1")
    neighbours_known()
    listen()
    for device, address, where in ("host0", HOST4, "client"), ("lo", LO, None):
        tool("clear", "-q")
        set_up(device, "-p", str(PORT))
        for end in kill, stop, out_of_memory:
            ends_by_itself(end, device, address, where)
    # The control has no deadline.
    until = flower._until
    with mock.patch.object(flower, "_until", lambda deadline: until(deadline + 3600)):
        for end in kill, out_of_memory:
            left_alone(end, "3s").wait()
            wait_for(lambda: not holds(), "its deadline")
            check(not connects(), "the control: the hold ended by itself")
            tool("release")
            check(connects(), "after release")


@test
def s1_p6_p7_what_was_left_behind_is_let_go_by_the_next():
    before = picture("lo")
    ready("lo")
    for command in (("protect", *AT_ONCE, "true"), ("release",), ("clear", "-q")):
        left_alone(max_hold="60s").wait()
        with Clients(LO, 5) as clients:
            wait_for(lambda: plug_waiting("lo") >= 5, "held SYNs")
            tool(*command)
            clients.succeed()
    equal(picture("lo"), before, "cleared")


@test
def s1_a_hold_that_lost_its_queue_loses_nothing_after_its_deadline():
    ready("host0")
    left_alone(max_hold="3s").wait()
    run(["ip", "link", "del", plug_device("host0")])
    with Clients(HOST4, where="client") as clients:
        clients.finish(1)
        equal(clients.errors, ["no answer"], "control: errors")
    with Clients(HOST4, 5, where="client") as clients:
        clients.succeed()
    tool("clear", "-q")
    equal(run("tc qdisc show dev host0 clsact").strip(), "", "clsact")


@test
def s1_a_release_beside_a_beginning_hold():
    """Whichever comes first, filters are there as long as the hold."""
    set_up("lo", "-p", str(PORT))
    for _ in range(6):
        beginning = Tool("hold", *LONG)
        tool("release")
        beginning.wait()
        equal("flower" in run("tc filter show dev lo ingress"), holds() == "hold", "filters")
        tool("release")
        equal(run("tc filter show dev lo ingress"), "", "left over")
    with mock.patch.object(Plug, "shut", side_effect=KeyboardInterrupt):
        tool("hold", *LONG, expect=128 + signal.SIGINT)
    equal(run("tc filter show dev lo ingress"), "", "left by Ctrl-C")


@test
def s1_a_killed_setup_is_done_again_by_the_next():
    listen()
    before = picture("lo")
    arguments = ("setup", "-q", "-d", "lo", "-p", str(PORT))
    whole_s = took_s(*arguments)
    defer(tool, "clear", "-q")
    for number in range(4):
        tool("clear", "-q")
        process = Tool(*arguments)
        # why: a moment of its run, whatever it does then
        time.sleep((1 + number) / 5 * whole_s)
        process.send_signal(signal.SIGKILL)
        process.wait()
        check(connects(), "nothing passes")
        tool(*arguments)
    tool("protect", *AT_ONCE, "--", "true")
    tool("clear", "-q")
    lead = flower.lead
    with mock.patch.object(flower, "lead", lambda *those: (lead(*those), tool("clear", "-q"))):
        tool(*arguments, expect=125, says="'clear' was called meanwhile")
    equal(picture("lo"), before, "cleared")


@test
def many_holds_in_a_row_leave_nothing():
    """MHS_RELOADS= takes another number."""
    set_up("lo", "-p", str(PORT))
    prepared = picture("lo")
    with Server(PORT), Load(LO, PORT, 4) as load:
        for _ in range(int(os.environ.get("MHS_RELOADS", 15))):
            tool("protect", "--require", *AT_ONCE, "true")
        result = load.finish()
    note(result)
    equal((result["failed"], picture("lo")), (0, prepared), "failed, and what is left")
    equal(sorted(name.split(".")[-1] for _, _, names in os.walk("/run/qdisc_tool")
                 for name in names), ["gate", "lock"], "files")


@test
def s8_a_hold_ends_at_its_deadline():
    ready("lo")
    process = Tool("protect", "--json", "--max-hold", "300ms", "--", "sleep", "60")
    wait_for_sleep()
    with Clients(LO) as clients:
        clients.succeed()
    check(process.poll() is None, "the command is gone")
    process.send_signal(signal.SIGTERM)
    process.wait()
    for options, status in ((), 124), (("--allow-unprotected",), 0):
        tool("protect", "--max-hold", "200ms", *options, "sleep", "0.5", expect=status,
             says="deadline")
    tool("hold", "--max-hold", "300ms")
    wait_for(lambda: not holds(), "the end of 'hold'")
    check(connects(), "nothing passes")


@test
def s9_exit_status_and_streams_are_the_commands():
    ready("lo")
    for command, status in (("exit 0", 0), ("exit 1", 1), ("exit 42", 42),
                            ("kill -9 $$", 128 + signal.SIGKILL)):
        tool("protect", "-q", *AT_ONCE, "--", "sh", "-c", command, expect=status)
    result = program("protect", "-q", *AT_ONCE, "--", "sh", "-c", "cat; echo e >&2", input="i")
    equal((result.out, result.err), ("i", "e\n"), "streams")
    tool("protect", *AT_ONCE, "--", "/no/such/command", expect=127)
    tool("protect", *AT_ONCE, "--", "/etc/passwd", expect=126)
    # The third is what "ls" opens.
    result = program("protect", "-q", *AT_ONCE, "--", "ls", "/proc/self/fd")
    equal(result.out.split(), ["0", "1", "2", "3"], "descriptors")


@test
def s9_signals_release_and_reach_the_command():
    ready("lo")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        process = Tool("protect", *AT_ONCE, "--", "sleep", "60")
        wait_for_sleep()
        with Clients(LO) as clients:
            wait_for(lambda: plug_waiting("lo") >= 1, "a held SYN")
            process.send_signal(number)
            clients.succeed()
        process.wait()
        equal(process.returncode, 128 + number, "status")
        equal(processes("sleep"), [], "the command")
    process = Tool("protect", "-q", *AT_ONCE, "--", "sh", "-c",
                   "trap 'exit 7' USR1; echo; while :; do sleep 0.1; done")
    wait_for(process.has_said, "the command")
    process.send_signal(signal.SIGUSR1)
    equal(process.wait().status, 7, "status after SIGUSR1")


@test
def s10_calls_wait_for_each_other():
    """And for 'hold'.  Each has a hold of its own, and its whole time; the control does
    not wait."""
    ready("lo")
    prepared = picture("lo")
    with Protecting(*AT_ONCE) as first, Clients(LO, 10) as clients:
        calls = [Tool("protect", "--json", *AT_ONCE, "--", "date", "+%s%N") for _ in range(9)]
        wait_for(lambda: plug_waiting("lo") >= 10, "held SYNs")
        run("date")                # the control: a command of nobody's hold
        check(all(call.poll() is None for call in calls), "one did not wait")
        equal(holds(), "protect", "status")
        ended = time.time_ns()
        equal(first.finish().status, 0, "status")
        results = [call.wait() for call in calls]
        equal([result.err for result in results if result.status], [], "failed")
        check(all(int(result.out) > ended for result in results), "one was too early")
        clients.succeed()
    equal(picture("lo"), prepared, "after all")
    tool("hold", *LONG)
    waiting = Tool("protect", *AT_ONCE, "true")
    with Clients(LO) as clients:
        wait_for(lambda: plug_waiting("lo") >= 1, "a held SYN")
        check(waiting.poll() is None, "it did not wait for 'hold'")
        tool("release")
        equal(waiting.wait().status, 0, "status")
        clients.succeed()


@test
def s10_a_daemon_of_the_command_keeps_no_lock():
    ready("lo")
    tool("protect", *AT_ONCE, "--", "sh", "-c", "sleep 600 >&- 2>&- &")
    daemon = wait_for_sleep()
    defer(kill, daemon)
    links = [os.readlink(f"/proc/{daemon}/fd/{fd}") for fd in os.listdir(f"/proc/{daemon}/fd")]
    check(not any("qdisc_tool/" in link or "socket" in link for link in links), links)
    tool("protect", *AT_ONCE, "--", "true")


def accept_queues(table):
    """Those of the sockets that listen, by the text of /proc/net/tcp6."""
    return [int(words[4].split(":")[1], 16) for words in map(str.split, table.splitlines())
            if words[1].endswith(f":{PORT:04X}") and words[3] == "0A"]


def listening():
    """How many sockets listen."""
    return len(accept_queues(read("/proc/net/tcp6")))


@test
def s6_what_was_not_accepted_is_waited_for():
    set_up("lo", "-p", str(PORT))
    for options, left in (((), 0), (("--pause", "0"), 3)):
        server = listen()
        with Clients(LO, 3) as clients:
            clients.finish()
            # why: the server is busy with others for so long
            child(lambda: (time.sleep(1), [server.accept() for _ in range(3)]))
            result = tool("protect", "-q", *LONG, *options, "--", "cat", "/proc/net/tcp6")
            equal(accept_queues(result.out), [left], f"left with {options}")
        server.close()


def socket_of_port():
    return socket.create_server(("::", PORT), family=socket.AF_INET6, reuse_port=True)


def server_with(change):
    """The process of one whose socket becomes what change() makes of it, on SIGUSR1."""
    def serve():
        server = listening
        while True:
            signal.sigwait({signal.SIGUSR1})
            server = change(server)
    listening = socket_of_port()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    pid = child(serve)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
    listening.close()
    return pid


def one_after_the_other(old):
    """A new socket beside the old one, which is closed only later."""
    new = socket_of_port()
    time.sleep(1)                  # why: what comes now may be its
    old.close()
    return new


def until_listening(pid, count, then=""):
    """A command that signals, and ends when so many sockets listen."""
    return ("sh", "-c", f"pid={pid}; kill -USR1 $pid; until [ $(grep -c ':{PORT:04X} .* "
            f"0A ' /proc/net/tcp6) = {count} ]; do sleep 0.01; done; {then}")


@test
def s7_it_waits_for_what_it_sees_or_is_told():
    set_up("lo", "-p", str(PORT))
    short = ("--pause", "0", "--max-hold", "3s")
    nobody, both, same = (f"{text} on port {PORT}" for text in (
        "no socket", "an old socket beside a new one", "the same sockets as before"))
    again = "(sleep 1; kill -USR1 $pid) >&- 2>&- &"
    # What the sockets become; options, command, what is waited for, what of that in vain,
    # how many listen then.
    for change, *runs in (
            (lambda old: old, (AT_ONCE, None, "", "", 1)),
            (lambda old: old.close() if old else socket_of_port(),
             (AT_ONCE, (0, again), nobody, "", 1), (short, (0,), nobody, nobody, 0)),
            (lambda old: (old, socket_of_port()), (short, (2,), both, both, 2),
             (short, None, same, "", 2)),
            (one_after_the_other, (AT_ONCE, (2,), both, "", 1)),
            (one_after_the_other, ((*AT_ONCE, "--until-new-port", str(PORT)), (2,), "", "", 1)),
            (one_after_the_other, ((*AT_ONCE, "--until", "true"), (2,), "", both, 2))):
        pid = server_with(change)
        for options, until, *expected in runs:
            command = until_listening(pid, *until) if until else ("true",)
            waited = tool("protect", "--json", *options, "--", *command).report["waited"]
            equal([waited["for"], waited["in_vain"], listening()], expected, f"{options} {command}")
        end_process(pid)


@test
def s10_who_listens_is_seen_when_the_turn_has_come():
    """What the call before has opened is old for the next one."""
    set_up("lo", "-p", str(PORT))
    pid = server_with(one_after_the_other)
    new = ("--until-new-port", str(PORT))
    with Protecting(*LONG, *new) as first:
        second = Tool("protect", *AT_ONCE, *new, "--", *until_listening(pid, 2))
        wait_for(lambda: second.has_said(2), "one that waits")
        os.kill(pid, signal.SIGUSR1)
        wait_for(lambda: listening() == 2, "a new socket")
        first.finish()
    equal((second.wait().status, listening()), (0, 1), "status, sockets")


@test
def s7_until_runs_a_command_and_gives_up_at_the_deadline():
    ready("lo")
    path = "/run/qdisc_tool_test/ready"
    tool("protect", *AT_ONCE, "--until", f"test -e {path}", "--", "sh", "-c",
         f"(sleep 0.3; echo > {path}) >&- 2>&- &")
    check(os.path.exists(path), "it did not wait")
    tool("protect", "--max-hold", "500ms", "--until", "sleep 60", "--", "true", expect=124)
    equal(processes("sleep"), [], "left over")
    tool("protect", *AT_ONCE, "--until", "false", "--", "false", expect=1)


if __name__ == "__main__":
    main(network)
