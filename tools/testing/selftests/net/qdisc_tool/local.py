#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 1200
# weight: 130
"""What needs no other host: connections held on loopback, few and many, with the recipe
that is handed round for a control; the command line, its words and its files; hosts that lack
something."""

import contextlib
import os
import re
import select
import shutil
import signal
import socket
from pathlib import Path
from unittest import mock

from lib import (FAST, LONG, TOP, Protecting, Tool, check, child, defer, equal, main, note, program,
                 read, run, set_up, sysctl, test, tool, wait_for, write)
from qdisc_tool_lib import foreign, hold, protect
from qdisc_tool_lib.state import Turn
from net import (LOSSES, PORT, Clients, counters, growth, listen, lost_nothing, naive_loopback,
                 naive_plug, picture, plug, plug_device, plug_waiting, ready)

LO4, LO6 = "127.0.0.1", "::1"
CONFIG = f"{FAST}/qdisc_tool.conf"
GATE = ("setup", "-d", "lo", "-p", str(PORT))


def hold_and_release(count, address=LO4):
    """Hold @count connections in a protect; its result."""
    with Protecting(*LONG) as protecting, Clients(address, count) as clients:
        wait_for(lambda: plug_waiting("lo") >= count, f"{count} held SYNs")
        result = protecting.finish()
        clients.succeed()
    return result


def is_held(address=LO4, port=PORT):
    """Whether one new connection waits in the plug of a hold that goes on."""
    before = plug_waiting("lo")
    with Clients(address, 1, port) as clients:
        def decided():
            clients.take()
            return clients.made or clients.errors
        wait_for(lambda: decided() or plug_waiting("lo") > before, "a decision")
        return not decided()


@test
def s2_s3_held_connections_are_delayed_and_none_is_dropped():
    """Also of a burst that is more than the backlog of a CPU."""
    sysctl("net/core/netdev_max_backlog", 1000)
    # Room for copies is computed from --max-hold.
    set_up("lo", "--port", str(PORT), *LONG)
    for count in 1, 100, 2000:
        server = listen()
        before = counters()
        result = hold_and_release(count)
        equal((result.status, result.report["dropped"]), (0, 0), "status, dropped")
        check(result.hold["held"] >= count, "held too few")
        lost_nothing(before)
        server.close()


@test
def s3_control_the_naive_release_loses_a_part():
    sysctl("net/core/netdev_max_backlog", 1000)
    naive_loopback()
    listen()
    before = counters()
    naive_plug("block")
    with Clients(LO4, 2000) as clients:
        wait_for(lambda: plug_waiting("lo") >= 2000, "held SYNs")
        naive_plug("release_indefinite")
        clients.finish()
    lost = growth(before, "TCPSynRetrans", *LOSSES)
    note(lost)
    check(lost["softnet"] and lost["TCPSynRetrans"], "nothing was lost")


@test
def p3_limit_counts_connections_and_overflow_is_reported():
    ready("lo", "--limit", "500", *LONG)
    before = counters()
    result = hold_and_release(500, LO6)     # the longer ones
    check(result.hold["held"] >= 500, "held too few")
    lost_nothing(before)
    tool("clear", "-q")
    set_up("lo", "--port", str(PORT), "--limit", "1")           # one copy a second
    for status, *options in (123,), (0, "--allow-unprotected"):
        with Protecting(*LONG, *options) as protecting, Clients(LO4, 300) as clients:
            wait_for(lambda: plug("lo")[1], "drops")
            result = protecting.finish()
            clients.succeed()
        equal(result.status, status, "status")
        check(result.hold["dropped"] and "--limit" in result.err, result.err)


