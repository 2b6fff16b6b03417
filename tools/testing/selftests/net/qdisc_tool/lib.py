# SPDX-License-Identifier: GPL-2.0-only
"""What the tests of qdisc_tool share: KTAP, the tool, a small network of
namespaces, clients, and the naive recipes the tool is measured against.

A test is a function marked with @test.  It fails by an exception, skips by
Skip, and undoes what it does by defer(), in reverse order.  Times are not
asserted where a counter tells the same: the machine may be slow.  A connection
that lost a SYN shows in the retransmission counters of its side, whatever the
clock says.

        client ----------- router ----------- host (the machine's first
      10.2.0.2          10.2.0.1  10.1.0.2  10.1.0.1    namespace)
       fd02::2           fd02::1   fd01::2   fd01::1

The router is there because a packet held on a veth still belongs to the
socket at the other end, which then does not send it again.
"""

import contextlib
import ctypes
import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback

HERE = os.path.dirname(os.path.realpath(__file__))
TOP = os.path.realpath(f"{HERE}/../../../../..")
sys.path.insert(0, f"{TOP}/scripts")
# Now, for all the children that run the tool.
import configparser  # noqa: E402,F401
import pwd  # noqa: E402,F401
import qdisc_tool_lib.cli  # noqa: E402
import qdisc_tool_lib.protect  # noqa: E402,F401

FAST = "/run/qdisc_tool_test"
PORT = 8080
HOST4, HOST6 = "10.1.0.1", "fd01::1"
WAIT_S = 30
# A SYN that was lost is sent again after this.
SYN_RETRY_MS = 1000

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
_tests = []
_deferred = []


class Skip(Exception):
    """This cannot be tested here."""


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


def main(setup=lambda: None, programs=()):
    """Run the tests named on the command line, or all; @programs are those
    that are run often."""
    wanted = [function for function in _tests
              if len(sys.argv) < 2 or function.__name__ in sys.argv[1:]]
    print(f"KTAP version 1\n1..{len(wanted)}", flush=True)
    if os.geteuid():
        print("Bail out! this must be run as root", flush=True)
        sys.exit(4)
    # Thousands of clients.
    resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 16, 1 << 16))
    passed = skipped = 0
    try:
        fast_root(*programs)
        try:
            setup()
        except Skip as reason:
            for number, function in enumerate(wanted, 1):
                print(f"ok {number} {function.__name__} # SKIP {reason}")
            sys.exit(4)
        for number, function in enumerate(wanted, 1):
            began, depth = time.monotonic(), len(_deferred)
            verdict, remark = "ok", ""
            try:
                function()
                passed += 1
            except Skip as reason:
                remark = f" # SKIP {reason}"
                skipped += 1
            except Exception:
                verdict = "not ok"
                note(traceback.format_exc())
            finally:
                undo(depth)
            note(f"{time.monotonic() - began:.1f} s")
            print(f"{verdict} {number} {function.__name__}{remark}",
                  flush=True)
    finally:
        undo()
    if passed + skipped < len(wanted):
        sys.exit(1)
    sys.exit(0 if passed else 4)


# ------------------------------------------------------------------ running

def _copy_program(name):
    """A program and its libraries, into memory."""
    path = shutil.which(name)
    if path is None:
        return
    copy = f"{FAST}/bin/{name}"
    if not os.path.exists(copy):
        shutil.copy(os.path.realpath(path), copy)
    # What ldd does, without its shell.
    loads = subprocess.run([path], capture_output=True, text=True, check=False,
                           env={**os.environ, "LD_TRACE_LOADED_OBJECTS": "1"})
    for word in loads.stdout.split():
        library = f"{FAST}/lib/{os.path.basename(word)}"
        if word.startswith("/") and "/ld-" not in word and \
                not os.path.exists(library):
            shutil.copyfile(word, library)


def _copy_python():
    """The interpreter, and of its modules those that are loaded here."""
    home = os.path.dirname(os.__file__)
    library = f"{FAST}/lib/{os.path.basename(home)}"
    os.makedirs(f"{library}/lib-dynload")
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None) or ""
        if path.startswith(home):
            copy = library + path[len(home):]
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            compiled = getattr(module, "__cached__", None)
            if compiled and os.path.exists(compiled):
                # A compiled module in the place of its source does for it.
                path, copy = compiled, copy + "c"
            shutil.copyfile(path, copy)
    shutil.copy(os.path.realpath(sys.executable), f"{FAST}/bin/python3")


