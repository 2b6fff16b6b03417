# SPDX-License-Identifier: GPL-2.0-only
"""Names of services and servers, in one spelling."""

import ipaddress
from functools import lru_cache

from ipvs_mhs_tool import ToolError, UsageError


# thousands of services tend to have the same servers
@lru_cache(maxsize=65536)
def endpoint(text):
    """'192.0.2.1:80' or '[2001:db8::1]:80' -> (address, port)."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        address = ipaddress.ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        address = None
    if address is None or bracketed != (address.version == 6) or \
            not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise ToolError(f"{text!r} is no address and port: give for example "
                        "192.0.2.1:80 or [2001:db8::1]:80")
    return address, int(port)


def is_udp(name, ports):
    """Is a service UDP of one of these ports?"""
    protocol, where = name.split()
    return protocol == "UDP" and endpoint(where)[1] in ports


def unmapped(address):
    """A socket of both families has IPv4 mapped into IPv6."""
    return getattr(address, "ipv4_mapped", None) or address


def told(text):
    """The same from the command line."""
    try:
        return endpoint(text)
    except ToolError as error:
        raise UsageError(str(error)) from error


@lru_cache(maxsize=65536)
def spelled(address, port):
    """The other way round."""
    return f"[{address}]:{port}" if address.version == 6 \
        else f"{address}:{port}"


@lru_cache(maxsize=65536)
def service_name(protocol, where):
    """'TCP 192.0.2.1:80' or 'FWM 7', whatever the spelling of @where."""
    if protocol == "FWM":
        if not (where.isascii() and where.isdigit()):
            raise ToolError(f"{where!r} is no firewall mark: give a number")
        return f"FWM {int(where)}"
    return f"{protocol} {spelled(*endpoint(where))}"