def syns_that_are_held():
    """Of all kinds: their names."""
    listen()
    held = {name for name, *where in (
        ("v4", LO4), ("v6", LO6), ("range", LO4, 9001), ("other port", LO4, PORT + 9))
        if is_held(*where)}
    sysctl("net/ipv4/tcp_ecn", 1)
    sysctl("net/ipv4/tcp_fastopen", 0x5)    # data in a SYN without a cookie
    if is_held():
        held.add("ECN")
    before = plug_waiting("lo")
    with socket.socket() as client, contextlib.suppress(BlockingIOError):
        client.setblocking(False)
        client.sendto(b"x" * 500, socket.MSG_FASTOPEN, (LO4, PORT))
    if plug_waiting("lo") > before:
        held.add("Fast Open")
    return held


@test
def s15_p15_syns_of_all_kinds_are_held():
    set_up("lo", "-p", f"{PORT},9000-9001")
    tool("hold", *LONG)
    equal(syns_that_are_held(), {"v4", "v6", "range", "ECN", "Fast Open"}, "held")


@test
def s15_p15_control_the_naive_filter_lets_ipv6_and_ecn_pass():
    naive_loopback(keys=f"protocol ip flower ip_proto tcp dst_port {PORT} tcp_flags 0x2")
    naive_plug("block")
    equal(syns_that_are_held(), {"v4"}, "held")
    naive_plug("release_indefinite")


@test
def s11_s13_p9_holds_lose_no_packet_of_others():
    """Setup and clear may; a hold may not, whatever mark or priority a packet has."""
    set_up("lo", "-p", str(PORT))
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    receiver.bind((LO4, 0))
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect(receiver.getsockname())
    for option, value in (socket.SO_MARK, 1), (socket.SO_PRIORITY, 0x10004):
        sender.setsockopt(socket.SOL_SOCKET, option, value)
    sent = received = 0
    for _ in range(5):        # the holds go on beside the packets
        call = Tool("protect", *LONG, "--pause", "0", "true")
        while call.poll() is None or sent > received:
            sent += bool(sender.send(b"x"))
            wait_for(lambda: select.select([receiver], [], [], 0)[0], "a packet")
            received += bool(receiver.recv(16))
        equal(call.wait().status, 0, "status")
    note(f"{sent} packets")
    equal(received, sent, "received")


@test
def s18_p1_p2_status_says_what_is_known():
    ready("lo")
    tool("status", says="lo: released")
    tool("hold", *LONG)
    tool("status", says="lo: holding")
    tool("release")
    tool("release")
    tool("status", says="lo: released")
    # Shut by hand: nothing leads to it, so it matters to nobody.
    run(f"tc qdisc change dev {plug_device('lo')} root handle 7f20: netem slot 9s")
    tool("status", says="lo: released")
    with Clients(LO4) as clients:
        clients.succeed()


@test
def man_page_and_completion_know_every_option():
    page = read(f"{TOP}/Documentation/man/qdisc_tool.8").replace("\\-", "-")
    completion = read(f"{TOP}/scripts/qdisc_tool.bash-completion")
    for command in "setup", "clear", "protect", "hold", "release", "status", "check":
        options = set(re.findall(r"--[a-z][a-z-]+", tool(command, "--help").out)) - {"--help"}
        equal([option for option in options if f"Fl -{option[2:]}" not in page or
               not {option, command} <= set(re.findall(r"[a-z-]+", completion))],
              [], f"what one of them lacks of {command}")


@test
def bad_input_is_refused_and_nothing_is_done():
    before = picture("lo")
    for arguments, status, words in (
            (("setup", "-d", "lo"), 2, "--port"),
            (("setup", "-d", "lo", "-p", "9-8"), 2, "empty"),
            (("setup", "-d", "lo", "-p", "80", "-a", "10.0.0.1/8"), 2, "host bits"),
            (("setup", "-d", "lo", "-p", "80", "--max-hold", "0"), 2, "duration"),
            (("setup", "-d", "lo", "-p", "80", "--limit", "-1"), 2, "number"),
            (("setup", "-d", "nosuch", "-p", "80"), 125, "no device"),
            (("setup", "--config", "/nosuch"), 125, "/nosuch"),
            (("protect",), 2, "which command"),
            (("protect", "--until", "a", "--until-new-port", "1", "true"), 2, "not allowed"),
            (("protect", "-d", "lo", "--require", "true"), 125, "setup")):
        result = tool(*arguments, expect=status, says=words)
        check("Traceback" not in result.err, result.err)
    equal(picture("lo"), before, "lo")
    tool("release")
    tool("clear")
    tool("status", says="nothing is set up")


