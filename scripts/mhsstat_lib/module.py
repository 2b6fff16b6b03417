# SPDX-License-Identifier: GPL-2.0-only
"""What the loaded module was told.  Only root reads the key."""

import re

from ipvs_mhs_tool import ToolError

from .address import service_name

PARAMETERS = "/sys/module/ip_vs_mhs/parameters"
VS = "/proc/sys/net/ipv4/vs"
SIZES = (251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521, 131071,
         262139, 524287)
DEFAULT_TABLE_SIZE = 4093
# mhs_hash_key, of ip_vs_mhs_table.c, as the parameter would spell it
DEFAULT_KEY = "d308a385886a3f24447370032e8a1913"
NO_KEY = ("", "(null)")     # the parameter, when the key is the default


def parameter(name, directory=PARAMETERS):
    """Its text, None if it is not there or not for us."""
    try:
        with open(f"{directory}/{name}", encoding="ascii") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError):
        return None


def ports(name, default):
    """Those of a parameter that is a list of ports; @default where there is none."""
    text = parameter(name)
    return default if text is None else tuple(
        int(port) for port in text.split(",") if port.isdigit())


def stay_ports():
    """UDP ports whose flows all stay; of one of quic_ports those of QUIC do not."""
    return set(ports("stay_ports", ())) - set(ports("quic_ports", ()))


def listed(sysctl, protocol):
    """Names of the services in a sysctl; None where there is no such sysctl, or not for
    us."""
    text = parameter(sysctl, f"{VS}/mhs")
    return None if text is None else tuple(
        service_name(protocol, word.partition("=")[0]) for word in text.split())


def second_chance():
    """Names of services with the second chance; None where the module knows none."""
    return listed("second_chance", "TCP")


def quiesces():
    """Do clients with persistence leave a server of weight 0?"""
    return parameter("expire_quiescent_template", VS) not in (None, "0")


def parse_key(text, where):
    """32 hexadecimal digits, or nothing for the default."""
    text = text.strip()
    if text and not re.fullmatch("[0-9a-fA-F]{32}", text):
        raise ToolError(f"{where}: want 32 hexadecimal digits (0-9, a-f), or "
                        "nothing for the default key")
    return text.lower() or DEFAULT_KEY


def key_print(key):
    """Tells keys apart and does not give them away: they have 128 bits."""
    import hashlib
    return hashlib.sha256(b"ip_vs_mhs hash_key " + bytes.fromhex(key)
                          ).hexdigest()[:16]


def describe(directory=PARAMETERS):
    """The parameters on which directors must agree, without the key."""
    key = parameter("hash_key", directory)
    size = parameter("table_size", directory)
    return {
        "table_size": int(size) if size else None,
        "hash_key_print": None if key is None else key_print(
            parse_key("" if key in NO_KEY else key, "hash_key")),
        "quic_ports": parameter("quic_ports", directory),
        "stay_ports": parameter("stay_ports", directory) or "",
    }
