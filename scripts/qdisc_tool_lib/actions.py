# SPDX-License-Identifier: GPL-2.0-only
"""Every command but 'protect': a function that has its name, takes the Tool of cli.py, and
returns the exit status."""

import json
import os
import socket
from contextlib import suppress

from . import flower, foreign
from .errors import EXIT_FAILED, EXIT_OK, EXIT_PROBLEM, ToolError, words
from .gate import Gate, has_clsact
from .hold import NOBODY_LISTENS, Hold, Plug, end_hold, is_served
from .listeners import Listeners, needless
from .netlink import Netlink
from .options import DEFAULT_CONFIG, read_config
from .state import Turn
from .system import run


def _each(tool, items, function):
    """Do it for every one, also behind one that fails; exit status."""
    status = EXIT_OK
    for item in items:
        try:
            function(tool, item)
        except (ToolError, OSError) as error:
            tool.reporter.warn(words(error))
            status = EXIT_FAILED
    return status


# ------------------------------------------------------------------- setup

def setup(tool):
    requests = [tool.options] if tool.options.device else read_config(
        tool.options.config or DEFAULT_CONFIG)
    return _each(tool, [Gate(**{**{name: value for name, value in vars(request).items()
                                   if name in Gate.__dataclass_fields__}, "device": device})
                        for request in requests for device in request.device], _set_up)


def _set_up(tool, gate):
    """Make a gate, whole or not at all; a second time changes nothing."""
    state, netlink = tool.state, Netlink()
    gate.ifindex = netlink.index_of(gate.device)
    if not gate.ifindex:
        raise ToolError(f"no device {gate.device!r} here; 'ip link' lists those of this "
                        "network namespace")
    name = socket.if_indextoname(gate.ifindex)
    if name != gate.device:
        raise ToolError(f"{gate.device!r} is another name of {name}: give that one")
    state.make_directory()
    turn = Turn(state, gate.device).take()
    try:
        old = state.load(gate.device)
        if old and not old.problems(netlink):
            if old.told() != gate.told():
                raise ToolError(f"{gate.device} is set up with other options, and has "
                                "one set-up at a time; run "
                                f"'qdisc_tool clear --device {gate.device}' first")
            tool.reporter.note(f"{gate.device} is set up already")
            return
        if old:
            _undo(tool, old, netlink)
            state.forget(old.device, "gate")
        gate.own_clsact = not has_clsact(gate, netlink)
        found = foreign.skipped(
            gate, netlink.filters(gate.ifindex), foreign.Nftables()) + [
            f"{gate.device} has a filter of somebody else at the preference {other}; give "
            "another --preference" for other in gate.filters_there(netlink)]
        if found:
            raise ToolError("; ".join(found) + "; nothing was changed")
        # Kept first, so that a setup that is killed can be undone later.
        state.save(gate)
        _make(state, gate, netlink, turn)
    finally:
        turn.leave()
        if state.load(gate.device) is None:
            state.forget(gate.device)          # the lock, too
    for text in foreign.before(gate, netlink):
        tool.reporter.warn(text)
    tool.reporter.note(f"{gate.device} is set up, with room for {gate.limit_packets} packets")


def _make(state, gate, netlink, turn):
    ifb, made = gate.plug_device, False
    try:
        if not os.path.exists("/sys/module/ifb"):
            # Asked for by name, the module makes two devices that nobody wants.
            with suppress(ToolError):
                run("modprobe ifb numifbs=0".split())
        run(f"ip link add {ifb} type ifb".split())
        made = True
        run([*f"ip link set {ifb} addrgenmode none alias".split(), f"qdisc_tool for {gate.device}"])
        gate.plug_ifindex = netlink.index_of(ifb)
        Plug(gate).create()
        run(f"ip link set {ifb} up".split())
        if gate.own_clsact:
            run(f"tc qdisc add dev {gate.device} clsact".split())
        try:                       # what a hold will put in
            flower.prepare(gate, turn)
            flower.lead(gate, netlink, 0.0)
        finally:
            flower.remove(gate, netlink)
        if turn.is_lost:
            raise ToolError("'clear' was called meanwhile")
        state.save(gate)
    except (ToolError, OSError) as error:
        for command in _clear_commands(gate, gate.device) if made else []:
            with suppress(ToolError):
                run(command)
        state.forget(gate.device)
        raise ToolError(f"{gate.device}: {words(error)}; nothing was changed") from error


# ------------------------------------------------------------------- clear

def clear(tool):
    """Take gates away, and lose nothing that they hold."""
    return _each(tool, tool.options.device or [gate.device for gate in tool.gates()], _clear)