@test
def a_device_has_one_set_up():
    set_up("lo", "-p", str(PORT))
    made, other = picture("lo"), ("--max-hold", "5s")
    tool(*GATE, says="already")
    result = tool(*GATE, *other, expect=125)
    equal(picture("lo"), made, "lo")
    # what the message says helps
    run(re.search("'(qdisc_tool clear .*)'", result.err)[1])
    tool(*GATE, *other)
    tool("protect", *LONG, "-d", "lo", "-d", "lo", "true")
    run("ip link property add dev lo altname loop")
    defer(run, "ip link property del dev lo altname loop")
    tool("setup", "-d", "loop", "-p", "80", expect=125, says="another name of lo")


@test
def configuration_file_sets_up_every_section():
    run("ip link add conf0 type veth peer name conf1")
    defer(run, "ip link del conf0")
    write(CONFIG, "# devices\n[lo]\nport = 8080, 8443\nmax-hold = 700ms\n"
          "\n[conf0]\naddress = 192.0.2.1 2001:db8::1  # the VIPs\nall = yes\nvlan = no\n")
    defer(os.unlink, CONFIG)
    defer(tool, "clear", "-q")
    tool("setup", "-q", "--config", CONFIG)
    tool("status", says="ports 8080, 8443")
    tool("status", says="packets to 192.0.2.1/32, 2001:db8::1/128")
    tool("setup", "-q", "--config", CONFIG)
    tool("clear", "-q")
    for text, words in (("port = 1\n", "section"),
                        ("[lo]\nprot = 1\n", "[lo]"),
                        ("[lo]\nport = 1\nnetns = x\n", "command line"),
                        ("[lo]\n", "--port"), ("", "no [device]")):
        write(CONFIG, text)
        result = tool("setup", "--config", CONFIG, expect=125, says=words)
        check(CONFIG in result.err, result.err)
    tool("status", says="nothing is set up")


@test
def s16_without_privileges_the_command_still_runs():
    set_up("lo", "-p", str(PORT))
    for status, *arguments in (
            (7, "protect", *LONG, "--", "sh", "-c", "exit 7"), (125, "release"), (125, "check"),
            (125, *GATE)):
        program(*arguments, expect=status, says="root", user="nobody", group="nogroup")


@test
def s16_p24_a_kernel_with_no_queue_to_shut_is_named():
    before = picture("lo")
    with mock.patch.object(hold, "PLUG_KIND", "nosuch"):
        tool(*GATE, expect=125, says="CONFIG_NET_SCH_NETEM")
    equal(picture("lo"), before, "lo")


@test
def without_a_set_up_the_status_tells():
    for options, command, status in (((), "true", 124), ((), "false", 1),
                                     (("--allow-unprotected",), "true", 0),
                                     (("--allow-unprotected",), "false", 1)):
        result = tool("protect", "--json", *options, command, expect=status, says="unprotected")
        equal((result.report["covered"], result.report["command_status"]),
              (False, int(command == "false")), "report")
    ready("lo")
    tool("protect", *LONG, "true")         # the control: set up
    with mock.patch.object(protect, "Witness", side_effect=OSError("no socket")):
        tool("protect", "true", expect=124, says="not protected: no socket")
    with mock.patch.object(foreign, "_NETLINK_NETFILTER", 31):         # a kernel that has none
        tool("protect", "--require", *LONG, "true")
    take = Turn.take
    with mock.patch.object(hold, "end_hold", side_effect=OSError("another's hold is ended")), \
            mock.patch.object(Turn, "take", lambda turn, *how: (
                take(turn, *how), os.unlink(turn._path))[0]):
        tool("protect", "true", expect=124, says="another call has its turn")
        tool("hold", expect=125, says="another call has its turn")


