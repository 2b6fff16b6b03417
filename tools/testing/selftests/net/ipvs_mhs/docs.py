#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""Run the commands that documents show, as docs.sh asks.

A command block of a document is a literal block.  Its commands are run one
after the other on a director with a service that has two servers; before each
block everything is as it was.  What cannot be run so stands in ELSEWHERE with
the test that runs it, or the reason why none does, and a block that is no
commands in TEXTS.  Whatever is in neither, or fails, fails the test.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[4]
sys.path.insert(0, str(TOP / "scripts"))

from mhsstat_lib.prometheus import NAMES  # noqa: E402
DOCUMENTS = ("README.md", "CONTRIBUTING.rst", "Documentation/networking/*.rst",
             "Documentation/man/*.[1-9]")

# Programs whose commands are run here; stand-ins are in docs.sh.
RUN = ("ipvsadm", "mhsstat", "sysctl", "cat", "echo", "dmesg", "ssh", "modprobe",
       "modinfo", "openssl", "sign-file", "ss", "nstat", "tcpdump", "iptables",
       "birdc", "systemctl", "reboot")

# These leave everything as it is, so that the next block needs no reset.
READS = re.compile(r"(mhsstat|ssh lb\d mhsstat|ipvsadm -(Ln|S)|cat|dmesg|ss|nstat"
                   r"|tcpdump|openssl|modinfo|birdc|systemctl|reboot)\b")

TESTS = "tools/testing/selftests/net/ipvs_mhs"
QDISC = "tools/testing/selftests/net/qdisc_tool"
PACKAGES = "tools/testing/packages"
# the test that runs them in its own way: patterns of commands
ELSEWHERE = {
    f"{QDISC}/director.py": (
        r"qdisc_tool setup --device eth0 --address 192\.0\.2\.1 --all",
        r"qdisc_tool protect -- sh -c 'ipvsadm -C; ",
        r"ipvsadm -S -n > /etc/ipvsadm\.rules$"),
    f"{QDISC}/servers.py": (
        r"qdisc_tool setup --device (lo|eth0) --port 80,443$",
        r"qdisc_tool protect --max-hold 5s -- systemctl restart "),
    f"{QDISC}/local.py": (r"qdisc_tool clear --device eth0$",),
    f"{QDISC}/seen.py": (r"qdisc_tool (setup|protect) --netns \$pid ",),
    f"{TESTS}/mhsstat.sh": (
        r"mhsstat show --prometheus --output /var/lib/",
        r"mhsstat wait .* --settled --servers 3 "),
    # drain refuses the short pin time of here
    f"{TESTS}/mhsstat_drain.sh": (
        r"mhsstat (drain 10\.0\.0\.11:80|wait .* --drained) ",),
    f"{TESTS}/check.sh": (r"mhsstat check\b",),
    f"{TESTS}/real_server.sh": (r"real_server setup --vip 192\.0\.2\.1",),
    f"{TESTS}/real_faults.sh": (r"real_server (check|clear)\b",),
    f"{TESTS}/drained.sh": (r"real_server drained ",),
    # where the kernel has AES
    f"{TESTS}/quic_real.sh": (
        r'sysctl -w net\.ipv4\.vs\.mhs\.quic_ids="192\.0\.2\.1:443=',),
    f"{TESTS}/lane_xdp.sh": (
        r"ethtool -K eth[01] rxvlan off rx-vlan-stag-hw-parse off$",
        r"ip link set dev eth0 xdpdrv (object /usr/local/\S+ section xdp|off)$"),
    f"{TESTS}/lane_nets.sh": (
        r"ip link set dev bond0 xdpdrv object /usr/local/\S+ section xdp$",),
    f"{TESTS}/wayback.sh": (r"ipvsadm -E -t 192\.0\.2\.1:80 -s wlc$",),
    f"{TESTS}/names.sh": (
        r"ipvsadm -E -t 192\.0\.2\.1:80 -s mh$",
        r"modprobe (-r ip_vs_mhs?|ip_vs_mh)$", r"install ip_vs_\w+ /sbin/modprobe ",
        r"rm /etc/modprobe\.d/ip_vs_mhs\.conf$"),
    f"{PACKAGES}/check": (
        r"apt-get install build-essential dkms ipvsadm python3 iproute2 "
        r"linux-headers-amd64$",
        r"(dkms status|modinfo -k 6\.1\.0-30-amd64 ip_vs_mhs)$",
        r"apt-get purge ipvs-mhs-dkms ipvs-mhs-tools qdisc-tool$"),
    f"{PACKAGES}/keepalived": (r"apt-get install keepalived$",),
    f"{PACKAGES}/check-container": (r"podman build ",),
    "Makefile": (r"make ",),    # it would run this test; the target must exist
    # Nothing can go wrong; needs firmware; would load the module
    "": (r"rm -f /(etc|var)/", r"mokutil ", r"podman run "),
}
# the first line of a block that is no commands
TEXTS = (
    r"SERVICE {4}", r"m \* F \* ", r"mode: ipvs", r"kube-router\.io/service",
    r"moduleLoader:", r"\[(Unit|Service|lo)\]",
    # pictures
    r"device --clsact--", r"servers change  ", r"\+-- director 1 --",
    r"control     main", r"cli\.main  ",
    # real_faults.sh has such a file, quic_real.sh such IDs and servers
    r"vip = 192", r"1a 0a00000b ", r"mhs_ids\.issue\(")
