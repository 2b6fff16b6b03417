# SPDX-License-Identifier: GPL-2.0-only
"""Set-ups that are wrong, and that no packet tells from one that is right: each
with its cause and its remedy, for check."""

from ipvs_mhs_tool import quoted

from .address import endpoint
from .finding import MHS, Finding, asking, few, known, named
from .proc import name_of
from .text import duration

_CLIENT_MTU = 1500
_HOLD_MS = 60_000
# seconds of TCP and UDP, as the kernel has them by default
_IDLE_MS = {"TCP": 900_000, "UDP": 300_000}
BEGUN = 5      # connections that say something
_ENTRIES = 1000
_PIN_MS = 3_600_000


def _by_service(facts):
    """Addresses and weights."""
    for _, core in known(facts):
        name = core.name
        if not name.startswith("FWM "):
            address = str(endpoint(name.split()[1])[0])
            route = facts.virtual.get(address)
            if route is None or route.type != "local":
                yield Finding(
                    "no-address", name, (), f"no packet comes here, because "
                    f"{address} is no address of this host",
                    f"ip addr add {address} dev lo, and a route to it through "
                    "this host; none while another director has the address")
        masq = [s for s in core.servers if s.method == "Masq"]
        if "ops" in core.flags and masq:
            yield Finding(
                "ops-masquerading", name, tuple(s.name for s in masq),
                f"clients get no answer of {named([s.name for s in masq])}, because "
                "with one-packet scheduling (-o) no entry is there that says whose "
                "reply it is, which masquerading (-m) needs",
                "ipvsadm -E without -o, or servers by -g or -i")
        weighted = [s for s in core.servers if s.weight]
        # a mark may have a service of each family
        for which in {s.which: None for s in core.servers}:
            those = [s for s in core.servers if s.which == which]
            if not any(s.weight for s in those):
                yield Finding(
                    "no-weight", name, (), "clients are refused, because every server "
                    "has the weight 0", quoted(those[0].editing(1)))
        sorry = [s for s in weighted if s.address.is_loopback or
                 s.name in facts.sorry]
        if sorry and len(sorry) < len(weighted):
            yield Finding(
                "sorry-server", name, tuple(s.name for s in sorry),
                f"{named([s.name for s in sorry])} gets connections beside the "
                "real ones, and is a sorry server: on the loopback address, or "
                "called so in keepalived's file", "; ".join(
                    quoted(s.deletion()) for s in sorry))


def _by_arrivals(facts):
    """What is before the services."""
    for _, core in known(facts):
        came, counted = (facts.came or {}).get(core.name, (0, 0))
        if came >= BEGUN and 2 * counted < came and \
                any(s.weight for s in core.servers) and \
                not any(s.limits or s.method == "Masq" for s in core.servers):
            yield Finding(
                "lost", core.name, (), f"of {came} packets that came to this host the "
                f"service got {counted}, because something here drops or "
                "diverts the others: a firewall, tc, 'ip rule', a route, rp_filter",
                "a firewall accepts the port in its chain input without a condition of "
                "conntrack ('nft list ruleset'); 'tc filter show dev DEVICE ingress', "
                "'ip rule', 'nstat -az TcpExtIPReversePathFilter'")
    for address, owner in facts.owners.items():
        yield Finding(
            "two-owners", None, (), f"packets to {address} may go past this host, "
            f"because {owner} answers ARP for it, too: another director, a server "
            "without arp_ignore, or a stranger",
            "take the address there from that device ('real_server check' on servers), "
            f"then arping -U -I {owner.split()[-1]} {address} here, which tells routers")
    if facts.chains and facts.came is not None and facts.services and not any(
            came >= BEGUN for came, _ in facts.came.values()):
        yield Finding(
            "firewall", None, (), "packets to services pass "
            + few([f"chain {chain} of {table}" for table, chain in facts.chains]) +
            ", which drops what no rule accepts", "none if a rule accepts the ports of "
            "the services, without a condition of conntrack: nft list chain " +
            " ".join(facts.chains[0]))


def _is_silent(server):
    """Have its connections a first packet and no other, since the counts began or
    now?  Every SYN counts as a connection."""
    begun, packets, begun_now, packets_now, out = server.counts
    if server.method == "Masq":
        return begun >= BEGUN and not out
    return begun >= BEGUN and 10 * packets <= 11 * begun or \
        begun_now > 1 and packets_now <= begun_now


def _by_answers(facts):
    """Servers that answer no connection."""
    for _, core in known(facts):
        found = [s for s in core.servers if _is_silent(s)]
        if found and core.name.startswith("TCP "):
            names = [s.name for s in found]
            every = len(names) == len(core.servers)
            yield Finding(
                "no-answer", core.name, tuple(names), f"{named(names)} answer"
                f"{'s' * (len(names) == 1)} no connection: they are begun and not continued "
                f"(of {sum(s.counts[0] for s in found)}), because the server has not the "
                f"address {core.name.split()[1]}, or no program there, or drops the packets, "
                "or is down, or its answers do not come to clients" + (
                    ", or a firewall of this host drops what it gets or sends, or all are "
                    "forged (a SYN flood)" if every else ""),
                ("'nft list ruleset' here; " if every else "") +
                (f"'{asking(core, found[0])}' on the server" if found[0].method != "Masq" else
                 "the server's way to clients must lead here: ip route replace default "
                 "via an address of this host; and where rules here ask for a state (ct "
                 "state) or have source NAT (masquerade): sysctl -w "
                 "net.ipv4.vs.conntrack=1") + "; then 'ipvsadm -Z' "
                "begins the counts anew, which are some seconds old")


