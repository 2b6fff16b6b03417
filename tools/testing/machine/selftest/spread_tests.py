# SPDX-License-Identifier: GPL-2.0-only
"""Clients as they come are spread evenly over the slots.  The test size.sh
shows that the kernel's slots are those of reference.py."""

import ipaddress
import sys
import unittest
from pathlib import Path

TOP = Path(__file__).resolve().parents[4]
sys.path.append(str(TOP / "tools/testing/selftests/net/ipvs_mhs"))

import reference  # noqa: E402

FLOWS = 8192
BUCKETS = 64
CHI_SQUARE = 103.4  # of 1,000 even spreads over 64 one is above
ONE = ipaddress.ip_address("10.1.0.2")
ONE6 = ipaddress.ip_address("fd01::2")
NET = ipaddress.ip_address("198.51.100.0")
EUI64 = ipaddress.ip_address("2001:db8::5054:ff:fe00:0")
LOW = ipaddress.ip_address("2001:db8::")


def clients():
    """(what they are, their addresses and ports)"""
    numbers = range(FLOWS)
    yield "ports in a row", [(ONE, 32768 + i) for i in numbers]
    yield "every second port", [(ONE, 32768 + 2 * i) for i in numbers]
    yield "ports in a row, IPv6", [(ONE6, 32768 + i) for i in numbers]
    yield "a /24, few ports", [(NET + i % 256, 1024 + i // 256)
                               for i in numbers]
    yield "a /19, one port", [(NET + i, 12345) for i in numbers]
    yield "EUI-64 of machines in a row", [(EUI64 + i, 12345) for i in numbers]
    yield "::1 and so on, one port", [(LOW + 1 + i, 12345) for i in numbers]
    yield "a /64 each", [(LOW + (i << 64), 12345) for i in numbers]
    yield "the same sum", [(ONE + i, 20000 - i) for i in numbers]


def by_mhs(address, port):
    return reference.slot(BUCKETS, address, port)


def by_sum(address, port):
    """As mh: 32-bit words of the address by XOR, and the port is added."""
    number, folded = int(address), 0
    while number:
        folded ^= number & 0xffffffff
        number >>= 32
    return (reference.siphash([folded + port]) >> 32) * BUCKETS >> 32


def chi_square(slot, flows):
    seen = [0] * BUCKETS
    for address, port in flows:
        seen[slot(address, port)] += 1
    mean = len(flows) / BUCKETS
    return sum((n - mean) ** 2 / mean for n in seen)


class Spread(unittest.TestCase):
    def test_clients_are_spread_evenly(self):
        for name, flows in clients():
            with self.subTest(name):
                self.assertLess(chi_square(by_mhs, flows), CHI_SQUARE)

    def test_control_a_sum_is_not_spread(self):
        uneven = [name for name, flows in clients()
                  if chi_square(by_sum, flows) > 10 * CHI_SQUARE]
        self.assertEqual(uneven, ["a /24, few ports", "the same sum"])
