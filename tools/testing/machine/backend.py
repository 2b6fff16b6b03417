# SPDX-License-Identifier: GPL-2.0-only
"""Machines that run a kernel: one interface, a class for each kind.

A machine shares the host's file system.  It runs one command, its console is
recorded, and it is over when the command is.  Everything else goes through
files, see session.py.
"""

import json
import os
import shlex
import signal
import subprocess
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[2]
BUILD = TOP / "build"
RUN = BUILD / "run"
KEPT = "kept"  # the name by which the guest script mounts the root once more


class Kernel:
    """A kernel unpacked by fetch-kernel."""

    def __init__(self, name, module="module"):
        self.name = name
        self.root = BUILD / "kernel" / name
        try:
            self.release = (self.root / "release").read_text().strip()
        except FileNotFoundError:
            ours = name.startswith(("uml", "qemu", "kcsan"))
            raise SystemExit(f"kernel {name} is not there: run "
                             f"{HERE / ('build-kernel' if ours else 'setup')} {name}")
        self.image = self.root / "boot" / f"vmlinuz-{self.release}"
        self.module = self.root / module / "ip_vs_mhs.ko"
        # these are written by build-kernel alone
        karch, append = self.root / "karch", self.root / "append"
        uml = karch.exists() and karch.read_text().strip() == "um"
        self.backend = "uml" if uml else "qemu"
        self.append = append.read_text().split() if append.exists() else []


class Machine:
    """One running kernel: subclasses say by which command it starts."""

    data = {}
    slow = 1.0  # factor on all time limits, for a busy host
    append = ()  # more words for the kernel
    per_cpu = 1  # so many at a time keep a CPU of the host busy

    def __init__(self, kernel, directory, cpus=None, memory=None):
        self.kernel = kernel
        self.directory = directory
        self.cpus = cpus or self.data["cpus"]
        self.memory = memory or self.data["memory"]
        self.console = directory / "console.log"
        self.process = None
        self._stopping = threading.Lock()

    def command(self, guest):
        """The command that boots the machine to run the guest command."""
        raise NotImplementedError

    def shell_command(self, pidfile):
        """The same for a shell on this terminal; the machine's own process
        keeps its number in the file while it lives."""
        raise NotImplementedError

    def environment(self):
        return dict(os.environ)

    def start(self, guest):
        """Boot, in a process group of its own, which ends if we do.  A file
        takes what a pipe with a slow reader makes User-Mode Linux drop."""
        life = ["setpriv", "--pdeathsig", "TERM",
                "timeout", "-k", "5", str(self.data["life"])]
        with open(self.console, "wb") as log:
            self.process = subprocess.Popen(
                life + self.command(guest), cwd=TOP, env=self.environment(),
                stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True)

    def alive(self):
        """Without reaping: until stop() the process group stays ours."""
        try:
            return os.waitid(os.P_PID, self.process.pid,
                             os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except (AttributeError, ChildProcessError):
            return False  # not started, or stopped

    def _wait(self, seconds):
        limit = time.monotonic() + seconds
        while self.alive() and time.monotonic() < limit:
            time.sleep(0.05)

    def stop(self, patience=0):
        """Wait for its own end, then kill exactly what start() started."""
        self._wait(patience)
        with self._stopping:
            if self.process is None or self.process.returncode is not None:
                return
            os.killpg(self.process.pid, signal.SIGTERM)
            # User-Mode Linux makes a group of its own: timeout kills it after
            # 5 s if it does not heed
            self._wait(15)
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def log(self):
        """The console so far."""
        try:
            data = self.console.read_bytes()
        except FileNotFoundError:
            return ""
        return data.replace(b"\r", b"").decode(errors="replace")


class Qemu(Machine):
    """QEMU in software emulation, started by virtme-ng."""

    data = json.loads((HERE / "qemu.json").read_text())
    icount = False  # a nanosecond is one instruction
    monitor = None  # a socket for QEMU's monitor
    logged = ""  # addresses of the instructions that its log names
    cards = 0  # virtio network cards on one wire

    def command(self, guest):
        return self._vng() + ["--", shlex.join(guest)]

    def shell_command(self, pidfile):
        return self._vng() + ["--shell", str(HERE / "shell"),
                              f"--qemu-opts=-pidfile {pidfile}"]

    def _vng(self):
        return [str(BUILD / "venv" / "bin" / "vng"), *self.data["options"],
                "--run", str(self.kernel.image),
                "--rwdir", str(RUN), "--cpus", str(self.cpus),
                "--memory", str(self.memory),
                "--qemu-opts=" + " ".join(self._more()),
                "--append", " ".join([*self.data["append"], *self.append])]

    def _more(self):
        return [f"-virtfs local,path=/,mount_tag={KEPT},readonly=on,"
                "security_model=none,multidevs=remap",
                *(f"-netdev hubport,id=c{i},hubid=0 "
                  f"-device virtio-net-pci,netdev=c{i},mac=02:00:00:00:02:0{i}"
                  for i in range(self.cards)),
                *(["-icount shift=0,sleep=off"] if self.icount else
                  [f"-cpu {self.data['cpu']}"]),
                *([f"-monitor unix:{self.monitor},server,nowait"]
                  if self.monitor else []),
                *([f"-dfilter {self.logged}"] if self.logged else [])]

    def environment(self):
        """Nobody's vng settings; temporary files where they are cleaned."""
        return dict(super().environment(), HOME=str(self.directory),
                    TMPDIR=str(self.directory),
                    PATH=f"{BUILD / 'venv' / 'bin'}:{os.environ['PATH']}")


class Uml(Machine):
    """User-Mode Linux, see build-kernel: native speed, one CPU."""

    data = {"cpus": 1, "memory": "1G", "boot_timeout": 60, "life": 7200}
    per_cpu = 2  # two thirds of the tests' time is waiting

    def command(self, guest):
        (self.directory / "command").write_text(shlex.join(guest) + "\n")
        return self._linux("con0=null,fd:1")

    def shell_command(self, pidfile):
        return ["sh", "-c", 'echo $$ >"$0"; exec "$@"', str(pidfile),
                *self._linux("con0=fd:0,fd:1")]

    def _linux(self, console):
        (self.directory / "cwd").write_text(f"{TOP}\n")
        return [str(self.kernel.root / "linux"), f"mem={self.memory}",
                "root=/dev/root", "rootfstype=hostfs", "hostfs=/", "rw",
                f"init={HERE / 'uml' / 'init'}", f"machine={self.directory}",
                f"modules={self.kernel.root / 'installed/lib'}",
                "seccomp=on", "con=null", console, "loglevel=5",
                # an hour's lines: the runner looks for its first and last
                "log_buf_len=1M",
                "panic_on_warn=1", "panic=-1", "printk.devkmsg=on",
                "printk.time=1", *self.kernel.append, *self.append]

    def environment(self):
        """Its memory is a file there."""
        return dict(super().environment(), TMPDIR=str(self.directory))


BACKENDS = {"qemu": Qemu, "uml": Uml}
