# SPDX-License-Identifier: GPL-2.0-only
"""Read /proc/net/ip_vs_mhs: a line of column names, a line for each service.

A column is found by its name.  Older modules lack some, whose fields are then
missing; newer ones have more, which are passed on under a name made of theirs.
"""

import re

from ipvs_mhs_tool import ToolError

from .address import service_name

PROC_MHS = "/proc/net/ip_vs_mhs"

# columns of this version; the field of a column is its name in small letters, but for
_FIELDS = {
    "Prot": "protocol", "Address:Port": "address", "Gone": "gone_servers",
    "NoSlot": "servers_without_slot", "Size": "table_size",
    "Stable": "stable_slots", "Hold": "hold_slots", "Pin": "pin_slots",
    "Tracked": "tracked_slots", "AddrOnly": "address_only"}
_KNOWN = {*_FIELDS, *"""
    State Servers NextMergeMs Entries PktStateless PktOld PktCandidate PktTracked
    PktUnsettled PktIcmp PktLane PktById PktNoId NewEntries PinnedEntries Capped
    NoMemory BuildUs OldPrint CandidatePrint StableMs Stateful StatefulMs QuicIds
    PinnedMs""".split()}
_TEXT = ("protocol", "address", "state", "old_print", "candidate_print")
# Without these a line says nothing.
_NEEDED = ("Prot", "Address:Port", "State")
_PROTOCOLS = ("TCP", "UDP", "SCTP", "FWM", "IP")


def _field(column):
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", column).lower()
    if column in _KNOWN:
        name = name.replace("pkt_", "packets_")
    return _FIELDS.get(column, name)


def _is_number(word):
    return word.isdecimal() and word.isascii()


def parse(text, where=PROC_MHS, names=()):
    """The services, each a dict by field, in the order of the file; of @names if
    there are any."""
    lines = text.splitlines()
    columns = lines[0].split() if lines else []
    missing = [name for name in _NEEDED if name not in columns]
    if missing:
        raise ToolError(f"{where}: no column {missing[0]!r} in the first line: "
                        "this is not the text of /proc/net/ip_vs_mhs")
    fields = [_field(column) for column in columns]
    new = {_field(column) for column in columns if column not in _KNOWN}
    numbers = [n for n, field in enumerate(fields) if field not in {*_TEXT, *new}]
    services = []
    for number, line in enumerate(lines[1:], 2):
        words = line.split()
        if len(words) != len(columns):
            raise ToolError(f"{where}: line {number} has {len(words)} fields, "
                            f"the first one names {len(columns)}: it was cut "
                            "off or changed; read it again")
        try:
            service = dict(zip(fields, words))
            if service["protocol"] not in _PROTOCOLS:
                raise ValueError(f"no protocol {service['protocol']!r}")
            name = name_of(service)
            if names and name not in names:
                continue
            if numbers and not _is_number("".join([words[n] for n in numbers])):
                raise ValueError(next(
                    f"{words[n]!r} is no number ({fields[n]})" for n in numbers
                    if not _is_number(words[n])))
            service.update([(fields[n], int(words[n])) for n in numbers])
            service.update([(field, int(service[field])) for field in new
                            if _is_number(service[field])])
        except (ValueError, ToolError) as error:
            raise ToolError(f"{where}: line {number}: {error}") from error
        services.append(service)
    return services


def name_of(service):
    """'TCP 192.0.2.1:80', by which services are found."""
    return service_name(service["protocol"], service["address"])


def left_ms(service):
    """Milliseconds until the service is stable; None if nobody knows."""
    if service["state"] == "stable":
        return 0
    if service["state"] != "transition":
        return None
    return service.get("stable_ms", service.get("next_merge_ms"))
