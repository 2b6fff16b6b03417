# SPDX-License-Identifier: GPL-2.0-only
"""The command line: what --help says is what is understood.

(argparse takes as long to import as the interpreter to start, and a reload
would wait for it.)  The keys of the configuration file are the long options
of 'setup', see config.py.
"""

from .errors import UsageError
from .gate import DEFAULT_PREFERENCE, PREFERENCE_COUNT
from .state import DEFAULT_DIRECTORY

DEFAULT_CONFIG = "/etc/qdisc_tool.conf"
# Below the second after which a client sends its SYN again, and below the
# connect timeouts in use.
DEFAULT_MAX_HOLD_MS = 900
DEFAULT_LIMIT_SYNS = 10_000
# What 5 Gbit/s bring in 100 ms, or 1 Gbit/s in half a second.
DEFAULT_LIMIT_PACKETS = 40_000
_LONGEST_HOLD_MS = 60_000


# Values: each function takes a text, or ValueError says what is wrong.

def _duration_ms(text):
    """'900ms', '0.9s' or a number of seconds."""
    number, factor = ((text[:-2], 1) if text.endswith("ms") else
                      (text.removesuffix("s"), 1000))
    try:
        value = round(float(number) * factor)
    except (ValueError, OverflowError):
        value = -1
    if value < 0:
        raise ValueError(
            f"{text!r} is no duration; give for example 50ms or 0.9s")
    return value


def _max_hold_ms(text):
    value = _duration_ms(text)
    if not 1 <= value <= _LONGEST_HOLD_MS:
        raise ValueError(f"{text!r} is not between 1ms and "
                         f"{_LONGEST_HOLD_MS // 1000}s")
    return value


def _number(text, low, high, what):
    if not text.isascii() or not text.isdigit() or \
            not low <= int(text) <= high:
        raise ValueError(f"{text!r} is not {what} from {low} to {high}")
    return int(text)


def _port(text):
    return _number(text, 1, 65535, "a port")


def _split(text):
    words = text.replace(",", " ").split()
    if not words:
        raise ValueError("the list is empty")
    return words


def _ports(text):
    """Ports and ranges, as tc writes them."""
    result = []
    for word in _split(text):
        first, dash, last = word.partition("-")
        low, high = _port(first), _port(last if dash else first)
        if low > high:
            raise ValueError(f"the range {word!r} is empty")
        result.append(f"{low}-{high}" if low < high else str(low))
    return result


def _addresses(text):
    import ipaddress
    return [str(ipaddress.ip_network(word)) for word in _split(text)]


# Long option -> (name of the value, what makes it of a text).
_VALUES = {
    "--address": ("addresses", _addresses),
    "--port": ("ports", _ports),
    "--exclude": ("exclude", _addresses),
    "--device": ("device", lambda text: [text]),
    "--all": ("all_packets", None),
    "--preference": ("preference", lambda text: _number(
        text, 1, 65536 - PREFERENCE_COUNT, "a filter preference")),
    "--limit": ("limit_packets", lambda text: _number(
        text, 1, 10_000_000, "a number of packets")),
    "--max-hold": ("max_hold_ms", _max_hold_ms),
    "--pause": ("pause_ms", _duration_ms),
    "--until-port": ("until_port", _port),
    "--until-new-port": ("until_new_port", _port),
}
# These may be repeated, and of those only one may be given.
_LISTS = {"device", "addresses", "ports", "exclude"}
_UNTIL = ("--until", "--until-port", "--until-new-port")

_COMMON = f"""
where:
  -d, --device DEV      the device; may be repeated (default: every one that
                        is set up)
  -N, --netns NAME      act in this network namespace: a name, a process id or
                        a path
  --state-dir DIR       where the set-up is remembered (default:
                        {DEFAULT_DIRECTORY})

what is said:
  --json                one JSON object instead of text
  -q, --quiet           nothing but trouble
  -h, --help            this text
"""
_DRY_RUN = """\
  -n, --dry-run         print the commands, change nothing
"""
_MAX_HOLD = f"""
the hold:
  --max-hold TIME       release after this time whatever happens (default:
                        what setup was told, and for that {DEFAULT_MAX_HOLD_MS}ms)
"""

_EXAMPLES = """\
haproxy that does not pass its sockets (-x):
  qdisc_tool setup --device eth0 --port 80,443
  qdisc_tool protect -- systemctl reload haproxy
nginx, whose reload needs no help; a restart, after the same setup:
  qdisc_tool protect --max-hold 8s -- systemctl restart nginx
a proxy in a container whose process is $pid:
  qdisc_tool setup --netns $pid --device eth0 --port 80
  qdisc_tool protect --netns $pid --until-new-port 80 -- podman kill --signal HUP web

"""

