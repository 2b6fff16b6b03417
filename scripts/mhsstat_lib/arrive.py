# SPDX-License-Identifier: GPL-2.0-only
"""Packets that come to this host for services, beside what the services count, which is
less where something before them drops packets; and who else has their addresses."""

import re
import socket
import struct
import time
from collections import Counter

from ipvs_mhs_tool import run

from .address import endpoint
from .proc import name_of
from .servers import NUMBERS
from .snapshot import read_services
from .text import forwarded

LISTEN_S = 0.5
_MANY = 10_000      # packets that are enough
_ALL, _ARP = 3, 0x806
# by version: the octet of the protocol, the destination, the ports
_HEADERS = {4: (9, 16, 20), 6: (6, 24, 40)}


def _aim(packet):
    """Protocol, address and port to which a packet goes."""
    protocol, address, ports = _HEADERS[6 if packet[0] >> 4 == 6 else 4]
    if ports == 20:
        ports = 4 * (packet[0] & 15)
        if packet[6] & 31 or packet[7]:
            return None     # a later fragment
    return (packet[protocol], packet[address:ports if ports == 40 else 20],
            packet[ports + 2:ports + 4])


def _ask(tap, device, address):
    """By ARP, for an address that is on this device, without a sender's."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM) as own:
        own.bind((device, _ARP))
        mac = own.getsockname()[4]
    tap.sendto(struct.pack("!HHBBH6s4s6s4s", 1, 0x800, 6, 4, 1, mac, b"", b"",
                           address), (device, _ARP, 0, 0, b"\xff" * 6))
    return mac


def _listen(tap, aims, asked):
    """({name: packets by the device that had most}, {address: (MAC, device)})"""
    came, owners, end = Counter(), {}, time.monotonic() + LISTEN_S
    for _ in range(_MANY):
        tap.settimeout(max(end - time.monotonic(), 1e-6))
        try:
            packet, (device, kind, way, *_) = tap.recvfrom(128)
        except TimeoutError:
            break
        if kind == _ARP and packet[6:8] == b"\0\2":
            owner = packet[8:14], device
            if owner[1] == asked.get(packet[14:18], (0, 0))[1] and \
                    owner != asked[packet[14:18]]:
                owners[packet[14:18]] = owner
        elif way == socket.PACKET_HOST and kind in (0x800, 0x86dd) and \
                len(packet) > 40 and _aim(packet) in aims:
            came[aims[_aim(packet)], device] += 1
    most = Counter()
    for (name, _), number in came.items():
        most[name] = max(most[name], number)
    return most, owners


def _counted(services, by_xdp):
    """{name: packets}; those of IPVS are some seconds old, the module's are of now.
    Nobody hears what XDP takes."""
    return Counter({name_of(s): forwarded(s) + s["packets_unsettled"] +
                    s["pinned_entries"] - by_xdp * s.get("packets_lane", 0)
                    for s in services})


def look(services, by_xdp):
    """({name of a service: (packets that came, that it counted)}, {address: "MAC on
    DEVICE"}) of @services of /proc that were read just now; the lane is at XDP alone."""
    names = [name for name in map(name_of, services) if name[:4] != "FWM "]
    aims = {(NUMBERS[protocol], address.packed, port.to_bytes(2, "big")): name
            for name in names for protocol, where in [name.split()]
            for address, port in [endpoint(where)]}
    ours = {address: socket.inet_ntoa(address) for _, address, _ in aims
            if len(address) == 4}
    devices = {text: device for device, text in re.findall(
        r"^\d+: (\S+) +inet ([0-9.]+)", run(["ip", "-o", "-4", "addr", "show", "up"]
                                            ).stdout, re.M) if device != "lo"}
    try:
        with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM,
                           socket.htons(_ALL)) as tap:
            asked = {address: (_ask(tap, devices[text], address), devices[text])
                     for address, text in ours.items() if text in devices}
            came, owners = _listen(tap, aims, asked)
    except OSError:     # a container may not; a device has just gone
        return {}, {}
    counted = _counted(read_services([*came]), by_xdp) if came else Counter()
    counted.subtract({name: number for name, number in _counted(services, by_xdp).items()
                      if name in came})
    return ({name: (number, counted[name]) for name, number in came.items()},
            {socket.inet_ntoa(address): f"{mac.hex(':')} on {device}"
             for address, (mac, device) in owners.items()})
