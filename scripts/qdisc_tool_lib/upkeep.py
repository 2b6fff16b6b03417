# SPDX-License-Identifier: GPL-2.0-only
"""setup, clear, release, check and status of a lane, and the commands that
make and remove one: all but the hold itself."""

import os
import signal
import time

from . import flower, foreign, hold
from .errors import ToolError
from .holder import Silent, ask
from .lane import (PLUG_HANDLE, PLUG_KIND, PRIO_HANDLE, REST_CLASS,
                   REST_HANDLE, has_clsact)
from .listeners import Listeners
from .netlink import TC_H_ROOT, Netlink, handle_text
from .plug import Plug
from .system import run, succeeds

# clear and setup wait this long for a hold to end.
_LOCK_WAIT_S = 3.0
_DRAIN_S = 2.0
# The rest of the traffic went through no queue at all before, so nothing may
# ever be dropped from the one it gets: as much as 100 Gbit/s in 10 ms.
_REST_LIMIT_PACKETS = 100_000


# ---------------------------------------------- commands of ip and tc
# Nothing runs by being built here, so --dry-run prints what would be run.

def _plug(lane, verb, slot=""):
    """A command for the plug."""
    parent = "root" if lane.plug_parent == TC_H_ROOT else \
        f"parent {handle_text(lane.plug_parent)}"
    return (f"tc qdisc {verb} dev {lane.plug_device} {parent} handle "
            f"{handle_text(PLUG_HANDLE)} {PLUG_KIND} limit "
            f"{lane.queue_packets} {slot}").split()


def shut_command(lane, max_hold_ms):
    return _plug(lane, "change", f"slot {max_hold_ms}ms")


def open_command(lane):
    """(What waits goes with the next packet, see plug.py.)"""
    return _plug(lane, "change", "slot 0")


def _before_plug(lane):
    """What setup runs before the plug can be added."""
    if lane.mode == "ingress":
        ifb = lane.plug_device
        # Asked for by name, the module makes two devices that nobody wants.
        return [*([] if os.path.exists("/sys/module/ifb") else
                  ["modprobe ifb numifbs=0".split()]),
                f"ip link add {ifb} type ifb".split(),
                [*f"ip link set {ifb} addrgenmode none alias".split(),
                 f"qdisc_tool for {lane.device}"]]
    # Everything but the plug in one band: traffic that was in no queue must
    # not begin to overtake itself by its type of service.
    add = f"tc qdisc add dev {lane.device}"
    return [f"{add} root handle {handle_text(PRIO_HANDLE)} prio bands 2 "
            f"priomap {'0 ' * 16}".split(),
            f"{add} parent {handle_text(REST_CLASS)} handle "
            f"{handle_text(REST_HANDLE)} pfifo limit {_REST_LIMIT_PACKETS}"
            .split()]


def _after_plug(lane):
    """What setup runs once the plug is there and open."""
    if lane.mode == "egress":
        return []
    return [f"ip link set {lane.plug_device} up".split(),
            *_clsact(lane, "add")]


def _clsact(lane, verb):
    """If it is the lane's own."""
    return [f"tc qdisc {verb} dev {lane.device} clsact".split()] \
        if lane.own_clsact else []


def clear_commands(lane):
    """The way back, in an order that loses nothing: what leads to the plug,
    then (the plug being open and empty) the plug."""
    if lane.mode == "egress":
        return [f"tc qdisc del dev {lane.device} root handle "
                f"{handle_text(PRIO_HANDLE)}".split()]
    return [*_clsact(lane, "del"), f"ip link del {lane.plug_device}".split()]


# ------------------------------------------------------------------- setup

def complete(lane, netlink):
    """Fill in what depends on the host; ToolError if it cannot work here."""
    device = netlink.link(lane.device)
    if device is None:
        raise ToolError(f"no device {lane.device!r} here; 'ip link' lists "
                        "those of this network namespace")
    lane.ifindex = device.ifindex
    if lane.mode == "ingress" and lane.device == "lo":
        raise ToolError("lo has no ingress worth the name: use --mode egress")
    sentence = foreign.unfit(lane, netlink)
    if sentence:
        raise ToolError(sentence)
    lane.own_clsact = lane.mode == "ingress" and not has_clsact(lane, netlink)