# Command -> (what it does, its options).
COMMANDS = {
    "setup": ("prepare devices; once, at boot", f"""
what is held:
  -a, --address ADDR    destination addresses or networks, v4 or v6
  -p, --port PORT       destination ports or ranges (8000-8010)
  -x, --exclude ADDR    never hold what comes from here: health checks
  --all                 hold every packet, not only new connections: for an
                        IPVS director's own reload
  --vlan                hold VLAN-tagged packets too

how:
  -c, --config FILE     what to prepare if no --device is given (default:
                        {DEFAULT_CONFIG})
  --preference N        first of ten filter preferences to take; accepts
                        the filters of others beside them
  --limit N             most packets to hold (default: {DEFAULT_LIMIT_SYNS} SYNs, with
                        --all {DEFAULT_LIMIT_PACKETS} packets)

defaults for protect and hold:
  --max-hold TIME       release after this time whatever happens (default:
                        {DEFAULT_MAX_HOLD_MS}ms)
  --pause TIME         between the begin of a hold and the command (default:
                        until what came before has been accepted)
{_COMMON}{_DRY_RUN}"""),
    "protect": ("run a command while new connections are held", f"""{_MAX_HOLD}\
  --pause TIME         between the begin of the hold and the command (default:
                        what setup was told)

the end of the hold (default: after the command, when no socket that is about to
be closed listens on a held port any more; at the latest after nine tenths of
--max-hold):
  --until COMMAND       when this shell command succeeds ("true": at once)
  --until-port PORT     when somebody listens on this TCP port
  --until-new-port PORT
                        when only sockets listen there that did not exist before
                        the command

the command:
  -u, --user USER       run it as this user
  --kill                end it when the hold ends before it
  --require             do not run it unprotected
  --allow-unprotected   exit status 0 even if it ran without a hold
  --allow-drops         exit status 0 even if packets were dropped
{_COMMON}{_DRY_RUN}"""),
    "hold": ("begin a hold that lasts until release or --max-hold",
             _MAX_HOLD + _COMMON + _DRY_RUN),
    "release": ("end any hold; safe to repeat", _COMMON + _DRY_RUN),
    "status": ("show what is set up, and whether it holds", _COMMON),
    "check": ("say whether a hold would work", _COMMON),
    "clear": ("undo setup; lose nothing that is held", _COMMON + _DRY_RUN),
}


def help_text(action=None):
    """What --help says of one command, or of all."""
    if action:
        what, options = COMMANDS[action]
        command = " [--] COMMAND [ARGUMENT]..." * (action == "protect")
        return (f"usage: qdisc_tool {action} [OPTION]...{command}\n\n"
                f"{what[0].upper()}{what[1:]}.\n{options}")
    return ("usage: qdisc_tool COMMAND [OPTION]...\n\n"
            "Hold new connections while a proxy or a load balancer is "
            "reloaded: they are\ndelayed, and none is dropped.  'setup' once, at "
            "boot, 'protect' for each reload.\n\n" + _EXAMPLES +
            "".join(f"  {name:<9} {what}\n"
                    for name, (what, _) in COMMANDS.items()) +
            "\n'qdisc_tool COMMAND --help' lists the options of a command, "
            "'qdisc_tool --version'\nshows the version; "
            "see qdisc_tool(8).\n")


def _known(action):
    """Each option of a command -> its long name, and whether it has a
    value."""
    known = {}
    for line in COMMANDS[action][1].splitlines():
        if line.startswith("  -"):
            words = line[2:].split("  ")[0].replace(",", "").split()
            names = [word for word in words if word.startswith("-")]
            known.update(dict.fromkeys(names, (names[-1], names != words)))
    return known


class Options:
    """What was said, by the names of the options; .action is the command of
    this program, .command the words that 'protect' shall run."""

    def __init__(self, action, known):
        self.action = action
        self.command = []
        self.dry_run = False
        for long_name, has_value in known.values():
            name, _ = _meaning(long_name)
            setattr(self, name, [] if name in _LISTS else
                    None if has_value else False)

    def take(self, long_name, value):
        """One option as it was given, of a flag True."""
        name, convert = _meaning(long_name)
        try:
            value = convert(value) if convert else value
        except ValueError as error:
            raise UsageError(f"{long_name}: {error}") from error
        setattr(self, name, getattr(self, name) + value if name in _LISTS else value)


def _meaning(long_name):
    return _VALUES.get(long_name, (long_name[2:].replace("-", "_"), None))


def parse(argv):
    """The options of a whole command line, or UsageError.  None if that asks
    for general help."""
    if not argv:
        raise UsageError("which command?")
    if argv[0] in ("-h", "--help"):
        return None
    if argv[0] not in COMMANDS:
        raise UsageError(f"no command {argv[0]!r}; there are "
                         + ", ".join(COMMANDS))
    known = _known(argv[0])
    options = Options(argv[0], known)
    until = None
    words = argv[:0:-1]            # the next one last
    while words and words[-1].startswith("-") and words[-1] != "-":
        word = words.pop()
        if word == "--":
            break
        name, equals, text = word.partition("=")
        if not word.startswith("--"):
            # "-qn" is "-q -n", "-p80" is "-p 80"
            name, text = word[:2], word[2:]
            equals = bool(text) and known.get(name, ("", False))[1]
            if text and not equals:
                words.append("-" + text)
        if name not in known:
            raise UsageError(f"no option {name!r}")
        long_name, has_value = known[name]
        if has_value and not equals:
            if not words:
                raise UsageError(f"{name} needs a value")
            text = words.pop()
        elif equals and not has_value:
            raise UsageError(f"{name} takes no value")
        if long_name in _UNTIL:
            if until not in (None, long_name):
                raise UsageError(f"{long_name} is not allowed with {until}")
            until = long_name
        options.take(long_name, text if has_value else True)
    options.command = words[::-1]
    if options.command and options.action != "protect":
        raise UsageError(f"what is {options.command[0]!r}?")
    if options.action == "setup" and options.device and not options.help:
        _finish_setup(options)
    return options


def _finish_setup(options):
    """The rules that tie options of setup together."""
    if not options.addresses and not options.ports:
        raise UsageError("say what to hold, with --address or --port or both; "
                         "to hold every new connection on the device, give "
                         "--address 0.0.0.0/0 --address ::/0")
    options.shared_filters = options.preference is not None
    options.preference = options.preference or DEFAULT_PREFERENCE
    options.max_hold_ms = options.max_hold_ms or DEFAULT_MAX_HOLD_MS
    options.limit_packets = options.limit_packets or (
        DEFAULT_LIMIT_PACKETS if options.all_packets else DEFAULT_LIMIT_SYNS)
