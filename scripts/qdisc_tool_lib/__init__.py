# SPDX-License-Identifier: GPL-2.0-only
"""The parts of qdisc_tool, from the bottom up:

    errors    exit statuses and the one exception that reaches the user
    netlink   what is read from and sent to the kernel without a process
    system    namespaces, capabilities, running other programs
    gate      a device's way through a plug: its parts and checks
    listeners the sockets that listen, and how a reload changes them
    plug      the queue that is shut, and that the kernel opens by itself
    flower    the filters that lead to it, until the deadline
    foreign   what of others is before the filters, or behind them
    state     what setup did, kept under /run, and whose turn it is to hold
    hold      shuts the plug, opens it, and counts what was held and lost
    witness   which connections were made past a hold
    command   the wrapped command's process
    protect   runs it under a hold
    report    what a hold did, for people and for programs
    upkeep    setup, clear, release, check and status of a gate
    actions   the commands but protect
    options   the command line; config, the file
    cli       from the one to the exit status
"""