def _is_made(old, lane, netlink):
    """Whether the lane is there already; ToolError if it is a different one,
    False if it is there in part."""
    if old is None or old.problems(netlink):
        return False
    found_out = ("own_clsact", "plug_ifindex", "filters", "complete")
    if any(getattr(lane, name) != getattr(old, name)
           for name in lane.FIELDS if name not in found_out):
        raise ToolError(f"{lane.device} is set up with other options, and has "
                        "one set-up at a time; run "
                        f"'qdisc_tool clear --device {lane.device}' first")
    return True


def setup(state, lane, reporter):
    """Make a lane, whole or not at all; a second time changes nothing."""
    netlink = Netlink()
    complete(lane, netlink)
    state.prepare()
    if _is_made(state.load(lane.device), lane, netlink):
        reporter.note(f"{lane.device} is set up already")
        return
    lock_fd = state.lock(lane.device, _LOCK_WAIT_S)
    if lock_fd is None:
        raise ToolError(f"{lane.device} is busy: a hold or another setup goes "
                        "on; try again")
    try:
        old = state.load(lane.device)
        if _is_made(old, lane, netlink):
            return                 # by somebody else, just now
        if old:
            _clear(state, old, netlink, reporter)
            complete(lane, netlink)
        found = foreign.in_the_way(lane, netlink)
        if found:
            raise ToolError("; ".join(found) + "; nothing was changed")
        # Kept first, so that a setup that is killed can be undone later.
        state.save(lane)
        _make(state, lane, netlink)
    finally:
        os.close(lock_fd)
    reporter.note(f"{lane.device} is set up: {lane.mode}, room "
                  f"for {lane.limit_packets} packets")
    sentence = foreign.port_of(lane, netlink)
    if sentence:
        reporter.warn(sentence)


def _make(state, lane, netlink):
    made = False
    try:
        for command in _before_plug(lane):
            if command[0] == "modprobe":
                succeeds(command)      # ip link add may load it, too
            else:
                run(command)
                made = True
        lane.plug_ifindex = netlink.link(lane.plug_device).ifindex
        Plug(lane).create()
        for command in _after_plug(lane):
            run(command)
        _try_filters(lane, netlink)
        lane.complete = True
        state.save(lane)
    except (ToolError, OSError) as error:
        for command in clear_commands(lane) if made else []:
            succeeds(command)
        state.forget(lane.device)
        raise ToolError(f"{lane.device}: {error}; nothing was changed"
                        ) from error


def _try_filters(lane, netlink):
    """Put in what a hold will put in, and take it out again."""
    lane.filters = [message.hex() for message in flower.messages(lane)]
    try:
        hold.add_filters(lane, netlink)
    finally:
        hold.remove_filters(lane, netlink)


def planned(state, lane):
    """What setup would run, for --dry-run."""
    netlink = Netlink()
    complete(lane, netlink)
    if _is_made(state.load(lane.device), lane, netlink):
        return []
    found = foreign.in_the_way(lane, netlink)
    if found:
        raise ToolError("; ".join(found))
    return [*_before_plug(lane), _plug(lane, "add"), *_after_plug(lane)]


# ----------------------------------------------------------- clear, release

def release(state, lane):
    """End a hold from outside: open first, ask later."""
    plug = Plug(lane)
    try:
        hold.open_plug(plug)
    except OSError:
        pass                       # said below, if there is one
    _end_watchdog(state, lane.device)
    # Whatever the watchdog did, or if there is none: the plug is open now.
    try:
        hold.release(plug)
    except OSError as error:
        if lane.find_plug(Netlink()):
            raise ToolError(f"{lane.device}: cannot open the plug: {error}"
                            ) from error


def _end_watchdog(state, device):
    """Ask it to end; kill one that does not answer, since a hold that is open
    needs none, and the next one the lock that it has."""
    try:
        ask(state, device, "release")
    except Silent as silent:
        if silent.pid:             # (not in a PID namespace that we cannot see)
            os.kill(silent.pid, signal.SIGKILL)


def clear(state, device, reporter):
    """Take a lane away, and lose nothing that it holds."""
    lane = state.load(device)
    if lane is None:
        reporter.note(f"{device} is not set up; nothing to clear")
        return
    release(state, lane)
    lock_fd = state.lock(device, _LOCK_WAIT_S)
    if lock_fd is None:
        raise ToolError(f"{device} is busy: a setup goes on, or hold after "
                        "hold; try again")
    try:
        lane = state.load(device)  # it may have changed before the lock
        if lane:
            _clear(state, lane, Netlink(), reporter)
    finally:
        os.close(lock_fd)


