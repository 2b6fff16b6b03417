# SPDX-License-Identifier: GPL-2.0-only
"""From the command line to the exit status."""

import sys

from ipvs_mhs_tool import (EXIT_OK, ToolError, UsageError, json_of, quoted)
from ipvs_mhs_tool import main as run_main

from . import chance, change
from .faults import DIRECTOR, OWN_REMEDY, faults_of, report
from .host import Host
from .options import (DEFAULT_CONFIG, parser, read_config, set_up_of)
from .state import State


def _say(words):
    print(f"real_server: {words}", file=sys.stderr)


def _refuse_more(options):
    """What is set up, or stands in the file, goes with no other options; but check
    may have ports of its own."""
    none = set_up_of(parser().parse_args([options.action]))
    given = set_up_of(options)
    if options.action == "check":
        given = given._replace(ports=())
    if given != none:
        raise UsageError("other options need --vip, the virtual address")


def _wanted(options):
    """As asked for on the command line, or by the file."""
    if not options.vip:
        _refuse_more(options)
        return read_config(options.config or DEFAULT_CONFIG)
    if options.config:
        raise UsageError("--config and --vip are two sources: give one")
    return set_up_of(options)


def _less(options, record, set_up):
    """Takes an address away only if a file lists those that stay: with a second
    service on the command line nobody means to end the first."""
    gone = [vip for vip in record.set_ups[0].vips if vip not in set_up.vips] \
        if record else ()
    if gone and options.vip:
        both = set_up._replace(vips=(*gone, *set_up.vips)).command()
        raise ToolError(f"{', '.join(gone)}, set up here, is not among --vip: to have "
                        f"all: {quoted(both)}; to take it away 'real_server clear' "
                        "first, or --config; nothing was changed")
    if gone:
        _say(f"{', '.join(gone)} goes, as the file has it no more")


def _setup(options):
    set_up = _wanted(options)
    host, state = Host(), State()
    for vip in set_up.vips:
        if host.is_director(vip):
            raise ToolError(f"{DIRECTOR.format(vip)}; give this command on the "
                            "servers; nothing was changed")
        own = host.own(vip)
        if own:
            raise ToolError(f"{vip} is this host's own address, on {own}: "
                            f"{OWN_REMEDY}; nothing was changed")
    if not options.dry_run:
        state.lock()
    _less(options, state.load(), set_up)
    if options.dry_run:
        for command in change.planned(host, set_up):
            print(quoted(command))
        return EXIT_OK
    changed = change.setup(host, state, set_up)
    _say(f"{', '.join(set_up.vips)} "
         f"{'set up' if changed else 'set up already'}")
    return EXIT_OK


def _check(options):
    record = None if options.vip or options.config else State().load()
    if record:
        _refuse_more(options)
    set_up = record.set_ups[-1] if record else _wanted(options)
    if options.port:
        set_up = set_up._replace(ports=tuple(options.port))
    return report(faults_of(set_up, Host()), options.json)


def _show(options):
    record = State().load()
    set_up = record.set_ups[-1] if record else None
    packets = dict(zip(("kept", "sent_back", "failed"), chance.counts(Host()))) \
        if set_up and set_up.directors else {}
    if options.json:
        sys.stdout.write(json_of({
            "format": 1, "set_up": set_up and set_up._asdict(),
            "made": [*record.made] if record else [], "packets": packets}))
        return EXIT_OK
    print(f"{quoted(set_up.command())}\nmade: "
          f"{', '.join(record.made) or 'nothing, all was there'}"
          if record else "nothing is set up here; 'real_server help setup'")
    if packets:
        print("packets: " + ", ".join(f"{what.replace('_', ' ')} {number}"
                                      for what, number in packets.items()))
    return EXIT_OK


def _clear(options):
    host, state = Host(), State()
    if options.dry_run:
        for command in change.planned_clear(host, state):
            print(quoted(command))
        return EXIT_OK
    state.lock()
    _say("all is undone" if change.clear(host, state)
         else "nothing was set up here")
    return EXIT_OK


def _drained(options):
    from .drained import drained
    return drained(options)


def main(argv):
    return run_main(parser(), {"setup": _setup, "check": _check,
                               "clear": _clear, "show": _show,
                               "drained": _drained}, argv)
