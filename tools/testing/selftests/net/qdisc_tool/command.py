#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 1200
# weight: 90
"""The command line, its words and its files; hosts that lack something."""

import os
import re
import shutil
import signal
from unittest import mock

from lib import (FAST, LONG, TOP, check, child, defer, equal, main, program, read, run, set_up,
                 sysctl, test, tool, wait_for, write)
from qdisc_tool_lib import hold
from net import PORT, listen, loopback, picture, ready

CONFIG = f"{FAST}/qdisc_tool.conf"
GATE = ("setup", "-d", "lo", "-p", str(PORT))


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
            ((), 2, "COMMAND"),
            (("fly",), 2, "invalid choice"),
            (("setup", "-d", "lo"), 2, "--port"),
            (("setup", "-d", "lo", "-p", "9-8"), 2, "empty"),
            (("setup", "-d", "lo", "-p", "80", "-a", "10.0.0.1/8"), 2, "host bits"),
            (("setup", "-d", "lo", "-p", "80", "--max-hold", "0"), 2, "duration"),
            (("setup", "-d", "lo", "-p", "80", "--limit", "-1"), 2, "number"),
            (("setup", "-d", "nosuch", "-p", "80"), 125, "no device"),
            (("setup", "--config", "/nosuch"), 125, "/nosuch"),
            (("protect",), 2, "which command"),
            (("protect", "--until", "a", "--until-new-port", "1", "true"), 2, "not allowed"),
            (("protect", "-d", "lo", "--require", "true"), 125, "setup"),
            (("protect", "-N", "nosuch", "true"), 124, "unprotected"),
            (("hold",), 125, "setup")):
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
    equal(tool("protect", *LONG, "true").status, 0, "the control: set up")


@test
def check_says_which_reload_needs_no_hold():
    ready("lo")
    words = "Envoy", "tcp_migrate_req=1"
    said = tool("check").out
    check(not any(word in said for word in words), f"the control: {said}")
    sysctl("net/ipv4/tcp_migrate_req", 1)

    def envoy():
        write("/proc/self/comm", "envoy")
        signal.pause()
    pid = child(envoy)
    wait_for(lambda: read(f"/proc/{pid}/comm") == "envoy\n", "its name")
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
    set_up("lo", "-p", str(PORT), *where)
    equal(os.listdir(directory), [name], "directories")
    listen()
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
    main(loopback)
