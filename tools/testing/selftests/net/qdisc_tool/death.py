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
import subprocess
import time
from contextlib import suppress

from lib import (Protecting, Tool, check, defer, equal, is_stuck, main, note,
                 program, read, run, set_up, test, tool, wait_for)
from net import (PORT, Clients, end_process, listen, loopback, naive_loopback, naive_plug,
                 picture, plug_waiting)
from qdisc_tool_lib.hold import Hold
from qdisc_tool_lib.share import Share, switches
from restart import Load, Server, processes

LO = "127.0.0.1"
# Most listeners here accept nobody, and that is waited for.
IMPATIENT = ("--max-hold", "60s")
LONG = (*IMPATIENT, "--pause", "0")
# A hold that is left behind is seen by this.
ALIVE_MS = 1000
KILLS = 20


def guards():
    return processes("plug-guard")


def connects():
    """A new connection, and how long it took."""
    with Clients(LO) as clients:
        took_ms = clients.finish(ALIVE_MS / 1000)
        equal(clients.errors, [], "a new connection")
    return took_ms


@test
def s1_killed_at_any_moment_it_leaves_no_hold():
    listen()
    set_up("lo", "-p", str(PORT))
    prepared = picture("lo")
    tool("protect", *LONG, "--", "true")   # slower than those that follow
    seed = random.randrange(1 << 30)
    note(f"seed {seed}")
    moment = random.Random(seed)
    held = 0
    # one in each part of the run, in any order
    for number, part in enumerate(moment.sample(range(KILLS), KILLS)):
        if not number % 5:         # the machine's speed may change
            began = time.monotonic()
            tool("protect", *LONG, "--", "sleep", "0.3")
            whole_s = time.monotonic() - began
            note(f"a whole run takes {whole_s:.2f} s")
        process = Tool("protect", *LONG, "--", "sleep", "0.3",
                       new_session=True)
        # why: any moment of its run, whatever it does then
        time.sleep((part + moment.random()) / KILLS * 1.1 * whole_s)
        held += bool(guards())
        if number % 2:
            process.send_signal(signal.SIGKILL)
        else:
            with suppress(ProcessLookupError):     # it is over already
                os.killpg(process.pid, signal.SIGKILL)
        wait_for(lambda: not guards(), "the end of the guards")
        connects()
        # (A guard that had no name yet may end the hold only now.)
        wait_for(lambda: picture("lo") == prepared, "the end of each hold")
        process.wait()
    note(f"{held} of {KILLS} killed while a guard lived")
    check(held >= KILLS / 4, "few kills met a hold")


@test
def s1_control_a_script_with_a_trap_leaves_the_plug_shut():
    naive_loopback()
    listen()
    recipe = subprocess.Popen(
        ["sh", "-c", "trap 'tc qdisc change dev lo handle 40: plug "
         "release_indefinite' EXIT; tc qdisc change dev lo handle 40: plug "
         "block; echo; sleep 60 <&- >&-"], stdout=subprocess.PIPE,
        start_new_session=True)
    recipe.stdout.readline()
    os.killpg(recipe.pid, signal.SIGKILL)  # its sleep, too
    recipe.wait()
    with Clients(LO) as clients:
        clients.finish(1)
        equal(clients.errors, ["no answer"], "errors")
    naive_plug("release_indefinite")


@test
def s1_a_killed_guard_is_not_needed():
    """Neither for the end of the command, nor for the deadline.  The control is
    a tool that leaves the deadline to its guard."""
    listen()
    set_up("lo", "-p", str(PORT))
    prepared = picture("lo")

    def guard_killed(end, *hold):
        with Protecting(*hold) as protecting, Clients(LO, 5) as clients:
            wait_for(lambda: plug_waiting("lo") >= 5, "held SYNs")
            for pid in guards():
                os.kill(pid, signal.SIGKILL)
            end()
            result = protecting.finish()
            clients.finish()
            equal(clients.errors, [], "errors")
        return result
    equal(guard_killed(lambda: None, *LONG).status, 0, "status")

    def gone():
        wait_for(lambda: picture("lo") == prepared, "the end of the hold")
    result = guard_killed(gone, "--max-hold", "2s")
    equal((result.status, result.hold["ended_by"]), (124, "deadline"), "end")
    check(result.hold["held"] >= 5, "not counted")
    # The control: it is noticed when the tool does not end the hold itself.
    look = Share.look
    defer(setattr, Share, "look", look)
    Share.look = lambda share: (setattr(share, "_ends", float("inf")),
                                look(share))[1]
    guard_killed(lambda: wait_for(is_stuck, "a hold that goes on"),
                 "--max-hold", "2s")


