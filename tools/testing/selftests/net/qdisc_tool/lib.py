# SPDX-License-Identifier: GPL-2.0-only
"""What the tests of qdisc_tool share: KTAP, and the tool.  See net.py, too.

A test is a function marked with @test.  It fails by an exception, and undoes what it does by
defer(), in reverse order.  Times are not asserted where a counter tells the same: the machine may
be slow.  A connection that lost a SYN shows in the retransmission counters of its side, whatever
the clock says.
"""

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback

TOP = os.path.realpath(f"{__file__}/../../../../../..")
sys.path.insert(0, f"{TOP}/scripts")
# Now, for all the children that run the tool.
import configparser  # noqa: E402,F401
import ipaddress  # noqa: E402,F401
import qdisc_tool_lib.cli  # noqa: E402
import qdisc_tool_lib.protect  # noqa: E402,F401

FAST = "/run/qdisc_tool_test"
WAIT_S = 30
# Of a hold that the test ends itself, on the slowest machine.
LONG = ("--max-hold", "60s")

_tests = []
_deferred = []


def test(function):
    _tests.append(function)
    return function


def defer(function, *arguments):
    _deferred.append((function, arguments))


def note(text):
    for line in str(text).splitlines():
        print(f"# {line}", flush=True)


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def equal(found, expected, what):
    check(found == expected, f"{what}: {found!r}, not {expected!r}")


def undo(down_to=0):
    while len(_deferred) > down_to:
        function, arguments = _deferred.pop()
        try:
            function(*arguments)
        except Exception as error:
            note(f"cleaning up: {error}")


def succeeds(function):
    try:
        function()
    except Exception:
        note(traceback.format_exc())
        return False
    return True


def main(setup=lambda: run("ip link set lo up")):
    """Run the tests named on the command line, or all."""
    wanted = [function for function in _tests
              if len(sys.argv) < 2 or function.__name__ in sys.argv[1:]]
    print(f"KTAP version 1\n1..{len(wanted)}", flush=True)
    # Thousands of clients.
    resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 16, 1 << 16))
    failed = 0
    try:
        own_directory()
        # From a disk that is cold this may take longer than the tool waits
        # for a program.  (ifb it must load in its own way.)
        subprocess.run(["modprobe", "-qa", "sch_plug", "sch_netem", "cls_flower",
                        "act_mirred", "act_gact", "tun"], check=False)
        prepared = succeeds(setup)
        for number, function in enumerate(wanted, 1):
            began, depth = time.monotonic(), len(_deferred)
            verdict = "ok" if prepared and succeeds(function) else "not ok"
            undo(depth)
            note(f"{time.monotonic() - began:.1f} s")
            print(f"{verdict} {number} {function.__name__}", flush=True)
            failed += verdict != "ok"
    finally:
        undo()
    sys.exit(bool(failed))


# ------------------------------------------------------------------ running

def remove_tree(path):
    """A server that is about to end may be removing its own files there."""
    for _ in range(2):
        shutil.rmtree(path, ignore_errors=True)


def own_directory():
    """For what tests make, and for programs that stand in for others."""
    os.makedirs(f"{FAST}/bin")
    defer(remove_tree, FAST)
    os.environ["PATH"] = f"{FAST}/bin:{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    os.symlink(f"{TOP}/scripts/qdisc_tool", f"{FAST}/bin/qdisc_tool")


def run(command, **options):
    """Run a command (words, or one string of them) that must succeed."""
    words = command.split() if isinstance(command, str) else command
    done = subprocess.run(words, check=False, capture_output=True, text=True,
                          timeout=200, **options)
    check(not done.returncode, f"{words}: {done.stdout}{done.stderr}")
    return done.stdout


def batch(program, lines):
    """Many lines for one run of ip or tc."""
    run([program, "-batch", "-"], input="\n".join(lines) + "\n")


def end_process(pid):
    with contextlib.suppress(ChildProcessError):       # it is gone
        if not os.waitpid(pid, os.WNOHANG)[0]:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def child(function):
    """The process that runs it, until the test ends."""
    pid = os.fork()
    if not pid:
        try:
            function()
        finally:
            os._exit(0)
    defer(end_process, pid)
    return pid


def wait_for(condition, what, wait_s=WAIT_S):
    give_up = time.monotonic() + wait_s
    while not condition():
        check(time.monotonic() < give_up, f"waited {wait_s} s for {what}")
        time.sleep(0.01)   # why: the pace of looks