@test
def check_says_which_reload_needs_no_hold():
    ready("lo")
    words = "Envoy", "tcp_migrate_req=1"

    def begin(name):
        pid = child(lambda: (Path("/proc/self/comm").write_bytes(name), signal.pause()))
        wait_for(lambda: Path(f"/proc/{pid}/comm").read_bytes() == name + b"\n", "its name")
    begin(b"caf\xe9")       # no UTF-8
    said = tool("check").out
    check(not any(word in said for word in words), f"the control: {said}")
    sysctl("net/ipv4/tcp_migrate_req", 1)
    begin(b"envoy")
    said = tool("check").out
    check(all(word in said for word in words), said)


@test
def a_disk_that_cannot_be_written_is_named():
    directory = f"{FAST}/small"
    os.mkdir(directory)
    run(f"mount -t tmpfs -o size=64k none {directory}")
    defer(run, f"umount {directory}")
    where = ("--state-dir", directory)
    for fault, remedy, words in (
            (f"mount -o remount,ro {directory}", f"mount -o remount,rw {directory}", "Read-only"),
            (f"cat /dev/zero >{directory}/filler || :", f"rm {directory}/filler", "No space")):
        set_up("lo", "-p", str(PORT), *where)
        run(["sh", "-c", fault])
        tool("check", *where, expect=1, says=words)
        tool("status", *where, says="released")
        result = tool("protect", *where, "true", expect=124, says=words)
        check(directory in result.err, result.err)
        run(["sh", "-c", remedy])
        tool("check", *where)          # the control
        # The same of a setup: nothing is left.
        tool("clear", "-q", *where)
        run(["sh", "-c", fault])
        result = tool(*GATE, *where, expect=125, says=words)
        check(directory in result.err, result.err)
        run(["sh", "-c", remedy])
        equal([name for _, _, names in os.walk(directory) for name in names], [], "left")


@test
def what_an_earlier_boot_left_counts_for_nothing():
    """After a power cut, where the directory is on a disk; the control is of this boot."""
    directory = f"{FAST}/disk"
    where = ("--state-dir", directory)
    set_up("lo", "-p", str(PORT), *where)
    name, = os.listdir(directory)
    shutil.copytree(f"{directory}/{name}", f"{FAST}/left")
    write(f"{FAST}/left/lo.lock", "hold 1e9".ljust(80))
    tool("clear", "-q", *where)
    shutil.rmtree(f"{directory}/{name}")
    shutil.copytree(f"{FAST}/left", f"{directory}/{name}")
    tool("status", *where, expect=1, says="lo: ")          # the control
    os.rename(f"{directory}/{name}", f"{directory}/{name[:-8]}01234567")
    tool("status", *where, says="nothing is set up")
    os.mkdir(f"{directory}/java-17-openjdk")       # another program's
    set_up("lo", "-p", str(PORT), *where)
    equal({*os.listdir(directory)}, {name, "java-17-openjdk"}, "directories")
    tool("protect", *where, *LONG, "true")


@test
def s14_only_ip_and_a_tc_without_netem_are_needed():
    listen()
    bare = f"{FAST}/bare"
    os.mkdir(bare)
    for name in ("ip", "true", "modprobe"):
        os.symlink(shutil.which(name), f"{bare}/{name}")
    write(f"{bare}/tc", "#!/bin/sh\ncase \"$*\" in *netem*) echo 'Unknown qdisc \"netem\"' "
          f">&2; exit 1;; esac\nexec {shutil.which('tc')} \"$@\"\n")
    os.chmod(f"{bare}/tc", 0o755)
    executable = shutil.which("qdisc_tool")
    defer(tool, "clear", "-q")
    for command in GATE, ("protect", *LONG, "true"), ("clear",):
        run([executable, *command], env={**os.environ, "PATH": bare})


if __name__ == "__main__":
    main()