@test
def s1_a_stopped_tool_is_overruled():
    """The guard ends the hold; the tool hears of it, if it goes on."""
    listen()
    set_up("lo", "-p", str(PORT))
    prepared = picture("lo")
    with Protecting("--max-hold", "2s") as protecting:
        os.kill(protecting.process.pid, signal.SIGSTOP)
        with Clients(LO) as clients:
            clients.finish()
            equal(clients.errors, [], "errors")
        wait_for(lambda: picture("lo") == prepared, "the end of the hold")
        os.kill(protecting.process.pid, signal.SIGCONT)
        result = protecting.finish()
    equal(result.status, 124, "status")
    check("deadline" in result.err, result.err)


@test
def s1_a_guard_that_was_late_itself_leaves_the_end_to_the_tool():
    """On a busy machine both are: what was held is counted even so."""
    listen()
    set_up("lo", "-p", str(PORT))
    with Protecting("--max-hold", "1s") as protecting, Clients(LO) as clients:
        both = *guards(), protecting.process.pid
        for pid in both:
            os.kill(pid, signal.SIGSTOP)
        wait_for(is_stuck, "the time of the guard")
        guard, caller = both
        had = switches(guard)
        os.kill(guard, signal.SIGCONT)
        wait_for(lambda: switches(guard) != had, "a look of the guard")
        os.kill(caller, signal.SIGCONT)
        result = protecting.finish()
        clients.finish()
    equal((result.status, result.hold["ended_by"]), (124, "deadline"), "end")
    check(result.hold["held"], "not counted")


@test
def s1_a_hold_whose_end_is_not_known_fails():
    listen()
    set_up("lo", "-p", str(PORT))

    def fail(*_):
        raise OSError("no end")
    end = Hold.end
    defer(setattr, Hold, "end", end)
    for function, status in (fail, 124), (end, 0):
        Hold.end = function
        result = tool("protect", *LONG, "true", expect=status)
        equal("no report" in result.err, bool(status), result.err)


@test
def s1_a_killed_setup_is_done_again_by_the_next():
    listen()
    before = picture("lo")
    arguments = ("setup", "-q", "-d", "lo", "-p", str(PORT))
    began = time.monotonic()
    set_up("lo", "-p", str(PORT))
    whole_s = time.monotonic() - began
    for number in range(4):
        tool("clear", "-q")
        process = Tool(*arguments)
        # why: a moment of its run, whatever it does then
        time.sleep((1 + number) / 5 * whole_s)
        process.send_signal(signal.SIGKILL)
        process.wait()
        note(run("tc qdisc show dev lo"))
        connects()
        tool(*arguments)
    tool("protect", *LONG, "--", "true")
    tool("clear", "-q")
    equal(picture("lo"), before, "cleared")


@test
def s8_a_hold_ends_at_its_deadline():
    listen()
    set_up("lo", "-p", str(PORT))
    process = Tool("protect", "--json", "--max-hold", "300ms", "--", "sleep",
                   "60")
    wait_for(lambda: processes("sleep"), "the command")
    with Clients(LO) as clients:
        clients.finish()
        equal(clients.errors, [], "errors")
    check(process.poll() is None, "the command is gone")
    process.send_signal(signal.SIGTERM)
    process.wait()
    with Protecting("--max-hold", "200ms") as protecting:
        wait_for(lambda: not guards(), "the end of the hold")
        result = protecting.finish()
    equal(result.status, 124, "status")
    check("deadline" in result.err, result.err)
    result = tool("protect", "--max-hold", "200ms", "--kill", "--", "sleep",
                  "60", expect=128 + signal.SIGTERM)
    tool("hold", "--max-hold", "300ms")
    wait_for(lambda: not guards(), "the end of 'hold'")
    connects()