def fast_root(*more_programs):
    """In a virtual machine whose root is the host's file system, starting a
    program takes seconds.  Run what the tests run often from memory."""
    for directory in ("bin", "lib"):
        os.makedirs(f"{FAST}/{directory}")
    defer(shutil.rmtree, FAST)
    os.environ["PATH"] = f"{FAST}/bin:" + os.environ.get("PATH", os.defpath) \
        + ":/usr/sbin:/sbin"
    if not any(line.split()[1:3] == ["/", "9p"]
               for line in read("/proc/mounts").splitlines()):
        os.symlink(f"{TOP}/scripts/qdisc_tool", f"{FAST}/bin/qdisc_tool")
        return
    _copy_python()
    shutil.copytree(f"{TOP}/scripts/qdisc_tool_lib",
                    f"{FAST}/bin/qdisc_tool_lib",
                    ignore=shutil.ignore_patterns("__pycache__"))
    script = f"{FAST}/bin/qdisc_tool"
    write(script, read(f"{TOP}/scripts/qdisc_tool").replace(
        "#!/usr/bin/python3", f"#!{FAST}/bin/python3", 1))
    os.chmod(script, 0o755)
    for name in ("python3", "sh", "sleep", "true", "tc", "ip", *more_programs):
        _copy_program(name)
    os.environ["LD_LIBRARY_PATH"] = f"{FAST}/lib"


def run(command, **options):
    """Run a command (words, or one string of them) that must succeed."""
    words = command.split() if isinstance(command, str) else command
    done = subprocess.run(words, check=False, capture_output=True, text=True,
                          timeout=200, **options)
    check(not done.returncode, f"{words}: {done.stdout}{done.stderr}")
    return done.stdout


def growth(before, *names):
    """By how much counters() grew."""
    after = counters()
    return {name: after[name] - before[name] for name in names}


def batch(program, lines):
    """Many lines for one run of ip or tc."""
    run([program, "-batch", "-"], input="\n".join(lines) + "\n")


def wait_for(condition, what, wait_s=WAIT_S):
    give_up = time.monotonic() + wait_s
    while not condition():
        check(time.monotonic() < give_up, f"waited {wait_s} s for {what}")
        time.sleep(0.01)


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
    """A run of the tool's own code, in a fork of this process: in emulation
    the start of an interpreter takes a second.  (command.py and servers.py
    run the program.)"""

    def __init__(self, *arguments, pass_fds=(), new_session=False):
        self.returncode = None
        self._files = [os.memfd_create(name) for name in ("out", "err")]
        self.pid = os.fork()
        if not self.pid:
            status = 1
            try:
                if new_session:
                    os.setsid()
                for fd in pass_fds:
                    os.set_inheritable(fd, True)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                for fd, file in enumerate(self._files, 1):
                    os.dup2(file, fd)
                sys.stdout, sys.stderr = open(1, "w"), open(2, "w")
                try:
                    status = qdisc_tool_lib.cli.main(list(arguments))
                except SystemExit as end:
                    status = end.code
                except BaseException:
                    traceback.print_exc()
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(status or 0)

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


def expect_status(result, expect, arguments):
    if expect is not None and result.status != expect:
        raise AssertionError(f"qdisc_tool {' '.join(arguments)}: status "
                             f"{result.status}, not {expect}\n"
                             f"{result.out}{result.err}")
    return result


def tool(*arguments, expect=0):
    """Run qdisc_tool to its end; @expect is the exit status, None for any."""
    return expect_status(Tool(*arguments).wait(), expect, arguments)


def program(*arguments, expect=0, **options):
    """The same, as a program of its own."""
    done = subprocess.run(["qdisc_tool", *arguments], capture_output=True,
                          text=True, timeout=180, check=False, **options)
    return expect_status(Result(done.returncode, done.stdout, done.stderr),
                         expect, arguments)


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
    # Time in an emulated machine passes as it likes.
    return commands.replace("protect ", "protect --max-hold 60s ")


def systemctl(commands):
    """What "systemctl" does, where systemd is not."""
    path = f"{FAST}/bin/systemctl"
    write(path, f"#!/bin/sh\n{commands}\n")
    os.chmod(path, 0o755)
    defer(os.unlink, path)


