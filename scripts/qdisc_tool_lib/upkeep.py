# SPDX-License-Identifier: GPL-2.0-only
"""setup, clear, release, check and status of a gate, and the commands that
make and remove one: all but the hold itself."""

import os
import time

from . import flower, foreign, hold, share
from .errors import ToolError, words
from .gate import PLUG_HANDLE, PLUG_KIND, has_clsact
from .netlink import Netlink
from .plug import Plug
from .system import may_administer, run, succeeds

# For others who begin or end a hold.
_LOCK_WAIT_S = 3.0
_SOON_S = 1.0


# ---------------------------------------------- commands of ip and tc
# Nothing runs by being built here, so --dry-run prints what would be run.

def _plug(gate, verb, slot=""):
    """A command for the plug."""
    return (f"tc qdisc {verb} dev {gate.plug_device} root handle "
            f"{PLUG_HANDLE >> 16:x}: {PLUG_KIND} limit "
            f"{gate.queue_packets} {slot}").split()


def shut_command(gate, max_hold_ms):
    return _plug(gate, "change", f"slot {max_hold_ms}ms")


def open_commands(gate):
    """(What waits goes with the next packet, see plug.py.)"""
    packet = (f"import socket; s = socket.socket(socket.AF_PACKET, "
              f"socket.SOCK_RAW); s.bind(('{gate.plug_device}', 0)); "
              "s.send(bytes(12) + b'\\x88\\xb5' + bytes(46))")
    return [_plug(gate, "change", "slot 0"), ["python3", "-c", packet]]


def _before_plug(gate):
    """What setup runs before the plug can be added."""
    ifb = gate.plug_device
    # Asked for by name, the module makes two devices that nobody wants.
    return [*([] if os.path.exists("/sys/module/ifb") else
              ["modprobe ifb numifbs=0".split()]),
            f"ip link add {ifb} type ifb".split(),
            [*f"ip link set {ifb} addrgenmode none alias".split(),
             f"qdisc_tool for {gate.device}"]]


def _after_plug(gate):
    """What setup runs once the plug is there and open."""
    return [f"ip link set {gate.plug_device} up".split(),
            *_clsact(gate, "add")]


def _clsact(gate, verb):
    """If it is the gate's own."""
    return [f"tc qdisc {verb} dev {gate.device} clsact".split()] \
        if gate.own_clsact else []


def clear_commands(gate):
    """The way back, in an order that loses nothing: what leads to the plug,
    then (the plug being open and empty) the plug."""
    return [*_clsact(gate, "del"), f"ip link del {gate.plug_device}".split()]


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
    found_out = ("own_clsact", "plug_ifindex", "filters", "complete")
    if any(getattr(gate, name) != getattr(old, name)
           for name in gate.FIELDS if name not in found_out):
        raise ToolError(f"{gate.device} is set up with other options, and has "
                        "one set-up at a time; run "
                        f"'qdisc_tool clear --device {gate.device}' first")
    return old, True


def _refuse(gate, netlink):
    """ToolError if something of others stands in the way."""
    found = foreign.in_the_way(gate, netlink)
    if found:
        raise ToolError("; ".join(found) + "; nothing was changed")


def setup(state, gate, reporter):
    """Make a gate, whole or not at all; a second time changes nothing."""
    netlink = Netlink()
    _complete(state, gate, netlink)    # where it cannot be, nothing is written
    os.makedirs(state.directory, exist_ok=True)
    lock_fd = state.must_lock(gate.device, _LOCK_WAIT_S)
    try:
        old, made = _complete(state, gate, netlink)
        if made:
            reporter.note(f"{gate.device} is set up already")
            return
        if old:
            _clear(state, old, netlink, reporter)
            _complete(state, gate, netlink)
        _refuse(gate, netlink)
        # Kept first, so that a setup that is killed can be undone later.
        state.save(gate)
        _make(state, gate, netlink)
    finally:
        os.close(lock_fd)
    reporter.note(f"{gate.device} is set up, with room "
                  f"for {gate.limit_packets} packets")
    sentence = foreign.port_of(gate, netlink)
    if sentence:
        reporter.warn(sentence)


def _make(state, gate, netlink):
    made = False
    try:
        for command in _before_plug(gate):
            if command[0] == "modprobe":
                succeeds(command)      # ip link add may load it, too
            else:
                run(command)
                made = True
        gate.plug_ifindex = netlink.link(gate.plug_device).ifindex
        Plug(gate).create()
        for command in _after_plug(gate):
            run(command)
        _try_filters(gate, netlink)
        gate.complete = True
        state.save(gate)
    except (ToolError, OSError) as error:
        for command in clear_commands(gate) if made else []:
            succeeds(command)
        state.forget(gate.device)
        raise ToolError(f"{gate.device}: {words(error)}; nothing was changed"
                        ) from error