@test
def s9_exit_status_and_streams_are_the_commands():
    server = listen()
    set_up("lo", "-p", str(PORT))
    for command, status in (("exit 0", 0), ("exit 1", 1), ("exit 42", 42),
                            ("kill -9 $$", 128 + signal.SIGKILL)):
        tool("protect", "-q", *LONG, "--", "sh", "-c", command, expect=status)
    result = program("protect", "-q", *LONG, "--", "sh", "-c",
                     "cat; echo e >&2", input="through")
    equal((result.out, result.err), ("through", "e\n"), "streams")
    tool("protect", *LONG, "--", "/no/such/command", expect=127)
    tool("protect", *LONG, "--", "/etc/passwd", expect=126)
    result = tool("protect", "-q", *LONG, "--user", "nobody", "--", "id", "-un")
    equal(result.out, "nobody\n", "user")
    # The third is what "ls" opens.
    result = program("protect", "-q", *LONG, "--", "ls", "/proc/self/fd")
    equal(result.out.split(), ["0", "1", "2", "3"], "descriptors")
    connects()
    server.close()


@test
def s9_signals_release_and_reach_the_command():
    listen()
    set_up("lo", "-p", str(PORT))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        process = Tool("protect", *LONG, "--", "sleep", "60")
        wait_for(lambda: processes("sleep"), "the command")
        with Clients(LO) as clients:
            wait_for(lambda: plug_waiting("lo") >= 1, "a held SYN")
            process.send_signal(number)
            clients.finish()
            equal(clients.errors, [], "errors")
        process.wait()
        equal(process.returncode, 128 + number, "status")
        equal(processes("sleep"), [], "the command")
    process = subprocess.Popen(
        ["qdisc_tool", "protect", "-q", *LONG, "--", "sh", "-c",
         "trap 'exit 7' USR1; echo; while :; do sleep 0.1; done"],
        stdout=subprocess.PIPE)
    process.stdout.readline()
    process.send_signal(signal.SIGUSR1)
    process.communicate()
    equal(process.returncode, 7, "status after SIGUSR1")


@test
def s10_concurrent_calls_share_one_hold():
    listen()
    set_up("lo", "-p", str(PORT))
    prepared = picture("lo")
    count = 17

    def together():
        calls = [Tool("protect", "--json", *LONG, "--", "true")
                 for _ in range(count)]
        results = [call.wait() for call in calls]
        equal([result.err for result in results if result.status], [], "failed")
        return results
    with Protecting(*LONG) as first, Clients(LO, 10) as clients:
        check(all(result.hold["others"] for result in together()), "not shared")
        equal(first.finish().hold["sharers"], count + 1, "sharers")
        clients.finish()
        equal(clients.errors, [], "errors")
    # Some begin as others end.
    with Clients(LO, 10) as clients:
        together()
        clients.finish()
        equal(clients.errors, [], "errors")
    wait_for(lambda: not guards(), "the end of the guards")
    equal(picture("lo"), prepared, "after all")
    connects()


@test
def s10_the_last_one_releases():
    listen()
    set_up("lo", "-p", str(PORT))
    with Protecting(*LONG) as first:
        with Protecting(*LONG) as second, Clients(LO) as clients:
            wait_for(lambda: plug_waiting("lo") >= 1, "a held SYN")
            result = second.finish()
            equal(result.status, 0, "status")
            check(result.hold["others"], "others")
            clients.finish(0.3)
            equal(clients.latency_ms, {}, "connected")
            equal(first.finish().hold["sharers"], 2, "sharers")
            clients.errors.clear()
            clients.finish()
            equal(clients.errors, [], "errors")