def _clear(state, lane, netlink, reporter):
    try:
        hold.release(Plug(lane))
    except (ToolError, OSError):
        pass                       # partly gone: problems() said so
    give_up = time.monotonic() + _DRAIN_S
    while time.monotonic() < give_up and any(
            qdisc.qlen for qdisc in netlink.qdiscs()
            if qdisc.ifindex in (lane.plug_ifindex, lane.ifindex) and
            qdisc.kind in (PLUG_KIND, "prio")):
        time.sleep(0.001)
    device = netlink.link(lane.device)
    if device is None or device.ifindex != lane.ifindex:
        lane.own_clsact = False    # it went with its device
    elif lane.own_clsact and foreign.clsact_in_use(lane, netlink):
        reporter.warn(f"{lane.device}: clsact stays, since others have put "
                      "filters there meanwhile")
        lane.own_clsact = False
    for command in clear_commands(lane):
        try:
            run(command)
        except ToolError as error:
            if not lane.problems(netlink):
                raise
            reporter.note(f"{error} (it was gone already)")
    state.forget(lane.device)


# ----------------------------------------------------------- check, status

def check(state, lane, backlog):
    """(severity, sentence) pairs about a lane; severity error or advice."""
    netlink = Netlink()
    for problem in lane.problems(netlink) or _left_behind(
            state, lane, netlink)[1]:
        yield "error", problem
    sentence = state.unwritable(lane.device)
    if sentence:
        yield "error", sentence
    for sentence in foreign.programs(lane):
        yield "error", sentence
    for sentence in (*foreign.filters(lane, netlink),
                     *foreign.early_programs(lane, netlink),
                     foreign.port_of(lane, netlink)):
        if sentence:
            yield "advice", sentence
    if not backlog.writable:
        yield ("advice", "net.core.netdev_max_backlog cannot be raised from "
               "here for the moment of a release; more held connections than "
               "it allows would be delayed by a second")
    shortest = _shortest_accept_queue(lane)
    if shortest is not None and shortest < lane.limit_packets:
        yield ("advice", f"a listener takes only {shortest} connections at "
               f"once, and {lane.limit_packets} may be held; raise its "
               "listen backlog and net.core.somaxconn if that many come "
               "during one reload")


def _shortest_accept_queue(lane):
    if lane.all_packets:
        return None
    try:
        listeners = Listeners()
        return min((length for port in lane.ports if port.isdigit()
                    for length in listeners.on_port(int(port)).values()),
                   default=None)
    except OSError:                # a kernel that cannot tell
        return None


def _left_behind(state, lane, netlink):
    """(what the watchdog answers, or None; what keeps a hold from its end)"""
    try:
        word, _, watchdog = ask(state, lane.device, "status") or ("", "", None)
    except Silent as silent:
        return None, [str(silent)]
    if word == "status":
        return watchdog, []
    # There is none, or it begins or ends just now and has the lock.
    try:
        lock_fd = state.lock(lane.device)
    except ToolError as error:
        return None, [str(error)]
    if lock_fd is None:
        return None, []
    os.close(lock_fd)
    plug = lane.find_plug(netlink)
    if plug and plug.qlen or any(
            preference in lane.preferences for preference, _ in
            netlink.filters(lane.ifindex, lane.filter_parent)):
        return None, [f"a hold of {lane.device} was left behind (its processes "
                      "were killed): it delays each new connection by up to "
                      "--max-hold; run 'qdisc_tool release'"]
    return None, []


def status(state, lane):
    """What can be known about a lane."""
    netlink = Netlink()
    plug = lane.find_plug(netlink)
    problems, watchdog = lane.problems(netlink), None
    condition = "broken"
    if not problems:
        watchdog, problems = _left_behind(state, lane, netlink)
        condition = ("stuck" if problems else "holding" if watchdog and
                     watchdog["holding"] else "released")
    return {"condition": condition, "problems": problems,
            "waiting": plug.qlen if plug else 0,
            "dropped": plug.drops if plug else 0,
            "watchdog": watchdog, **vars(lane)}