# that of a file for another program: the file's name, what reads it
FILES = {
    "global_defs {": ("keepalived.conf",
                      "keepalived --config-test --use-file keepalived.conf"),
    "router id ": ("bird.conf", "bird -p -c bird.conf"),
    "table inet ": ("rules", "nft -f rules && nft flush ruleset"),
}
# where the literal blocks of a document are
BLOCKS = {
    ".md": (r"(?<=\n\n)((?: {4}.*\n|\n)+)", r"^```.*\n((?:.*\n)*?)```"),
    ".rst": (r"^(?! *\.\. )(?P<margin> *).*::\n\n((?:(?P=margin) .*\n|\n)+)",),
}
MAN_BLOCKS = (r"^\.Bd -literal.*\n((?:.*\n)*?)\.Ed",)


class Block:
    """A literal block of a document."""

    def __init__(self, path, line, text):
        if path.is_relative_to(TOP):
            path = path.relative_to(TOP)
        self.name = f"{path}:{line}"
        self.text = text
        self.lines = [s for s in text.split("\n") if s.strip()]

    @property
    def first(self):
        return self.lines[0].strip()

    def commands(self):
        """Logical lines, without comments behind them; a program is one."""
        if self.first.startswith("#!"):
            return [f"cat >program <<'EOF'\n{self.text}\nEOF\nsh program"]
        joined = re.sub(r"\\\n\s*", "", "\n".join(self.lines))
        return [re.sub(r"\s{2,}#.*", "", s.strip())
                for s in joined.split("\n") if not re.match(r"\s*# ", s)]


def blocks_of(path):
    text = path.read_text().expandtabs()
    for pattern in BLOCKS.get(path.suffix, MAN_BLOCKS):
        for found in re.finditer(pattern, text, re.M):
            body = found[found.re.groups]
            if path.suffix not in BLOCKS:
                body = body.replace("\\e", "\\").replace("\\-", "-")
            if body.strip():
                yield Block(path, text[:found.start(found.re.groups)].count("\n") + 1,
                            body.rstrip("\n"))


def documents():
    return [path for pattern in DOCUMENTS for path in sorted(TOP.glob(pattern))]


def elsewhere(command):
    """(pattern, test) if it stands in the table."""
    return next(((pattern, test) for test, patterns in ELSEWHERE.items()
                 for pattern in patterns if re.match(pattern, command)), None)


def make_targets_missing(command):
    makefile = (TOP / "Makefile").read_text()
    return [word for part in command.split("&&")
            for word in shlex.split(part, comments=True)[1:]
            if "=" not in word and
            not re.search(rf"^([a-z -]+ )?{re.escape(word)}[ a-z]*:", makefile, re.M)]