@test
def s10_one_that_comes_late_goes_on():
    """The first one's time is over, and nobody else's."""
    listen()
    set_up("lo", "-p", str(PORT))
    for seconds in 2, 6, 18:       # a busy machine may be too slow
        with Protecting("--max-hold", f"{seconds}s") as first, \
                Protecting(*LONG) as second, Clients(LO) as clients:
            status, = json.loads(tool("status", "--json").out)
            if not status["hold"] or status["hold"]["sharers"] < 2:
                continue
            wait_for(lambda: plug_waiting("lo") >= 1, "a held SYN")
            clients.finish()       # the kernel lets go what waits so long
            equal(clients.errors, [], "errors")
            result = first.finish()
            equal(result.status, 124, "the first")
            check("deadline" in result.err, result.err)
            with Clients(LO) as others:
                wait_for(lambda: plug_waiting("lo") >= 1, "a held SYN")
                equal(second.finish().status, 0, "the second")
                others.finish()
                equal(others.errors, [], "errors")
            return
    check(False, "nothing was shared")


@test
def s10_a_daemon_of_the_command_keeps_no_lock():
    listen()
    set_up("lo", "-p", str(PORT))
    tool("protect", *LONG, "--", "sh", "-c", "sleep 600 >&- 2>&- &")
    wait_for(lambda: processes("sleep"), "the daemon")
    daemon, = processes("sleep")
    defer(os.kill, daemon, signal.SIGKILL)
    links = [os.readlink(f"/proc/{daemon}/fd/{fd}")
             for fd in os.listdir(f"/proc/{daemon}/fd")]
    check(not any("qdisc_tool/" in link or "socket" in link
                  for link in links), links)
    tool("protect", *LONG, "--", "true")
    tool("clear", "-q")


def accept_later(server, count):
    """A process that accepts @count connections, after a while."""
    pid = os.fork()
    if not pid:
        time.sleep(1)              # why: the server is busy with others
        for _ in range(count):
            server.accept()
        os._exit(0)
    defer(os.waitpid, pid, 0)


def accept_queue(table):
    """That of the listener, by the text of /proc/net/tcp6."""
    lines = [line.split() for line in table.splitlines()]
    queue, = (int(words[4].split(":")[1], 16) for words in lines
              if words[1].endswith(f":{PORT:04X}") and words[3] == "0A")
    return queue


@test
def s6_what_was_not_accepted_is_waited_for():
    set_up("lo", "-p", str(PORT))
    for options, left in (((), 0), (("--pause", "0"), 3)):
        server = listen()
        with Clients(LO, 3) as clients:
            clients.finish()
            accept_later(server, 3)
            result = tool("protect", "-q", *IMPATIENT, *options, "--",
                          "cat", "/proc/net/tcp6")
            equal(accept_queue(result.out), left, f"left with {options}")
        server.close()


def failed_by_late_server(*options):
    """Of the requests beside a server that listens anew after its signal."""
    with Server(PORT) as server, Load(LO, PORT, 4) as load:
        load.wait_for_progress(10)
        tool("protect", *LONG, *options, "--", "kill", "-USR1",
             str(server.pid))
        load.wait_for_progress(10)
        result = load.finish()
    note(f"{options}: {result}")
    return result["failed"]


@test
def s7_until_covers_a_server_that_listens_late():
    set_up("lo", "-p", str(PORT))
    equal(failed_by_late_server("--until-new-port", str(PORT)), 0,
          "failures with --until-new-port")
    # Whether a request meets the server's gap is chance.
    check(any(failed_by_late_server("--until", "true") for _ in range(10)),
          "the control did not fail")


def socket_of_port():
    return socket.create_server(("::", PORT), family=socket.AF_INET6,
                                reuse_port=True)


