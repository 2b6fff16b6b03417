# SPDX-License-Identifier: GPL-2.0-only
"""setup, clear, release, check and status of a gate: all but the hold itself."""

import os
from contextlib import suppress

from . import flower, foreign, hold
from .errors import ToolError, words
from .gate import has_clsact
from .listeners import Listeners, needless
from .netlink import Netlink, Nftables
from .plug import Plug
from .state import Turn
from .system import may_administer, run


# ------------------------------------------------------------------- setup

def _complete(state, gate, netlink):
    """Fill in what depends on the host; the old gate of the device, if there is one,
    and whether it is this one.  ToolError if that cannot work here."""
    device = netlink.link(gate.device)
    if device is None:
        raise ToolError(f"no device {gate.device!r} here; 'ip link' lists "
                        "those of this network namespace")
    gate.ifindex = device.ifindex
    sentence = foreign.unfit(device, netlink)
    if sentence:
        raise ToolError(sentence)
    gate.own_clsact = not has_clsact(gate, netlink)
    old = state.load(gate.device)
    if old is None or old.problems(netlink):
        return old, False
    found_out = ("own_clsact", "plug_ifindex", "complete")
    if any(getattr(gate, name) != getattr(old, name)
           for name in gate.FIELDS if name not in found_out):
        raise ToolError(f"{gate.device} is set up with other options, and has "
                        "one set-up at a time; run "
                        f"'qdisc_tool clear --device {gate.device}' first")
    return old, True


def setup(state, gate, reporter):
    """Make a gate, whole or not at all; a second time changes nothing."""
    netlink = Netlink()
    _complete(state, gate, netlink)    # where it cannot be, nothing is written
    state.make_directory()
    turn = Turn(state, gate.device).take()
    try:
        old, made = _complete(state, gate, netlink)
        if made:
            reporter.note(f"{gate.device} is set up already")
            return
        if old:
            _clear(state, old, netlink, reporter)
            _complete(state, gate, netlink)
        found = foreign.in_the_way(gate, netlink, Nftables())
        if found:
            raise ToolError("; ".join(found) + "; nothing was changed")
        # Kept first, so that a setup that is killed can be undone later.
        state.save(gate)
        _make(state, gate, netlink)
    finally:
        turn.leave()
        if state.load(gate.device) is None:
            state.forget(gate.device)          # the lock, too
    reporter.note(f"{gate.device} is set up, with room for {gate.limit_packets} packets")
    sentence = foreign.port_of(gate, netlink)
    if sentence:
        reporter.warn(sentence)


def _make(state, gate, netlink):
    ifb, made = gate.plug_device, False
    try:
        if not os.path.exists("/sys/module/ifb"):
            # Asked for by name, the module makes two devices that nobody wants.
            with suppress(ToolError):
                run("modprobe ifb numifbs=0".split())
        run(f"ip link add {ifb} type ifb".split())
        made = True
        run([*f"ip link set {ifb} addrgenmode none alias".split(),
             f"qdisc_tool for {gate.device}"])
        gate.plug_ifindex = netlink.link(ifb).ifindex
        Plug(gate).create()
        run(f"ip link set {ifb} up".split())
        if gate.own_clsact:
            run(f"tc qdisc add dev {gate.device} clsact".split())
        try:                       # what a hold will put in
            flower.add(gate, netlink, 0.0)
        finally:
            flower.remove(gate, netlink)
        gate.complete = True
        state.save(gate)
    except (ToolError, OSError) as error:
        for command in _clear_commands(gate, gate.device) if made else []:
            with suppress(ToolError):
                run(command)
        state.forget(gate.device)
        raise ToolError(f"{gate.device}: {words(error)}; nothing was changed") from error


# ----------------------------------------------------------- clear, release

def release(state, gate):
    """End a hold from outside, whoever began it."""
    turn = Turn(state, gate.device).seize()
    try:
        hold.release(Plug(gate))
    except OSError as error:
        if gate.find_plug(Netlink()):
            raise ToolError(f"{gate.device}: cannot open the plug: {error}") from error
    finally:
        turn.leave()


def clear(state, device, reporter):
    """Take a gate away, and lose nothing that it holds."""
    gate = state.load(device)
    if gate is None:
        reporter.note(f"{device} is not set up; nothing to clear")
        return
    turn = Turn(state, device).seize()
    try:
        _clear(state, gate, Netlink(), reporter)
    finally:
        turn.leave()


def _clear_commands(gate, name):
    """The way back, in an order that loses nothing: what leads to the plug,
    then (the plug being open and empty) the plug."""
    return [*([f"tc qdisc del dev {name} clsact".split()] if gate.own_clsact else []),
            f"ip link del {gate.plug_device}".split()]


def _clear(state, gate, netlink, reporter):
    with suppress(ToolError, OSError):     # partly gone: problems() said so
        hold.release(Plug(gate))
    device = netlink.link(ifindex=gate.ifindex)        # by another name, perhaps
    if device is None:
        gate.own_clsact = False    # it went with its device
    elif gate.own_clsact and foreign.clsact_in_use(gate, netlink):
        reporter.warn(f"{gate.device}: clsact stays, since others have put "
                      "filters there meanwhile")
        gate.own_clsact = False
    for command in _clear_commands(gate, device.name if device else gate.device):
        try:
            run(command)
        except ToolError as error:
            if not gate.problems(netlink):
                raise
            reporter.note(f"{error} (it was gone already)")
    state.forget(gate.device)


# ----------------------------------------------------------- check, status

def check(state, gate):
    """(severity, sentence) pairs about a gate; severity error or advice."""
    netlink = Netlink()
    for problem in gate.problems(netlink):
        yield "error", problem
    sentence = state.unwritable(gate.device)
    if sentence:
        yield "error", sentence
    for sentence in foreign.programs(gate):
        yield "error", sentence
    if not gate.past_firewalls:
        for sentence in foreign.behind(gate, netlink) + foreign.chains(gate, Nftables()):
            yield "error", sentence
    for sentence in (*foreign.before(gate, netlink), foreign.port_of(gate, netlink),
                     None if hold.is_served(gate, Listeners()) else hold.NOBODY_LISTENS,
                     *needless(gate.holds_port)):
        if sentence:
            yield "advice", sentence


def status(state, gate):
    """What can be known about a gate; without root a hold is seen by its filters."""
    netlink = Netlink()
    plug = gate.find_plug(netlink)
    problems = gate.problems(netlink)
    filters = not problems and gate.filters_there(netlink)
    holder = state.holder(gate.device) if filters else None
    holding = holder or filters and not may_administer()
    return {"condition": "broken" if problems else
            "holding" if holding else "released",
            "problems": problems,
            "waiting": plug.qlen if plug else 0,
            "dropped": plug.drops if plug else 0,
            "hold": {"command": holder[0], "ends_in_ms": round(1000 * holder[1])}
            if holder else {} if holding else None,
            **vars(gate)}