def set_up(device, *arguments):
    tool("setup", "--quiet", "--device", device, *arguments)
    defer(tool, "clear", "--quiet", "--device", device)


class Protecting:
    """A protect whose command runs until finish(); entered once it runs."""

    def __init__(self, *arguments):
        self._arguments = arguments

    def __enter__(self):
        up_fd, command_up_fd = os.pipe()
        command_go_fd, self._go_fd = os.pipe()
        fds = (command_up_fd, command_go_fd)
        # By name: not every shell takes a number above 9 after ">&".
        up, go = (f"/proc/self/fd/{fd}" for fd in fds)
        self.process = Tool(
            "protect", "--json", *self._arguments, "--", "sh", "-c",
            f"echo up >{up}; read status <{go}; exit ${{status:-99}}",
            pass_fds=fds)
        for fd in fds:
            os.close(fd)
        check(os.read(up_fd, 3), "the command was not started")
        os.close(up_fd)
        return self

    def finish(self, status=0):
        os.write(self._go_fd, b"%d\n" % status)
        return self.process.wait()

    def __exit__(self, *_):
        os.close(self._go_fd)
        if self.process.returncode is None:
            note(self.process.wait().err)


# ------------------------------------------------------------------ network

@contextlib.contextmanager
def namespace(name):
    """Be in a namespace; sockets made there stay there."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{name}", os.O_RDONLY)
    check(not _libc.setns(there, _CLONE_NEWNET), f"cannot enter {name}")
    try:
        yield
    finally:
        _libc.setns(home, _CLONE_NEWNET)
        os.close(home)
        os.close(there)


def inside(name):
    return namespace(name) if name else contextlib.nullcontext()


def loopback():
    """lo up, and traffic on it of no other test."""
    run("ip link set lo up")


def network():
    """The three namespaces of the picture above."""
    loopback()
    for name in ("router", "client"):
        run(f"ip netns add {name}")
        defer(run, f"ip netns del {name}")
    batch("ip", [
        "link add host0 type veth peer name host1 netns router",
        "addr add 10.1.0.1/24 dev host0",
        "addr add fd01::1/64 dev host0 nodad", "link set host0 up",
        "route add 10.2.0.0/24 via 10.1.0.2 dev host0 onlink",
        "route add fd02::/64 via fd01::2 dev host0 onlink"])
    defer(run, "ip link del host0")
    with namespace("router"):
        batch("ip", [
            "link add client1 type veth peer name client0 netns client",
            "addr add 10.1.0.2/24 dev host1",
            "addr add fd01::2/64 dev host1 nodad", "link set host1 up",
            "addr add 10.2.0.1/24 dev client1",
            "addr add fd02::1/64 dev client1 nodad", "link set client1 up"])
        for path in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
            write(f"/proc/sys/net/{path}", "1")
    with namespace("client"):
        batch("ip", [
            "addr add 10.2.0.2/24 dev client0",
            "addr add fd02::2/64 dev client0 nodad",
            "link set client0 up", "link set lo up",
            "route add default via 10.2.0.1",
            "route add default via fd02::1"])


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


def counters():
    """The TCP counters of this namespace, and softnet drops of the machine."""
    found = {"softnet": sum(int(line.split()[1], 16) for line in
                            read("/proc/net/softnet_stat").splitlines())}
    for path in ("snmp", "netstat"):
        lines = read(f"/proc/thread-self/net/{path}").splitlines()
        for names, values in zip(lines[::2], lines[1::2]):
            if names.startswith("Tcp"):
                found.update(zip(names.split()[1:],
                                 map(int, values.split()[1:])))
    return found


def qdiscs(device):
    """kind -> (packets waiting, packets dropped) of a device's qdiscs."""
    return {qdisc["kind"]: (qdisc["qlen"], qdisc["drops"]) for qdisc in
            json.loads(run(f"tc -s -j qdisc show dev {device}"))}


def plug_waiting(device):
    return qdiscs(device)["plug"][0]


