# SPDX-License-Identifier: GPL-2.0-only
"""The parts of qdisc_tool, from the bottom up:

    errors    exit statuses and the one exception that reaches the user
    netlink   what is read from and sent to the kernel without a process
    system    namespaces, capabilities, running other programs
    lane      a device's way through a plug: its parts, commands and checks
    state     what setup did, kept under /run
    backlog   the per-CPU receive queue that a release on loopback passes
    counters  every place where a held packet can be lost
    watchdog  the process that owns a hold and always ends it
    holder    the caller's side of a hold
    protect   runs the command under a hold
    report    what a hold did, for people and for programs
    cli       options, configuration file, commands
"""
