# SPDX-License-Identifier: GPL-2.0-only
"""The parts of mhsstat, from the bottom up; below them is ipvs_mhs_tool:

    address     services and servers by name
    proc        /proc/net/ip_vs_mhs
    netlink     asks the core of IPVS
    servers     services with their servers: the core's, or those of ipvsadm -S
    module      parameters of the loaded module
    snapshot    all of that at one moment, and as JSON
    lane        /proc/net/ip_vs_mhs_lane: what the lane forwarded or left
    text        tables, times, bars
    prometheus  the same as metrics
    progress    waiting, and what is said meanwhile
    facts       what check and drain ask this host
    rules       what the module does with flows, by this host's times
    plan        what a change would move
    compare     what differs between directors
    stateful    whether every flow has an entry, and what stands against it
    finding     what check finds, in words
    mistakes    set-ups that are wrong
    check       what is stateful or wrong, and the remedies
    lookup      where the packets of one client go
    watch       the live view
    wait        until a service is stable
    drain       weight 0, wait, delete
    options     the command line
    cli         the commands
"""