class Result:
    """What a run of the tool gave."""

    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err

    @property
    def report(self):
        """The JSON object of 'protect --json'."""
        return json.loads(self.err.splitlines()[-1])

    @property
    def hold(self):
        return self.report["holds"][0]


class Tool:
    """A run of the tool's own code, in a fork of this process: in emulation the start of an
    interpreter takes a second.  (local.py and servers.py run the program.)"""

    def __init__(self, *arguments, stdin=os.devnull, new_session=False):
        self.returncode = None
        self._files = [os.memfd_create(name) for name in ("out", "err")]
        self.pid = os.fork()
        if not self.pid:
            status = 1
            try:
                if new_session:
                    os.setsid()
                os.dup2(os.open(stdin, os.O_RDONLY), 0)
                for fd, file in enumerate(self._files, 1):
                    os.dup2(file, fd)
                sys.stdout, sys.stderr = open(1, "w"), open(2, "w")
                status = qdisc_tool_lib.cli.main(list(arguments))
            except SystemExit as end:
                status = end.code
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status or 0)

    def has_said(self, fd=1):
        """Whether there is something on its standard output, or error."""
        return bool(os.fstat(self._files[fd - 1]).st_size)

    def send_signal(self, number):
        os.kill(self.pid, number)

    def poll(self, flags=os.WNOHANG):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, flags)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self):
        """Its Result, once it has ended."""
        self.poll(0)
        texts = []
        for fd in self._files:
            texts.append(os.pread(fd, 1 << 20, 0).decode())
            os.close(fd)
        return Result(self.returncode, *texts)


def expected(result, arguments, expect, says):
    said = result.out + result.err
    check(expect in (None, result.status) and says in said, f"qdisc_tool {' '.join(arguments)}: "
          f"status {result.status} ({expect} is expected, and {says!r})\n{said}")
    return result


def tool(*arguments, expect=0, says=""):
    """Run qdisc_tool to its end; @expect is the exit status, None for any."""
    return expected(Tool(*arguments).wait(), arguments, expect, says)


def program(*arguments, expect=0, says="", **options):
    """The same, as a program of its own."""
    done = subprocess.run(["qdisc_tool", *arguments], capture_output=True,
                          text=True, timeout=600, check=False, **options)
    return expected(Result(done.returncode, done.stdout, done.stderr), arguments, expect, says)


def man_page(section, **replace):
    """The two commands of a section of the man page, with names replaced."""
    page = read(f"{TOP}/Documentation/man/qdisc_tool.8")
    text = page.split(f".Ss {section}\n")[1].split("-offset indent\n")[1]
    commands = text.split(".Ed\n")[0].replace("\\e\n", "")
    equal(commands.count("\n"), 2, "commands of the man page")
    for old, new in replace.items():
        check(old in commands, f"no {old!r} in {commands}")
        commands = commands.replace(old, new)
    note(commands)
    # Time in an emulated machine passes as it likes, and a busy one takes long
    # to accept what began before the hold.
    return commands.replace("protect ", "protect --max-hold 60s --pause 1s ")


def systemctl(commands, name="systemctl"):
    """What a program does that is not there."""
    path = f"{FAST}/bin/{name}"
    write(path, f"#!/bin/sh\n{commands}\n")
    os.chmod(path, 0o755)
    defer(os.unlink, path)


def set_up(device, *arguments):
    tool("setup", "--quiet", "--device", device, *arguments)
    where = arguments[-2:] if "--state-dir" in arguments else ()
    defer(tool, "clear", "--quiet", "--device", device, *where)


class Protecting:
    """A protect whose command runs until finish(); entered once it runs."""

    def __init__(self, *arguments):
        self._arguments = arguments

    def __enter__(self):
        stdin_fd, self._go_fd = os.pipe()
        # Listeners of tests accept nobody, and that is waited for.
        self.process = Tool("protect", "--json", "--pause", "0", *self._arguments, "--", "sh", "-c",
                            "echo up; read line", stdin=f"/proc/self/fd/{stdin_fd}")
        wait_for(lambda: self.process.has_said() or self.process.poll() is not None, "the command")
        os.close(stdin_fd)
        if self.process.returncode is not None:
            check(False, f"the command was not started: {self.process.wait().err}")
        return self

    def finish(self):
        os.write(self._go_fd, b"\n")
        return self.process.wait()

    def __exit__(self, *_):
        os.close(self._go_fd)
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)       # which its command gets, too
            note(self.process.wait().err)


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def sysctl(path, value):
    """Set a sysctl for the length of a test."""
    path = f"/proc/sys/{path}"
    defer(write, path, read(path))
    write(path, str(value))
