# SPDX-License-Identifier: GPL-2.0-only
"""setup and clear.

What is about to be made is written down first, so that clear undoes the work of a
setup that was killed, too.
"""

from ipvs_mhs_tool import ToolError, quoted

from .parts import parts_of
from .state import Record


def make(part, host):
    """Command by command: after modprobe the device may be there or not."""
    last = None
    while True:
        commands = part.making(host)
        if not commands:
            return
        if commands[0] == last:
            raise ToolError(f"{quoted(last)}: it had no effect")
        last = commands[0]
        host.do(last)


def undo(parts, made, host):
    """Each that was made, the last one first; what went wrong, in words.  @made
    keeps what could not be undone."""
    wrong = []
    for part in reversed(parts):
        if part.key not in made:
            continue
        try:
            for command in part.undoing(host, made[part.key]):
                host.do(command)
            del made[part.key]
        except ToolError as error:
            wrong.append(str(error))
    return wrong


def _all_parts(record, host):
    """Of all its set-ups, by the devices of today and by those that another program's
    have taken the place of since; of one part once."""
    return list({part.key: part for set_up in record.set_ups
                 for those in (None, host)
                 for part in parts_of(set_up, those)}.values()) if record else []


def setup(host, state, set_up):
    """Make what is missing, then undo what is not wanted any more.  Returns
    whether anything was changed."""
    old = state.load()
    made = dict(old.made) if old else {}
    parts = parts_of(set_up, host)
    record = Record([*(old.set_ups if old else []), set_up], made)
    new = {}
    try:
        for part in parts:
            if part.making(host):
                new[part.key] = part.before(host)
                made.setdefault(part.key, new[part.key])
                state.save(record)
                try:
                    make(part, host)
                except ToolError as error:
                    raise ToolError("; ".join(filter(None, (
                        str(error), part.hint)))) from error
    except (ToolError, OSError, KeyboardInterrupt) as error:
        wrong = undo(parts, new, host)
        try:
            state.save(old if not new else record)
        except OSError as another:
            wrong.append(str(another))
        if isinstance(error, KeyboardInterrupt):
            raise
        raise ToolError("; ".join([str(error), *wrong, "what this call had "
                                   "changed is undone" if not wrong else
                                   "give the command again, or undo all, what "
                                   "was set up before, too, with 'real_server "
                                   "clear'"])) from error
    wanted = {part.key for part in parts}
    gone = {key: before for key, before in made.items() if key not in wanted}
    changed = bool(new or gone)
    wrong = undo([part for part in _all_parts(record, host)
                  if part.key in gone], gone, host)
    for key in set(made) - wanted - set(gone):
        del made[key]
    state.save(record if wrong else Record([set_up], made))
    if wrong:
        raise ToolError("; ".join([*wrong, "all else is set up"]))
    return changed


def planned(host, set_up):
    """The commands of setup, for --dry-run."""
    return [command for part in parts_of(set_up, host)
            for command in part.making(host)]


def clear(host, state):
    """Undo what setup made.  Returns whether anything was set up."""
    record = state.load()
    if not record:
        return False
    wrong = undo(_all_parts(record, host), record.made, host)
    state.save(record if wrong else None)
    if wrong:
        raise ToolError("; ".join([*wrong, "the rest is undone; run "
                                   "'real_server clear' again"]))
    return True


def planned_clear(host, state):
    """The commands of clear, for --dry-run."""
    record = state.load()
    return [command for part in reversed(_all_parts(record, host))
            if part.key in record.made
            for command in part.undoing(host, record.made[part.key])]
