# SPDX-License-Identifier: GPL-2.0-only
"""Where the packets of one client go: the kernel's own answer, from
/proc/net/ip_vs_mhs_lookup, and the client's connection entries."""

import errno
import ipaddress
import re

from ipvs_mhs_tool import ToolError, UsageError

from . import module, servers
from .address import endpoint, is_udp, spelled, told
from .proc import name_of
from .snapshot import NotThere, read_services, read_text, select
from .text import Screen, few, wrap

PROC_LOOKUP = "/proc/net/ip_vs_mhs_lookup"
PROC_CONNS = "/proc/net/ip_vs_conn"

# where packets go, by the phase of the slot
_ANSWERS = {
    "settling": "{new} for a new flow, which gets an entry; packets of older "
                "flows are dropped until the table is final",
    "stable": "{new}, by its slot",
    "hold": "{old} for an older flow, {new} for a new one, which gets an entry",
    "pin": "{old} for an older flow, {new} for a new one; each gets an entry",
}
_PLAIN_UDP = {
    "hold": "plain UDP, which is not QUIC, has no entries and stays with the old "
            "server while that one has a weight",
    "pin": "plain UDP, which is not QUIC, has no entries and goes to the "
           "candidate",
}
_STAYS = {
    "hold": "{old} while that is listed, then {new}; the next packet makes an entry "
            "(stay_ports)",
    "pin": "{new}; the next packet makes an entry (stay_ports)",
}


def question(name, client, cid=""):
    """The line for the kernel: the service, then the client."""
    protocol, where = name.split()
    host, port = (where, 0) if protocol == "FWM" else endpoint(where)
    return f"{protocol} {host} {port} {client[0]} {client[1]} {cid}".rstrip() \
        + "\n"


def parse(text):
    """The answer, as 'lookup --json' prints it."""
    try:
        lines = dict(line.split(maxsplit=1) for line in text.splitlines())
        return {"slot": int(lines["Slot"]), "phase": lines["Phase"],
                "tracked": int(lines["Tracked"]),
                **{f"{name.lower()}_server":
                   None if lines[name] == "-" else lines[name]
                   for name in ("Old", "Candidate", "ById")
                   if name in lines}}
    except (KeyError, ValueError) as error:
        raise ToolError(f"{PROC_LOOKUP}: the answer cannot be understood: "
                        f"{text!r}") from error


def _ask(name, client, cid=""):
    """The answer for one service; None if it has no slot for such a client."""
    try:
        with open(PROC_LOOKUP, "r+b", buffering=0) as file:
            file.write(question(name, client, cid).encode())
            return parse(file.read(4096).decode())
    except FileNotFoundError as error:
        raise ToolError(f"there is no {PROC_LOOKUP}: the loaded module is older "
                        "than this mhsstat; load the newer one") from error
    except PermissionError as error:
        raise ToolError(f"{PROC_LOOKUP} is for root: run mhsstat as root"
                        ) from error
    except OSError as error:
        if error.errno == errno.ENOENT:
            return None
        raise


def _address(word):
    """'0A010002' or 'fd01:0000:...:0002'."""
    return ipaddress.IPv6Address(word) if ":" in word else \
        ipaddress.IPv4Address(int(word, 16))


def entries(text, client, network=None):
    """[(protocol, virtual address and port, entry)] of the client; or, of its
    @network, what persistence remembers."""
    port = "0000" if network else f"{client[1]:04X}"
    of = network or client[0]
    found = []
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) < 9 or words[2] != port or _address(words[1]) != of:
            continue
        virtual, server = (spelled(_address(words[i]), int(words[i + 1], 16))
                           for i in (3, 5))
        found.append((words[0], virtual, {
            "server": server, "state": words[7], "expires_s": int(words[8]),
            "to": virtual}))
    return found


def _has(core, server):
    """Has the service a server of that name?  One of port 0 takes any port."""
    address, port = endpoint(server)
    return any(s.address == address and s.port in (0, port)
               for s in core.servers)


def _entry(name, known, core):
    """The one of that service.  By a mark packets come to any address that is no
    service of its own; where such entries lead to servers of another mark alone,
    or differ, the mark of the packets decides and no entry is named."""
    protocol, where = name.split()
    if protocol != "FWM":
        return next((entry for kind, virtual, entry in known
                     if (kind, virtual) == (protocol, where)), None)
    marks = {other: one for other, those in core.items() for one in those
             if other.startswith("FWM ")}
    found = [entry for kind, virtual, entry in known
             if f"{kind} {virtual}" not in core and (
                 name in marks and _has(marks[name], entry["server"]) or
                 not any(_has(one, entry["server"]) for one in marks.values()))]
    return found[0] if len({entry["server"] for entry in found}) == 1 else None


