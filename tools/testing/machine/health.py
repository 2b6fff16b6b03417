# SPDX-License-Identifier: GPL-2.0-only
"""What a kernel must not say while a test runs."""

import re
from itertools import takewhile

# Most patterns are searched anywhere in a line, because a dying kernel's
# console loses the time stamps.  "WARNING:" must begin the message: the CPU
# bug reports at boot have it in the middle.
UNHEALTHY = re.compile(r"""
    BUG:|kernel\ BUG\ at|Oops:|Kernel\ panic|\[\ cut\ here\ \]|Call\ Trace:
    |^(?:\[[^]]*\]\s*)*WARNING:\ |WARNING:\ CPU:
    |general\ protection\ fault|stack\ segment:|double\ fault
    |possible\ (?:recursive\ locking|circular\ locking|irq\ lock|deadlock)
    |inconsistent\ lock\ state|bad\ unlock\ balance|suspicious\ RCU\ usage
    |Invalid\ wait\ context|held\ lock\ freed|lock\ held\ when\ returning
    |rcu:\ INFO:|self-detected\ stall|detected\ stalls?\ on|rcu_\w+\ kthread\ starved
    |blocked\ for\ more\ than|soft\ lockup|hard\ LOCKUP
    |scheduling\ while\ atomic|sleeping\ function\ called\ from
    |KASAN:|KCSAN:|KMSAN:|KFENCE:|UBSAN:|ODEBUG:|kmemleak:\ \d+\ new
    |kmemleak:\ (?:Cannot\ allocate|Kernel\ memory\ leak\ detector\ disabled)
    |unreferenced\ object|refcount_t:|ref_tracker:|percpu\ ref
    |unregister_netdevice:\ waiting|Objects\ remaining\ in
    |list_(?:add|del)\ corruption|Bad\ page\ (?:state|map)|nobody\ cared
    |Out\ of\ memory:|page\ allocation\ failure|invoked\ oom-killer
    |Internal\ error:|Unable\ to\ handle\ kernel|unable\ to\ handle
    """, re.X)

# What KCSAN says of an access with READ_ONCE() and the like, when it is ours
MARKED_OF_OURS = re.compile(r"\(marked[^)]*\) to 0x.*\n.*\[ip_vs_mhs\]$", re.M)

# Taints of an out-of-tree, unsigned module: what we test has both.
TAINTS = "PFSRMBUDAWCIOELKXTNJ"
EXPECTED_TAINTS = (1 << TAINTS.index("O")) | (1 << TAINTS.index("E"))


def _race_of_others(title, lines):
    """Is it a data race that we cannot mend?  It is when neither function is
    ours, or when our side is marked and only the core's is not."""
    ours = title.count("[ip_vs_mhs]")
    if "BUG: KCSAN: data-race in " not in title or ours > 1:
        return False
    report = "\n".join(takewhile(lambda line: "=====" not in line, lines))
    return not ours or bool(MARKED_OF_OURS.search(report))


def scan(log):
    """The lines of a kernel log that tell of a fault."""
    lines = log.splitlines()
    return [line.strip() for i, line in enumerate(lines)
            if UNHEALTHY.search(line)
            and not _race_of_others(line, lines[i + 1:])]


def new_taints(before, after):
    """Letters of the taints that appeared, except the expected ones."""
    fresh = after & ~before & ~EXPECTED_TAINTS
    letters = "".join(c for i, c in enumerate(TAINTS) if fresh & (1 << i))
    return letters or (f"{fresh:#x}" if fresh else "")