class Runner:
    """Runs the commands of blocks in the namespace that docs.sh made."""

    def __init__(self, reset):
        self._reset = reset
        self._state = None  # what a reset would bring, if it is known
        self.used = set()

    def _shell(self, command):
        done = subprocess.run(["bash", "-o", "pipefail", "-c", command],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL, text=True, timeout=300)
        tail = " ".join(done.stdout.split())[-200:]
        return "" if not done.returncode else \
            f"{command}: exit status {done.returncode}: {tail}"

    def _command(self, command):
        """What is wrong with it, nothing if all is well."""
        covered = elsewhere(command)
        if covered:
            self.used.add(covered[0])
            if not (TOP / covered[1]).exists():
                return f"{command}: there is no {covered[1]}"
            if command.startswith("make "):
                missing = make_targets_missing(command)
                return f"{command}: no target {missing}" if missing else ""
            return ""
        if re.search(r">\s*/(?!proc/|sys/|dev/|run/)", command):
            return f"{command}: its file would be there for other tests"
        command = re.sub(r"^options ip_vs_mhs", "modprobe ip_vs_mhs", command)
        # where it is in the tree that make setup unpacks
        command = re.sub(r"^/usr/\S*/sign-file", "sign-file", command)
        if command.split()[0] not in RUN:
            return (f"{command}: neither run here nor in ELSEWHERE, and its "
                    "block not in TEXTS of docs.py")
        return self._shell(command)

    def block(self, block):
        for pattern in TEXTS:
            if re.match(pattern, block.first):
                self.used.add(pattern)
                return ""
        if re.match(r"(count by \(|ipvs_mhs_)", block.first):
            return self._metrics(block)
        for head, (name, command) in FILES.items():
            if block.first.startswith(head):
                Path(name).write_text(block.text + "\n")
                return self._shell(command)
        here = [command for command in block.commands()
                if not elsewhere(command)]
        needs = self._needs(block)
        if here and self._state != needs:
            wrong = self._shell(f"{self._reset} {needs}")
            if wrong:
                return f"cannot begin: {wrong}"
            self._state = needs
        if not all(READS.match(command) for command in here):
            self._state = None
        for command in block.commands():
            fault = self._command(command)
            if fault:
                return fault
        return ""

    @staticmethod
    def _metrics(block):
        """Are the metrics there, and all of them in the list of them?"""
        named = set(re.findall(r"ipvs_mhs_\w+", block.text))
        wrong = named - set(NAMES)
        if "(" not in block.text:
            wrong |= set(NAMES) - named
        return f"metrics: {', '.join(sorted(wrong))}" if wrong else ""

    @staticmethod
    def _needs(block):
        """What has to be there before: a service, on two directors if the
        other one is asked, or none, or not even the module."""
        return next((state for pattern, state in (
            (r"^\s*(modprobe|options) ip_vs_mhs", "unloaded"),
            (r"ipvsadm -A -t 192\.0\.2\.1:80", "empty"),
            (r"ssh |lb1\.json", "fleet")) if re.search(pattern, block.text, re.M)),
            "service")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", action="store_true",
                        help="print how many results there will be")
    parser.add_argument("--reset", metavar="COMMAND", default="true",
                        help="makes everything as it is before a block")
    parser.add_argument("document", nargs="*", type=Path,
                        help="these instead of the project's")
    args = parser.parse_args()
    blocks = [b for path in args.document or documents()
              for b in blocks_of(path)]
    if args.count:
        print(len(blocks) + 1)
        return 0
    runner = Runner(args.reset)
    for block in blocks:
        fault = runner.block(block)
        print(block.name, int(bool(fault)),
              " ".join((fault or block.first).split()), sep="\t", flush=True)
    if not args.document:
        stale = {*TEXTS, *(pattern for patterns in ELSEWHERE.values()
                           for pattern in patterns)} - runner.used
        print("every entry of the tables is in a document", int(bool(stale)),
              " ".join(sorted(stale)), sep="\t")
    return 0


if __name__ == "__main__":
    os.chdir(os.environ.get("DOCS_DIR", "."))
    sys.exit(main())
