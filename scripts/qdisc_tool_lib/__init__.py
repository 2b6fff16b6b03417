# SPDX-License-Identifier: GPL-2.0-only
"""The parts of qdisc_tool, from the bottom up:

    errors    exit statuses and the one exception that reaches the user
    netlink   what is read from and sent to the kernel without a process
    listeners the sockets that listen, and how a reload changes them
    system    namespaces, capabilities, running other programs
    gate      a device's way through a plug: its parts and checks
    plug      the queue that is shut, and that the kernel opens by itself
    flower    the filters that lead to it, as tc's words and as messages
    foreign   what keeps packets from the filters: others, or the device
    state     what setup did, kept under /run
    hold      shuts the plug, opens it, and counts what was held and lost
    share     who has a part in a hold, and the guard that ends it for the dead
    command   the wrapped command's process
    protect   runs it under a hold
    report    what a hold did, for people and for programs
    upkeep    setup, clear, release, check and status of a gate
    actions   the commands but protect
    options   the command line; config, the file
    cli       from the one to the exit status

A reload waits for every import of 'protect'.  With argparse, json, signal,
socket and subprocess (which bring re and enum) it would start in three times
the time of a bare interpreter.  So it has its own parser, lines in place of
JSON, and of signal and socket the halves that are written in C; the rest is
imported where it is needed.
"""
