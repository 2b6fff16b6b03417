# SPDX-License-Identifier: GPL-2.0-only
"""The parts of qdisc_tool, from the bottom up:

    errors    exit statuses and the one exception that reaches the user
    netlink   what is read from and sent to the kernel without a process
    system    namespaces, capabilities, running other programs
    flower    the filters that lead to the queue, until the deadline
    gate      a device's way through that queue: its parts and checks
    listeners the sockets that listen, and how a reload changes them
    foreign   what of others is before the filters, or behind them
    state     what setup did, kept under /run, and whose turn it is to hold
    hold      shuts the queue, opens it, and counts what was held and lost
    witness   which connections were made past a hold, and which before it
    command   the wrapped command's process
    report    what a hold did, for people and for programs
    protect   runs a command under a hold
    options   the command line, and the configuration file
    actions   the commands but protect
    cli       from the one to the exit status
"""
