# SPDX-License-Identifier: GPL-2.0-only
"""Every command but 'protect'.

A function has the name of its command, takes the Tool of cli.py, and returns
the exit status.
"""

import json

from . import upkeep
from .config import read_config
from .errors import EXIT_FAILED, EXIT_OK, EXIT_PROBLEM, ToolError, words
from .gate import UNTIL_ACCEPTED, Gate
from .hold import Hold
from .options import DEFAULT_CONFIG
from .state import Turn
from .system import may_administer


def _each(tool, items, function):
    """Do it for every one, also behind one that fails; exit status."""
    status = EXIT_OK
    for item in items:
        try:
            function(item)
        except (ToolError, OSError) as error:
            tool.reporter.warn(words(error))
            status = EXIT_FAILED
    return status


def setup(tool):
    requests = [tool.options] if tool.options.device else read_config(
        tool.options.config or DEFAULT_CONFIG)
    gates = [gate for request in requests for gate in _gates_of(request)]
    return _each(tool, gates, lambda gate: upkeep.setup(tool.state, gate, tool.reporter))


def _gates_of(options):
    """The gates one set of setup options describes."""
    for device in options.device:
        values = {name: getattr(options, name) for name in Gate.FIELDS if hasattr(options, name)}
        values.update(device=device)
        if options.pause_ms is None:
            values["pause_ms"] = UNTIL_ACCEPTED
        yield Gate(**values)


def clear(tool):
    devices = tool.options.device or [gate.device for gate in tool.gates()]
    return _each(tool, devices, lambda device: upkeep.clear(tool.state, device, tool.reporter))


def hold(tool):
    begun = []
    try:
        for gate in tool.gates(some=True):
            turn = Turn(tool.state, gate.device).take()
            try:
                Hold(gate, turn).begin(tool.options.max_hold_ms or gate.max_hold_ms, "hold")
                begun.append(gate)
            finally:
                turn.leave(keep=gate in begun)
    except (ToolError, OSError):
        for gate in begun:         # all or none
            upkeep.release(tool.state, gate)
        raise
    return EXIT_OK


def release(tool):
    return _each(tool, tool.gates(), lambda gate: upkeep.release(tool.state, gate))


def status(tool):
    states = [upkeep.status(tool.state, gate) for gate in tool.gates()]
    if tool.options.json:
        print(json.dumps(states))
    else:
        for state in states:
            _print_status(state)
        if not states:
            print("nothing is set up")
        elif not may_administer():
            print("not root: who holds, and for how long, cannot be seen")
    return (EXIT_PROBLEM if any(state["problems"] for state in states) else EXIT_OK)


def _print_status(state):
    what = "packets" if state["all_packets"] else "new connections"
    to = ", ".join(state["addresses"]) or "any address"
    ports = ", ".join(state["ports"]) or "any"
    print(f"{state['device']}: {state['condition']}")
    print(f"  holds {what} to {to}, ports {ports}")
    print(f"  room for {state['limit_packets']} packets, {state['waiting']} "
          f"wait, {state['dropped']} were dropped")
    if state["hold"]:
        print("  held by '{command}', at most {ends_in_ms} ms more".format(**state["hold"]))
    for problem in state["problems"]:
        print(f"  {problem}")


def check(tool):
    found = [{"device": gate.device, "severity": severity, "text": text}
             for gate in tool.gates(some=True)
             for severity, text in upkeep.check(tool.state, gate)]
    if tool.options.json:
        print(json.dumps(found))
    else:
        for item in found:
            print(f"{item['device']}: {item['severity']}: {item['text']}")
        if not found:
            tool.reporter.note("a hold would work")
    return (EXIT_PROBLEM if any(item["severity"] == "error" for item in found) else EXIT_OK)