def _by_mtu(facts):
    """Packets that do not fit on the way to a server without a tunnel."""
    for _, core in known(facts):
        small = {}
        for server in core.servers:
            route = facts.routes.get(server.host)
            if server.method == "Tunnel" or route is None or \
                    route.type == "local" or route.device not in facts.links:
                continue
            mtu = route.mtu or facts.links[route.device].mtu
            if mtu < _CLIENT_MTU:
                small.setdefault((route.device, mtu), []).append(server.name)
        for (device, mtu), names in small.items():
            yield Finding(
                "mtu", core.name, tuple(names), f"packets of more than "
                f"{mtu} bytes do not reach {named(names)}, because the MTU of "
                f"{device} or of the route is lower than that of clients: where "
                "ICMP is filtered their uploads hang",
                f"ip link set {device} mtu {_CLIENT_MTU}, if the network carries "
                "it, or advmss on the servers' routes")


# sysctl: what it does when it is not 0
_DEFENCES = {
    "drop_entry": "the kernel drops entries of unfinished connections at random",
    "drop_packet": "the kernel drops packets of new connections at random",
    "secure_tcp": "the kernel forgets connections earlier",
}


def _by_host(facts):
    """What one host cannot be, and limits that leave no entry."""
    masq = [(core.name, s.name) for _, core in known(facts)
            for s in core.servers if s.method == "Masq" and
            facts.forwards.get(s.address.version) == 0]
    if masq:
        yield Finding(
            "ip-forward", None, (), f"clients of {masq[0][0]} get no answer, because "
            f"replies of {few([name for _, name in masq])} by masquerading are "
            "forwarded, and ip_forward (for IPv6 forwarding) is 0",
            "sysctl -w net.ipv4.ip_forward=1 (net.ipv6.conf.all.forwarding=1)")
    for _, core in known(facts):
        own = [s.name for s in core.servers if s.host in facts.virtual]
        if own:
            yield Finding(
                "own-address", core.name, tuple(own), f"{named(own)} is this "
                "director, because the address is a virtual one",
                "; ".join(quoted(s.deletion()) for s in core.servers
                          if s.name in own))
    for limit in ("max_entries", "max_quic_entries", "max_total_entries"):
        most = facts.sysctl(limit)
        if most is not None and most < _ENTRIES and facts.services:
            yield Finding(
                "few-entries", None, (), "flows break in a change of servers, because "
                f"{MHS}{limit} leaves room for {most} entries",
                f"sysctl -w {MHS}{limit}=262144")


def _by_times(facts):
    """Sysctls of the core and timeouts."""
    host = facts.host
    slow = [name for name in map(name_of, facts.services)
            if host.pin(name) > _PIN_MS]
    if slow:
        yield Finding(
            "slow", None, (), f"a change of servers of {few(slow)} lasts for "
            f"{duration(max(map(host.pin, slow)))}, and needs entries so long, "
            "because of pin_ms or 'ipvsadm --set'",
            f"sysctl -w {MHS}pin_ms=0 and ipvsadm --set 900 120 300")
    if host.hold_ms == 0 and facts.services:
        yield Finding(
            "hold-ms", None, (), f"a server that goes away for a moment costs "
            "entries, and plain UDP changes its server at once, because "
            f"{MHS}hold_ms is 0", f"sysctl -w {MHS}hold_ms={_HOLD_MS}")
    short = [name for name in map(name_of, facts.services)
             if not host.short(name) and
             host.idle(name) < _IDLE_MS.get(name.split()[0], 0)]
    if short:
        yield Finding(
            "timeouts", None, (), f"a flow of {few(short)} that is silent for "
            f"{duration(min(map(host.idle, short)))} is taken for ended and may "
            "change its server after a change of servers, because 'ipvsadm --set' "
            "is shorter than the kernel's default",
            "ipvsadm --set 900 120 300")
    for name, what in _DEFENCES.items():
        value = facts.sysctl(name)
        if value:
            yield Finding(
                name.replace("_", "-"), None, (), f"{what}" + (
                    "" if value == 3 else " when memory is short") +
                f", because net.ipv4.vs.{name} is {value}",
                f"sysctl -w net.ipv4.vs.{name}=0")
    if facts.backup and not facts.sysctl("lane"):
        yield Finding(
            "sync-backup", None, (), "every packet is looked up in the connection "
            "table, because a sync daemon runs as backup and may put entries "
            "there", "none, where flows of a change are to survive a failover; else "
            "ipvsadm --stop-daemon backup")


def _by_scheduler(facts):
    """Services of the kernel's own mh, or of others where none is of mhs."""
    ours = {name_of(s) for s in facts.services}
    others = {name: core.scheduler for name, core in facts.core.items()
              if name not in ours}
    found = [] if "mh" in facts.names else [
        name for name, scheduler in others.items() if scheduler == "mh"]
    if not found and not ours:
        yield Finding(
            "no-service", None, (), "mhs forwards nothing, because no service has it" +
            (f", but {few([f'{n} has {s}' for n, s in others.items()])}" if others
             else ""), "'lb_algo mh' in keepalived's file, which does not know mhs, and "
            "names=mhs,mh for the module; or ipvsadm with -s mhs")
    if found:
        option = {"TCP": "-t", "UDP": "-u", "FWM": "-f"}
        protocol, where = found[0].split()
        yield Finding(
            "kernel-mh", None, (), f"{few(found)} has the kernel's own scheduler "
            "mh, which keeps an entry for each connection and moves connections "
            "in a change", f"ipvsadm -E {option.get(protocol, '--sctp-service')} "
            f"{where} -s mhs, if mhs was meant (with names=mhs,mh the module "
            "answers for mh)")


PARTS = (_by_service, _by_arrivals, _by_answers, _by_mtu, _by_host, _by_times, _by_scheduler)
