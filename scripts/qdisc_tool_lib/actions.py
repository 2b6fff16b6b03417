# SPDX-License-Identifier: GPL-2.0-only
"""Every command but 'protect', and what --dry-run prints.

A function has the name of its command, takes the Tool of cli.py, and returns
the exit status.
"""

import json

from . import flower, upkeep
from .config import read_config
from .errors import EXIT_FAILED, EXIT_OK, EXIT_PROBLEM, ToolError
from .holder import Holder
from .lane import UNTIL_ACCEPTED, Lane
from .options import DEFAULT_CONFIG
from .system import quoted


def _each(tool, items, function):
    """Do it for every one, also behind one that fails; exit status."""
    status = EXIT_OK
    for item in items:
        try:
            function(item)
        except (ToolError, OSError) as error:
            tool.reporter.warn(str(error))
            status = EXIT_FAILED
    return status


def _show(tool, commands):
    prefix = tool.namespace.prefix if tool.namespace else []
    for argv in commands:
        print(quoted(prefix + argv))


def show_begin(tool, lanes):
    """What would begin a hold."""
    for lane in lanes:
        _show(tool, [*flower.commands(lane), upkeep.shut_command(
            lane, tool.options.max_hold_ms or lane.max_hold_ms)])
    return EXIT_OK


def show_end(tool, lanes):
    for lane in lanes:
        _show(tool, [upkeep.open_command(lane),
                     *flower.removal_commands(lane)])
    return EXIT_OK


def setup(tool):
    requests = [tool.options] if tool.options.device else read_config(
        tool.options.config or DEFAULT_CONFIG)
    lanes = [lane for request in requests for lane in _lanes_of(request)]
    if tool.options.dry_run:
        return _each(tool, lanes,
                     lambda lane: _show(tool, upkeep.planned(
                         tool.state, lane)))
    return _each(tool, lanes, lambda lane: upkeep.setup(
        tool.state, lane, tool.reporter))


def _lanes_of(options):
    """The lanes one set of setup options describes."""
    for device in options.device:
        values = {name: getattr(options, name) for name in Lane.FIELDS
                  if hasattr(options, name)}
        values.update(
            device=device,
            mode=options.mode or ("egress" if device == "lo" else "ingress"))
        if options.settle_ms is None:
            values["settle_ms"] = UNTIL_ACCEPTED
        yield Lane(**values)


def clear(tool):
    if tool.options.dry_run:
        for lane in tool.lanes():
            _show(tool, [upkeep.open_command(lane),
                         *upkeep.clear_commands(lane)])
        return EXIT_OK
    devices = tool.options.device or [lane.device for lane in tool.lanes()]
    status = _each(tool, devices, lambda device: upkeep.clear(
        tool.state, device, tool.reporter))
    tool.backlog.restore()
    return status


def hold(tool):
    lanes = tool.some_lanes()
    if tool.options.dry_run:
        return show_begin(tool, lanes)
    holders = []
    try:
        for lane in lanes:
            holder = Holder(tool.state, lane, tool.backlog)
            holder.acquire(tool.options.max_hold_ms or lane.max_hold_ms,
                           keep=True)
            holders.append(holder)
    except (ToolError, OSError):
        for holder in holders:     # all or none
            upkeep.release(tool.state, holder.lane)
        raise
    for holder in holders:
        holder.detach()
    return EXIT_OK


def release(tool):
    lanes = tool.lanes()
    if tool.options.dry_run:
        return show_end(tool, lanes)
    status = _each(tool, lanes,
                   lambda lane: upkeep.release(tool.state, lane))
    tool.backlog.restore()
    return status


def status(tool):
    states = [upkeep.status(tool.state, lane) for lane in tool.lanes()]
    if tool.options.json:
        print(json.dumps(states))
    else:
        for state in states:
            _print_status(state)
        if not states:
            print("nothing is set up")
    return (EXIT_PROBLEM if any(state["problems"] for state in states)
            else EXIT_OK)


def _print_status(state):
    what = "packets" if state["all_packets"] else "new connections"
    to = ", ".join(state["addresses"]) or "any address"
    ports = ", ".join(state["ports"]) or "any"
    print(f"{state['device']}: {state['condition']} ({state['mode']})")
    print(f"  holds {what} to {to}, ports {ports}")
    print(f"  room for {state['limit_packets']} packets, {state['waiting']} "
          f"wait, {state['dropped']} were dropped")
    if state["watchdog"]:
        print("  held for {held_for_ms} ms by {sharers}, at most "
              "{ends_in_ms} ms more".format(**state["watchdog"]))
    for problem in state["problems"]:
        print(f"  {problem}")


def check(tool):
    found = [{"device": lane.device, "severity": severity, "text": text}
             for lane in tool.some_lanes()
             for severity, text in upkeep.check(tool.state, lane,
                                                tool.backlog)]
    if tool.options.json:
        print(json.dumps(found))
    else:
        for item in found:
            print(f"{item['device']}: {item['severity']}: {item['text']}")
        if not found:
            tool.reporter.note("a hold would work")
    return (EXIT_PROBLEM if any(item["severity"] == "error"
                                for item in found) else EXIT_OK)