def one_after_the_other(keep=False):
    """A server that on SIGUSR1 listens anew, beside its old socket, which it
    closes only later, or never."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    old = socket_of_port()
    pid = os.fork()
    if not pid:
        signal.sigwait({signal.SIGUSR1})
        new = socket_of_port()     # noqa: F841
        time.sleep(1)              # why: what comes now may be its
        if not keep:
            old.close()
        signal.pause()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
    old.close()
    return pid


def listening():
    """How many sockets listen."""
    return sum(line.split()[1].endswith(f":{PORT:04X}") and
               line.split()[3] == "0A"
               for line in read("/proc/net/tcp6").splitlines())


def until_listening(pid, count, then=""):
    """A command that signals, and ends when so many sockets listen."""
    return ("sh", "-c", f"kill -USR1 {pid}; until [ $(grep -c ':{PORT:04X} .* "
            f"0A ' /proc/net/tcp6) = {count} ]; do sleep 0.01; done; {then}")


@test
def s7_until_new_port_waits_for_the_old_socket_to_go():
    set_up("lo", "-p", str(PORT))
    for options, left in (((), 1), (("--until-new-port", str(PORT)), 1),
                          (("--until-port", str(PORT)), 2),
                          (("--until", "true"), 2)):
        pid = one_after_the_other()
        result = tool("protect", *LONG, *options, "--",
                      *until_listening(pid, 2))
        equal(listening(), left, f"sockets after {options}")
        equal("ended with a socket that only old" in result.err, left > 1,
              f"a warning: {result.err}")
        equal("waited" in result.err, not options, result.err)
        end_process(pid)


def now_and_then():
    """A server that on SIGUSR1 closes its socket, or listens again."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    server = socket_of_port()
    pid = os.fork()
    while not pid:
        signal.sigwait({signal.SIGUSR1})
        server = server.close() if server else socket_of_port()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
    server.close()
    return pid


def waited(*arguments):
    """(what for, in vain?) a protect has waited by itself."""
    report = tool("protect", "--json", *arguments).report["waited"]
    return report["for"], report["in_vain"]


@test
def s7_by_itself_it_waits_for_what_it_sees():
    set_up("lo", "-p", str(PORT))
    kept = listen()
    equal(waited(*LONG, "true"), ("", ""), "a socket that stays")
    kept.close()
    nobody = f"no socket on port {PORT}"
    short = ("--pause", "0", "--max-hold", "3s")
    pid = now_and_then()
    equal(waited(*LONG, *until_listening(
        pid, 0, f"(sleep 1; kill -USR1 {pid}) >&- 2>&- &")),
        (nobody, ""), "a socket that comes again")
    equal(waited(*short, *until_listening(pid, 0)), (nobody, nobody),
          "a socket that goes")
    end_process(pid)
    pid = one_after_the_other(keep=True)
    both = f"a socket that only old processes have on port {PORT}"
    equal(waited(*short, *until_listening(pid, 2)), (both, both),
          "an old one that nobody closes")
    equal(waited(*short, "true"),
          (f"the same sockets as before on port {PORT}", ""),
          "some that stay")
    end_process(pid)


def followed(keeps_s):
    """A server whose place, but for the address, a process takes that it began
    on SIGUSR1; it closes its own socket only later."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    old = socket.create_server((LO, PORT), reuse_port=True)
    pid = os.fork()
    if not pid:
        os.setsid()
        signal.sigwait({signal.SIGUSR1})
        if not os.fork():
            old.close()
            old = socket_of_port()
            while True:
                signal.pause()
        time.sleep(keeps_s)        # why: what comes now may be its
        old.close()
        signal.pause()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
    old.close()
    return pid


@test
def s7_it_waits_for_a_socket_of_another_address():
    set_up("lo", "-p", str(PORT))
    for options, keeps_s, left in (((), 1, 0), (("--until", "true"), 600, 1)):
        pid = followed(keeps_s)
        result = tool("protect", *LONG, *options, "--",
                      *until_listening(pid, 1))
        equal(read("/proc/net/tcp").count(f":{PORT:04X} 00000000:0000 0A "),
              left, f"old sockets after {options}: {result.err}")
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        wait_for(lambda: not listening(), "the end of both")


@test
def s7_until_runs_a_command_and_gives_up_at_the_deadline():
    listen()
    set_up("lo", "-p", str(PORT))
    path = "/run/qdisc_tool_test/ready"
    tool("protect", *LONG, "--until", f"test -e {path}", "--", "sh", "-c",
         f"(sleep 0.3; echo > {path}) >&- 2>&- &")
    check(os.path.exists(path), "it did not wait")
    tool("protect", "--max-hold", "500ms", "--until", "sleep 60", "--",
         "true", expect=124)
    equal(processes("sleep"), [], "left over")
    tool("protect", *LONG, "--until", "false", "--", "false", expect=1)
    tool("protect", *LONG, "--until-port", str(PORT), "--", "true")


if __name__ == "__main__":
    main(loopback)