def _try_filters(gate, netlink):
    """Put in what a hold will put in, and take it out again."""
    gate.filters = [message.hex() for message in flower.messages(gate)]
    try:
        hold.add_filters(gate, netlink)
    finally:
        hold.remove_filters(gate, netlink)


def planned(state, gate):
    """What setup would run, for --dry-run."""
    netlink = Netlink()
    if _complete(state, gate, netlink)[1]:
        return []
    _refuse(gate, netlink)
    return [*_before_plug(gate), _plug(gate, "add"), *_after_plug(gate)]


# ----------------------------------------------------------- clear, release

def release(state, gate):
    """End a hold from outside: open first, ask later."""
    plug = Plug(gate)
    try:
        hold.let_go(plug)
    except OSError:
        pass                       # said below, if there is one
    # One that begins just now comes to its end first.
    lock_fd = state.lock(gate.device, _SOON_S) or \
        state.break_lock(gate.device)
    try:
        _end_hold(state, plug, "release")
    except OSError as error:
        if gate.find_plug(Netlink()):
            raise ToolError(f"{gate.device}: cannot open the plug: {error}"
                            ) from error
    finally:
        if lock_fd is not None:
            os.close(lock_fd)


def _end_hold(state, plug, cause):
    try:
        hold.release(plug)
    finally:
        share.remove(state, plug.gate.device, cause)


def clear(state, device, reporter):
    """Take a gate away, and lose nothing that it holds."""
    gate = state.load(device)
    if gate is None:
        reporter.note(f"{device} is not set up; nothing to clear")
        return
    release(state, gate)
    lock_fd = state.must_lock(device, _LOCK_WAIT_S)
    try:
        gate = state.load(device)  # it may have changed before the lock
        if gate:
            _clear(state, gate, Netlink(), reporter)
    finally:
        os.close(lock_fd)


def _clear(state, gate, netlink, reporter):
    try:
        _end_hold(state, Plug(gate), "clear")
    except (ToolError, OSError):
        pass                       # partly gone: problems() said so
    device = netlink.link(gate.device)
    if device is None or device.ifindex != gate.ifindex:
        gate.own_clsact = False    # it went with its device
    elif gate.own_clsact and foreign.clsact_in_use(gate, netlink):
        reporter.warn(f"{gate.device}: clsact stays, since others have put "
                      "filters there meanwhile")
        gate.own_clsact = False
    for command in clear_commands(gate):
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
    for problem in gate.problems(netlink) or _left_behind(
            state, gate, netlink)[1]:
        yield "error", problem
    sentence = state.unwritable(gate.device)
    if sentence:
        yield "error", sentence
    for sentence in foreign.programs(gate):
        yield "error", sentence
    for sentence in (*foreign.filters(gate, netlink),
                     foreign.port_of(gate, netlink),
                     None if hold.Hold(gate).is_served() else
                     hold.NOBODY_LISTENS):
        if sentence:
            yield "advice", sentence


def _left_behind(state, gate, netlink):
    """(what is known of a hold that goes on, or None; what keeps it from its
    end)"""
    if not may_administer():
        return {} if gate.filters_there(netlink) else None, []
    try:
        lock_fd = state.lock(gate.device, _SOON_S)
    except OSError as error:
        return None, [words(error)]
    if lock_fd is None:
        return None, [f"{gate.device}: a process that begins or ends a hold, "
                      "or a setup, has its lock and does not go on: run "
                      "'qdisc_tool release'"]
    try:
        facts, abandoned = share.found(state, gate.device)
        if facts and not abandoned:
            return facts, []
        plug = gate.find_plug(netlink)
        if not facts and not (plug and plug.qlen) and \
                not gate.filters_there(netlink):
            return None, []
    finally:
        os.close(lock_fd)
    return None, [f"a hold of {gate.device} was left behind (its processes "
                  "were killed or stopped): it delays each new connection by "
                  "up to --max-hold; run 'qdisc_tool release'"]


def status(state, gate):
    """What can be known about a gate; of a hold root alone knows who has a part
    in it, and so whether it was left behind."""
    netlink = Netlink()
    plug = gate.find_plug(netlink)
    problems, facts = gate.problems(netlink), None
    condition = "broken"
    if not problems:
        facts, problems = _left_behind(state, gate, netlink)
        condition = ("stuck" if problems else
                     "released" if facts is None else "holding")
    now = time.monotonic()
    return {"condition": condition, "problems": problems,
            "waiting": plug.qlen if plug else 0,
            "dropped": plug.drops if plug else 0,
            "hold": facts and {
                "sharers": facts["shares"],
                "held_for_ms": round(1000 * (now - facts["began"])),
                "ends_in_ms": round(1000 * (facts["until"] - now))},
            **vars(gate)}
