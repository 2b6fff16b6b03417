# SPDX-License-Identifier: GPL-2.0-only
"""The parts of real_server, from the bottom up; below them is ipvs_mhs_tool:

    host     what the kernel says of addresses, devices, sysctls, sockets
    options  the command line, the configuration file: a SetUp
    parts    what a SetUp is made of: how each is made, undone, found at fault
    faults   what else can be wrong: ARP, the MTU, services that do not listen
    state    what setup made, kept under /run
    change   setup and clear
    chance   the parts of the second chance
    drained  whether flows are left, by this server's sockets
    cli      the commands
"""