def naive_loopback(plug="limit 10000000", keys="protocol ip flower "
                   f"ip_proto tcp dst_port {PORT} tcp_flags 0x2/0x17"):
    """The recipe that is handed round, without the marks: prio, a plug in its
    last band, a filter for SYNs.  It is left open."""
    run("tc qdisc add dev lo root handle 1: prio bands 4")
    defer(run, "tc qdisc del dev lo root")
    batch("tc", [f"qdisc add dev lo parent 1:4 handle 40: plug {plug}",
                 "qdisc change dev lo handle 40: plug release_indefinite",
                 f"filter add dev lo parent 1: {keys} classid 1:4"])


def naive_plug(action):
    run(f"tc qdisc change dev lo handle 40: plug {action}")


def picture(device):
    """Everything tc shows of a device, counters left out."""
    text = run(["tc", "-batch", "-"], input="".join(
        f"{what} show dev {device}{where}\n"
        for what, where in (("qdisc", ""), ("class", ""), ("filter", ""),
                            ("filter", " ingress"), ("filter", " egress"))))
    return re.sub(r"direct_packets_stat \d+", "", text)


def listen(port=PORT, queue=4096):
    """A listener for both families that accepts nobody."""
    server = socket.create_server(("::", port), family=socket.AF_INET6,
                                  backlog=queue, dualstack_ipv6=True)
    defer(server.close)
    return server


class Echo:
    """An echo server for both families, in a process of its own."""

    def __init__(self, port=PORT + 1):
        server = listen(port)
        self.pid = os.fork()
        if not self.pid:
            try:
                self._serve(server)
            finally:
                os._exit(0)
        server.close()
        defer(end_process, self.pid)

    @staticmethod
    def _serve(server):
        poll = select.epoll()
        poll.register(server, select.EPOLLIN)
        peers = {}
        while True:
            for fd, _ in poll.poll():
                if fd == server.fileno():
                    peer, _ = server.accept()
                    peers[peer.fileno()] = peer
                    poll.register(peer, select.EPOLLIN)
                    continue
                try:
                    data = peers[fd].recv(65536)
                    peers[fd].sendall(data)
                except OSError:
                    data = b""
                if not data:
                    peers.pop(fd).close()


def end_process(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def connection(address, port, where=None):
    """A connection that is already there."""
    give_up = time.monotonic() + WAIT_S
    with inside(where):
        while True:
            try:
                peer = socket.create_connection((address, port), timeout=5)
                break
            except TimeoutError:
                note(f"no answer from {address} port {port}")
                if time.monotonic() > give_up:
                    raise
    peer.settimeout(WAIT_S)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    defer(peer.close)
    return peer


def round_trip_ms(peer):
    began = time.monotonic()
    peer.sendall(b"x")
    check(peer.recv(1), "the connection was closed")
    return 1000 * (time.monotonic() - began)


class Clients:
    """Connections begun together: how long did each take, and which failed?"""

    def __init__(self, address, count=1, port=PORT, where=None):
        """@count connections, from namespace @where."""
        self.latency_ms = {}
        self.errors = []
        self._poll = select.epoll()
        self._began = {}
        self._sockets = {}
        with inside(where):
            for _ in range(count):
                self._begin(address, port)

    def _begin(self, address, port):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        client = socket.socket(family, socket.SOCK_STREAM)
        client.setblocking(False)
        fd = client.fileno()
        self._sockets[fd] = client
        self._began[fd] = time.monotonic()
        client.connect_ex((address, port))
        self._poll.register(fd, select.EPOLLOUT)

    @property
    def pending(self):
        return len(self._began)

    def take(self, wait_s=0.0):
        """Note what has been decided meanwhile."""
        for fd, _ in self._poll.poll(wait_s):
            client = self._sockets[fd]
            self._poll.unregister(fd)
            took_ms = 1000 * (time.monotonic() - self._began.pop(fd))
            error = client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                self.errors.append(os.strerror(error))
            else:
                self.latency_ms[fd] = took_ms

    def finish(self, wait_s=WAIT_S):
        """Wait for all, for some time; the longest time that one took."""
        give_up = time.monotonic() + wait_s
        while self._began and time.monotonic() < give_up:
            self.take(0.05)
        self.errors += ["no answer"] * len(self._began)
        return max(self.latency_ms.values(), default=0.0)

    def close(self):
        """Leave no TIME-WAIT behind."""
        for client in self._sockets.values():
            with contextlib.suppress(OSError):
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                  struct.pack("ii", 1, 0))
            client.close()
        self._poll.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