def _remembered(name, client, core, text):
    """The server that the client has by persistence; None without, "" if it has
    none yet."""
    one = next((s for s in core.get(name, ()) if s.persistent), None)
    if one is None:
        return None
    protocol, where = name.split()
    for kind, virtual, entry in entries(text, client,
                                        one.clients(client[0]).network_address):
        if protocol == "FWM":
            address = endpoint(virtual)[0].packed[:4]
            ours = kind == "IP" and int.from_bytes(address, "big") == int(where)
        else:
            ours = (kind, virtual) == (protocol, where)
        if ours and any(
                s.name == entry["server"] or not s.port and
                s.address == endpoint(entry["server"])[0] for s in one.servers
                if s.weight or not module.quiesces()):
            return entry["server"]
    return ""


def _by_id(options):
    """The same for a connection ID: of services that have such IDs."""
    if not re.fullmatch("([0-9a-fA-F]{2}){1,20}", options.cid):
        raise UsageError("a connection ID has 1 to 20 octets, two hexadecimal "
                         "digits each")
    found = []
    for service in select(read_services(options.service), options.service):
        name = name_of(service)
        if service.get("quic_ids"):
            anybody = (ipaddress.ip_address(
                "::1" if "[" in name else "127.0.0.1"), 1)
            answer = _ask(name, anybody, options.cid) or {}
            found.append({"service": name, "server": answer.get("byid_server")})
    if not found:
        raise NotThere("no service has QUIC connection IDs: sysctl "
                       "net.ipv4.vs.mhs.quic_ids names those that have")
    return {"cid": options.cid, "services": found}


def lookup(options):
    """The result, as 'lookup --json' prints it."""
    if options.cid is not None:
        return _by_id(options)
    client = told(options.client)
    if client[1] == 0:
        raise UsageError("a client has a port from 1 to 65535")
    services = {name_of(s): s for s in select(read_services(options.service),
                                              options.service)}
    answers = {name: _ask(name, client) for name in services
               if name.startswith("FWM ") or
               endpoint(name.split()[1])[0].version == client[0].version}
    text = read_text(PROC_CONNS) if any(answers.values()) else ""
    known = entries(text, client)
    # an entry by a mark may be any other service's
    core = servers.of_this_host(
        () if any(name.startswith("FWM ") for name in answers) else options.service)
    ports = module.stay_ports()
    found = [{"service": name, **answer, "entry": _entry(name, known, core),
              "persistent": _remembered(name, client, core, text),
              "stays": is_udp(name, ports),
              "full": _full(core.get(name, ()), answer["candidate_server"]),
              "second_chance": services[name].get("second_chance", 0)}
             for name, answer in answers.items() if answer]
    if not found:
        raise NotThere(f"no service has a slot for {options.client}: it must be "
                       f"of the client's family, IPv{client[0].version}, and "
                       "have a port or a mark")
    return {"client": spelled(*client), "services": found}


def _full(those, server):
    """What becomes of a new connection if the server is at its threshold, or None."""
    full = [service for service in those for s in service.servers
            if s.name == server and s.limits and
            s.active + s.inactive >= int(s.limits[1]) > 0]
    return full and ("goes to another server" if "flag-1" in full[0].flags
                     else "is refused") or None


def _answer(service):
    """The server, and by what."""
    entry, remembered = service["entry"], service.get("persistent")
    if entry:
        return f"{entry['server']}, by its entry" + (
            f" to {entry['to']}" if service["service"].startswith("FWM ") else "")
    if service.get("full"):
        return f"{service['candidate_server']} for an older flow; a new one " \
            f"{service['full']}, as that server is at its threshold (ipvsadm -x)"
    if remembered:
        return f"{remembered} for a new connection, by persistence"
    if remembered == "":
        return f"{service['candidate_server'] or 'no server'} for a new " \
            "connection, by its slot; all later ones of the client follow it " \
            "by persistence"
    answers = {**_ANSWERS, **_STAYS} if service.get("stays") else _ANSWERS
    return answers.get(service["phase"], "{new}, or {old}").format(**{
        which: service[f"{name}_server"] or "no server"
        for which, name in (("old", "old"), ("new", "candidate"))})


def render(result, room=Screen()):
    """The same for people, the answer first."""
    if "cid" in result:
        return "\n".join(
            f"{result['cid']} -> {s['server'] or 'no server: by address and port'}"
            f"\n  service           {s['service']}" for s in result["services"])
    parts = []
    for s in result["services"]:
        entry = s["entry"]
        lines = [
            f"{result['client']} -> {_answer(s)}",
            f"  service           {s['service']}, slot {s['slot']}, phase "
            f"{s['phase']}",
            f"  old server        {s['old_server'] or 'none'}",
            f"  candidate         {s['candidate_server'] or 'none'}",
            "  connection entry  " +
            ("none" if entry is None else
             f"{entry['state']} to {entry['server']}, expires after "
             f"{entry['expires_s']} s of silence")]
        if s.get("second_chance") and not entry:
            lines.append("  second chance     a flow that this server does not know "
                         "goes back from there, and on to the server that "
                         "has it")
        if s["service"].startswith("UDP ") and s["phase"] in _PLAIN_UDP and \
                not s.get("stays"):
            lines.append(f"  {_PLAIN_UDP[s['phase']]}")
        parts.append("\n".join(part for line in lines
                               for part in wrap(line, room.width)))
    return "\n".join(few(parts, room.rows, len(parts), "service(s)"))