def _clear(tool, device):
    gate = tool.state.load(device)
    if gate is None:
        tool.reporter.note(f"{device} is not set up; nothing to clear")
        return
    turn = Turn(tool.state, device).seize()
    try:
        _undo(tool, gate, Netlink())
        tool.state.forget(device)
    finally:
        turn.leave()


def _clear_commands(gate, name):
    """The way back, in an order that loses nothing: what leads to the plug,
    then (the plug being open and empty) the plug."""
    return [*([f"tc qdisc del dev {name} clsact".split()] if gate.own_clsact else []),
            f"ip link del {gate.plug_device}".split()]


def _undo(tool, gate, netlink):
    with suppress(ToolError, OSError):     # partly gone: problems() said so
        end_hold(Plug(gate))
    name = dict(socket.if_nameindex()).get(gate.ifindex)       # another one, perhaps
    if not name:
        gate.own_clsact = False    # it went with its device
    elif gate.own_clsact and foreign.clsact_in_use(gate, netlink):
        tool.reporter.warn(f"{gate.device}: clsact stays, since others have put "
                           "filters there meanwhile")
        gate.own_clsact = False
    for command in _clear_commands(gate, name):
        with suppress(ToolError):
            run(command)
    if netlink.index_of(gate.plug_device):
        raise ToolError(f"{gate.device}: 'ip link del {gate.plug_device}' fails")


# ----------------------------------------------------------- hold, release

def hold(tool):
    begun, turns = [], []
    # in the order of protect, or two callers might wait for each other
    gates = sorted(tool.gates(some=True), key=lambda gate: gate.device)
    try:
        for gate in gates:
            turns.append(Turn(tool.state, gate.device).take(turns))
        for gate, turn in zip(gates, turns):
            gate.max_hold_ms = tool.options.max_hold_ms or gate.max_hold_ms
            Hold(gate, turn).begin("hold")
            begun.append(gate)
    except BaseException:
        for gate in begun:         # all or none
            _release(tool, gate)
        raise
    finally:
        for gate, turn in zip(gates, turns):
            turn.leave(keep=gate in begun)
    return EXIT_OK


def release(tool):
    return _each(tool, tool.gates(), _release)


def _release(tool, gate):
    """End a hold from outside, whoever began it."""
    turn = Turn(tool.state, gate.device).seize()
    try:
        end_hold(Plug(gate))
    finally:
        turn.leave()


# ----------------------------------------------------------- status, check

def status(tool):
    states = [_status(tool.state, gate) for gate in tool.gates()]
    if tool.options.json:
        print(json.dumps(states))
    else:
        for state in states:
            _print_status(state)
        if not states:
            print("nothing is set up")
    return (EXIT_PROBLEM if any(state["problems"] for state in states) else EXIT_OK)


def _status(state, gate):
    """What can be known about a gate."""
    netlink = Netlink()
    plug, problems = gate.find_plug(netlink), gate.problems(netlink)
    holder = state.holder(gate.device) if not problems and gate.filters_there(netlink) else None
    return {"condition": "broken" if problems else "holding" if holder else "released",
            "problems": problems,
            "waiting": plug.qlen if plug else 0, "dropped": plug.drops if plug else 0,
            "hold": {"command": holder[0], "ends_in_ms": round(1000 * holder[1])}
            if holder else None,
            **vars(gate)}


def _print_status(state):
    what = "packets" if state["all_packets"] else "new connections"
    to = ", ".join(state["addresses"]) or "any address"
    ports = ", ".join(state["ports"]) or "any"
    print(f"{state['device']}: {state['condition']}\n"
          f"  holds {what} to {to}, ports {ports}\n"
          f"  room for {state['limit_packets']} packets, {state['waiting']} "
          f"wait, {state['dropped']} were dropped")
    if state["hold"]:
        print("  held by '{command}', at most {ends_in_ms} ms more".format(**state["hold"]))
    for problem in state["problems"]:
        print(f"  {problem}")


def check(tool):
    found = [{"device": gate.device, "severity": severity, "text": text}
             for gate in tool.gates(some=True)
             for severity, texts in _findings(tool.state, gate) for text in texts]
    if tool.options.json:
        print(json.dumps(found))
    else:
        for item in found:
            print(f"{item['device']}: {item['severity']}: {item['text']}")
        if not found:
            tool.reporter.note("a hold would work")
    return (EXIT_PROBLEM if any(item["severity"] == "error" for item in found) else EXIT_OK)


def _findings(state, gate):
    """(severity, sentences) pairs about a gate."""
    netlink = Netlink()
    yield "error", gate.problems(netlink) + Turn(state, gate.device).problems() + \
        foreign.skipped(gate, netlink.filters(gate.ifindex), foreign.Nftables())
    served = is_served(gate, Listeners())
    yield "advice", foreign.before(gate, netlink) + needless() + \
        ([] if served else [NOBODY_LISTENS])
