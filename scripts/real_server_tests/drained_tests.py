# SPDX-License-Identifier: GPL-2.0-only
"""Which of a server's sockets are flows of a service."""

import contextlib
import io
import ipaddress
import sys
import unittest
from pathlib import Path
from unittest import mock

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

from ipvs_mhs_tool import ToolError  # noqa: E402
from real_server_lib import cli, drained  # noqa: E402
from real_server_lib.options import SetUp  # noqa: E402
from real_server_lib.state import Record  # noqa: E402

SOCKETS = """\
ESTAB      0 0          192.0.2.1:80    198.51.100.7:40000
ESTAB      0 0 [::ffff:192.0.2.1]:80 [::ffff:198.51.100.7]:40001
FIN-WAIT-2 0 0     192.0.2.1%eth0:80    198.51.100.7:40002
CLOSE-WAIT 0 0          192.0.2.2:80    198.51.100.7:40003
SYN-RECV   0 0      [2001:db8::1]:80    [2001:db8::7]:40004
"""


def run(*argv, sockets=SOCKETS, listening="", set_up=None, rules=""):
    """(status, standard output, standard error)"""
    out, err = io.StringIO(), io.StringIO()
    record = Record([set_up], {}) if set_up else None

    def told_rules(_):
        if rules is None:
            raise ToolError("nft is not installed")
        return rules
    answers = {"flows": lambda self, port: sockets,
               "sockets": lambda self: listening,
               "rules": told_rules,
               "links": lambda self: {"lo": {
                   "flags": [], "link_type": "loopback",
                   "addr_info": [{"local": "10.0.0.11"}]}}}
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), \
            mock.patch("real_server_lib.state.State.load", lambda self: record), \
            mock.patch.multiple("real_server_lib.host.Host", **answers):
        status = cli.main(["drained", *argv])
    return status, out.getvalue(), err.getvalue()


class Flows(unittest.TestCase):
    def test_by_address_in_any_spelling(self):
        for address, found in (
                ("192.0.2.1", {"established": 2, "half-closed": 1}),
                ("192.0.2.2", {"half-closed": 1}),
                ("2001:db8::1", {"half-open": 1}), ("192.0.2.3", {})):
            self.assertEqual(drained.flows((ipaddress.ip_address(address), 80),
                                           SOCKETS), found)


class Command(unittest.TestCase):
    def test_each_service(self):
        self.assertEqual(
            run("-t", "192.0.2.1:80", "-t", "[2001:DB8::1]:80"),
            (124, "192.0.2.1:80: 3 flow(s) left, 2 established, 1 half-closed\n"
             "[2001:db8::1]:80: 1 flow(s) left, 1 half-open\n", ""))

    def test_no_flow_is_drained_only_where_the_service_is_known(self):
        listens = "tcp LISTEN 0 128 0.0.0.0:80 0.0.0.0:*"
        for listening, status in ((listens, 0), (listens.replace("80", "81"), 125),
                                  ("", 125)):
            self.assertEqual(run("-t", "192.0.2.1:80", sockets="",
                                 listening=listening)[0], status)

    def test_a_port_that_a_rule_leads_to_a_container_is_not_known(self):
        listens = "tcp LISTEN 0 128 0.0.0.0:80 0.0.0.0:*"
        for rule, status in (
                ("tcp dport 80 counter packets 1 bytes 60 dnat to 172.17.0.2:8080", 125),
                ('tcp dport 80 counter packets 1 bytes 60 xt target "DNAT"', 125),
                ("tcp dport 8080 dnat to 172.17.0.2:80", 0),
                ("tcp dport { 22,\n 79-81,\n 443 } dnat to 172.17.0.2", 125),
                ("dnat ip to tcp dport map { 22 : 10.0.0.1, 80 : 10.0.0.2 }", 125),
                ("dnat ip to tcp dport map @ports", 125),
                ("-A DOCKER -p tcp -m tcp --dport 70:90 -j DNAT --to 172.17.0.2", 125),
                ("tcp dport 81-89 counter packets 80 bytes 80 dnat to :80", 0),
                ("dnat ip addr . port to tcp dport map { 22 : 10.0.0.80 . 80 }", 0),
                ("-A X -p tcp -m multiport --dports 443,80 -j DNAT", 125),
                ("-A X -p tcp ! --dport 22 -j DNAT --to 172.17.0.2", 125),
                ("ip daddr 192.0.2.1 dnat to 172.17.0.2", 125),
                ("tcp dport >= 80 dnat to 172.17.0.2", 125),
                ("chain dnat {", 0), ("tcp dport 80 accept", 0), (None, 125)):
            self.assertEqual(run("-t", "192.0.2.1:80", sockets="", rules=rule,
                                 listening=listens)[0], status, rule)

    def test_an_address_that_is_mapped_is_that_of_ipv4(self):
        self.assertEqual(run("-t", "[::ffff:192.0.2.1]:80")[0], 124)

    def test_quic_is_not_counted(self):
        for port, warns in (443, True), (4430, False):
            self.assertEqual("UDP, as of QUIC" in run(
                "-t", "192.0.2.1:443", listening="tcp LISTEN 0 128 *:443 *:*\n"
                f"udp UNCONN 0 0 0.0.0.0:{port} 0.0.0.0:*")[2], warns)

    def test_services_that_were_set_up(self):
        status, out, _ = run(set_up=SetUp(("192.0.2.1",), ports=(
            ("tcp", 80), ("udp", 443))))
        self.assertEqual((status, out.count("flow(s)")), (124, 1))

    def test_none(self):
        status, _, err = run()
        self.assertEqual(status, 125)
        self.assertIn("--tcp-service", err)


if __name__ == "__main__":
    unittest.main()
