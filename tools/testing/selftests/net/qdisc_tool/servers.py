#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 3000
# weight: 450
"""haproxy, nginx and apache2, reloaded and restarted under load, and haproxy with a
socket of systemd's: what is lost without qdisc_tool, and that nothing is lost with it."""

import contextlib
import os
import shutil
import signal
import subprocess

from lib import (FAST, LONG, TOP, check, defer, equal, main, man_page, note, program, read,
                 remove_tree, run, set_up, systemctl, test, wait_for, write)
from net import HOST4, PORT, Load, network

LO = "127.0.0.1"
BACKEND_PORT = PORT + 10
DIRECTORY = f"{FAST}/servers"
# make bench BENCH=restarts has more
CONTROL_ROUNDS = 3
ROUNDS = int(os.environ.get("MHS_ROUNDS", CONTROL_ROUNDS))
BETWEEN = int(os.environ.get("MHS_BETWEEN", 30))       # requests

HAPROXY = f"""
global
    stats socket {DIRECTORY}/haproxy.sock level admin expose-fd listeners
defaults
    mode http
    timeout connect 60s
    timeout client 60s
    timeout server 60s
frontend in
    bind :{PORT}
    default_backend out
backend out
    server nginx {LO}:{BACKEND_PORT}
"""


def nginx_config(name, port):
    paths = "\n".join(f"    {kind}_temp_path {DIRECTORY}/{name}.{kind};" for kind in (
        "client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    return f"""
worker_processes 2;
pid {DIRECTORY}/{name}.pid;
error_log {DIRECTORY}/{name}.log;
events {{ worker_connections 512; }}
http {{
    access_log off;
{paths}
    server {{ listen {LO}:{port}; return 200 "x"; }}
}}
"""


def script(name, *lines):
    """A shell script of what an operator's reload command does."""
    path = f"{DIRECTORY}/{name}"
    write(path, "#!/bin/sh -e\n" + "\n".join(lines) + "\n")
    os.chmod(path, 0o755)
    return path


def stop(pid_file, soft):
    """By the signal after which the server answers what it has accepted: a hard
    stop ends requests, which no hold can help."""
    return f"pid=$(cat {pid_file}); kill -{soft} $pid; {until('! kill -0 $pid 2>&-')}"


def until(condition):
    return f"until {condition} >/dev/null; do sleep 0.01; done"


def end(pid_file):
    with contextlib.suppress(OSError, ValueError):
        os.kill(int(read(pid_file).split()[0]), signal.SIGTERM)


def directory(*programs):
    for name in programs:
        check(shutil.which(name), f"{name} is not installed")
    os.makedirs(DIRECTORY, exist_ok=True)


def nginx(name, port):
    directory("nginx")
    config = f"{DIRECTORY}/{name}.conf"
    write(config, nginx_config(name, port))
    command = f"nginx -c {config} -e {DIRECTORY}/{name}.log"
    run(command)
    pid_file = f"{DIRECTORY}/{name}.pid"
    defer(end, pid_file)
    wait_for(lambda: os.path.exists(pid_file), name)
    return command, pid_file


def haproxy():
    directory("haproxy")
    nginx("backend", BACKEND_PORT)
    write(f"{DIRECTORY}/haproxy.cfg", HAPROXY)
    pid_file = f"{DIRECTORY}/haproxy.pid"
    command = f"haproxy -D -f {DIRECTORY}/haproxy.cfg -p {pid_file}"
    run(command)
    defer(end, pid_file)
    return command, pid_file


def slowly(name, processes, *lines):
    """A reload whose old processes, as a shell finds them, do nothing until
    there are others, and a while longer, as on a busy host: what comes waits
    at their sockets, and each takes one before it hears that it shall go."""
    return script(
        name, f"old=$({processes})", "kill -STOP $old", *lines,
        f"(while [ \"$({processes})\" = \"$old\" ]; do sleep 0.01; done; "
        "sleep 1; kill -CONT $old) <&- >&- 2>&- &")


def under_load(name, command, address=LO, where=None, rounds=ROUNDS):
    """Run a command some times under load; how many requests failed."""
    with Load(address, PORT, 8, where, http=True) as load:
        load.wait_for_progress(BETWEEN)
        for _ in range(rounds):
            run(command)           # a dropped packet makes protect fail
            load.wait_for_progress(BETWEEN)
        result = load.finish()
    note(f"{name}: {result}")
    return result["failed"]


def compare(name, command, control=None):
    """With protection nothing may fail; without, or with the options of
    @control, something must."""
    set_up("lo", "-p", str(PORT))
    protect = ("qdisc_tool", "protect", *LONG)
    equal(under_load(f"{name}, protected", [*protect, "--", command]), 0, "failures")
    if control is not None:
        command = [*protect, *control, "--", command] if control else [command]
        check(under_load(f"{name}, the control", command, rounds=CONTROL_ROUNDS), "nothing failed")


@test
def s17_haproxy_reload():
    command, pid_file = haproxy()
    # In the control the hold ends with the command.
    compare("reload", slowly("reload", f"cat {pid_file}", f"{command} -sf $(cat {pid_file})"),
            ("--until", "true"))


@test
def s17_the_man_page_protects_an_haproxy_restart():
    """From outside: clients are behind a router."""
    network()
    command, pid_file = haproxy()
    restart = f"{stop(pid_file, 'USR1')}; {command}"
    outside = (HOST4, "client")
    check(under_load("restart", ["sh", "-ec", restart], *outside, CONTROL_ROUNDS),
          "the control did not fail")
    systemctl(restart)
    prepare, protect = man_page(
        "A proxy that is reached from outside, and restarted",
        **{"eth0": "host0", "80,443": str(PORT), "5s": "60s"}).splitlines()
    run(["sh", "-c", prepare])
    defer(run, "qdisc_tool clear -q")
    equal(under_load("man page", ["sh", "-c", protect], *outside), 0, "failures")


@test
def s17_nginx_restart():
    command, pid_file = nginx("front", PORT)
    compare("nginx restart", script("restart", stop(pid_file, "QUIT"), command), ())


@test
def s17_apache_restart():
    directory("apache2")
    config, pid_file = f"{DIRECTORY}/apache.conf", f"{DIRECTORY}/apache.pid"
    write(f"{DIRECTORY}/index.html", "x")
    write(config, "".join(
        f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"
        for name in ("mpm_event", "authz_core", "dir")) +
        f"ServerName test\nServerRoot {DIRECTORY}\nDocumentRoot {DIRECTORY}\n"
        f"PidFile {pid_file}\nErrorLog {DIRECTORY}/apache.log\n"
        # without it WINCH waits for a connection as long as that lasts
        "GracefulShutdownTimeout 5\n"
        f"Mutex file:{DIRECTORY}\nListen {LO}:{PORT}\nDirectoryIndex index.html\n")
    command = f"apache2 -f {config} -k"
    run(f"{command} start")
    defer(end, pid_file)
    wait_for(lambda: os.path.exists(pid_file), "apache2")
    # apache2 writes the file in the background, and the next stop reads it; while an old
    # process listens yet, it does not start
    compare("apache restart", script(
        "restart", stop(pid_file, "WINCH"), "n=0", f"until [ -s {pid_file} ]; do",
        f"[ $((n % 40)) != 0 ] || {command} start || :", "n=$((n + 1))", "sleep 0.05", "done"), ())


def systemd(**units):
    """A manager of these units, as a user has one; what runs systemctl."""
    directory("systemctl", "haproxy")
    there = f"{DIRECTORY}/units"
    os.makedirs(there)
    defer(remove_tree, there)
    for name, text in {"default_target": "", **units}.items():
        write(f"{there}/{name.replace('_', '.')}",
              "[Unit]\nDefaultDependencies=no\nStartLimitIntervalSec=0\n" + text)
    # Without this directory systemd takes the host for one that it did not boot.
    os.makedirs("/run/systemd/system", exist_ok=True)
    if not os.path.exists("/sys/fs/cgroup/cgroup.procs"):
        run("mount -t cgroup2 none /sys/fs/cgroup")
        defer(run, "umount /sys/fs/cgroup")
    where = [f"XDG_RUNTIME_DIR={there}", f"SYSTEMD_UNIT_PATH={there}"]
    names = os.listdir(there)
    manager = subprocess.Popen(["env", *where, "/lib/systemd/systemd", "--user"])
    defer(manager.wait)
    defer(manager.kill)
    command = ["env", *where, "systemctl", "--user"]
    wait_for(lambda: os.path.exists(f"{there}/systemd/private"), "systemd", 180)
    defer(run, [*command, "stop", *names])
    return " ".join(command)


@test
def s17_a_restart_behind_a_socket_of_systemd():
    """It stays, and what comes waits in its queue; the control is the same
    server with a socket of its own."""
    nginx("backend", BACKEND_PORT)
    units = {"front_socket": f"[Socket]\nListenStream={LO}:{PORT}\n"}
    for name, bind in ("front", "fd@3"), ("own", f"{LO}:{PORT}"):
        config = f"{DIRECTORY}/{name}.cfg"
        write(config, HAPROXY.replace(f":{PORT}", bind))
        # By SIGUSR1 it answers what it has accepted, as in stop().
        units[f"{name}_service"] = (
            f"[Service]\nType=notify\nNotifyAccess=all\nKillSignal=USR1\n"
            f"ExecStart={shutil.which('haproxy')} -Ws -f {config}\nTimeoutStopSec=infinity\n")
    systemctl = systemd(**units)
    run(f"{systemctl} start front.socket front.service")
    restart = script("restart", f"{systemctl} restart front.service")
    compare("restart behind a socket", restart)
    done = program("protect", "--json", *LONG, "--", restart)
    equal(done.report["waited"]["for"], "", "waited for")
    run(f"{systemctl} stop front.socket front.service")
    run(f"{systemctl} start own.service")
    restart = script("restart", f"{systemctl} restart own.service")
    compare("restart by systemd", restart, ())


def debian_unit(name, **paths):
    """The unit of Debian's package as it is, with the example's drop-in, but for
    paths, and for time, which passes as it likes in an emulated machine."""
    text = read(f"/lib/systemd/system/{name}.service") + read(
        f"{TOP}/examples/qdisc_tool/{name}.service.d/qdisc_tool.conf")
    paths = {"/usr/sbin/qdisc_tool protect": f"{shutil.which('qdisc_tool')} protect "
             "--max-hold 60s", "BindReadOnlyPaths": "#", **paths}
    for old, new in paths.items():
        check(old in text or old == "BindReadOnlyPaths", f"no {old} in {name}'s unit")
        text = text.replace(old, new)
    return f"{text}[Service]\nStandardError=append:{DIRECTORY}/said\n"


@test
def s17_the_drop_ins_fit_the_units_of_debian():
    """Without a set-up a reload succeeds, too, and without --allow-unprotected, the
    control, it does not."""
    nginx("backend", BACKEND_PORT)
    config = f"{DIRECTORY}/front"
    write(f"{config}.cfg", HAPROXY)
    write(f"{config}.conf", nginx_config("front", PORT))
    ours = {
        "haproxy": debian_unit("haproxy", **{
            "/run/haproxy": f"{DIRECTORY}/haproxy",
            "/etc/haproxy/haproxy.cfg": f"{config}.cfg",
            "/usr/sbin/haproxy": shutil.which("haproxy")}),
        "nginx": debian_unit("nginx", **{
            "/run/nginx.pid": f"{config}.pid",
            "/usr/sbin/nginx": f"{shutil.which('nginx')} -c {config}.conf"})}
    systemctl = systemd(**{
        f"{name}{kind}_service": text.replace(there, "")
        for name, text in ours.items() for kind, there in (
            ("", "no such"), ("strict", "--allow-unprotected "))})
    for name in ours:
        for kind, fails in ("strict", True), ("", False):
            run(f"{systemctl} start {name}{kind}.service")
            done = subprocess.run(f"{systemctl} reload {name}{kind}.service".split(), check=False)
            equal(bool(done.returncode), fails, f"status of {name}{kind}")
            if kind:
                run(f"{systemctl} stop {name}{kind}.service")
        set_up("lo", "-p", str(PORT))
        equal(under_load(name, f"{systemctl} reload {name}.service"), 0, "failures")
        check(": held " in read(f"{DIRECTORY}/said"), "nothing was held")
        os.unlink(f"{DIRECTORY}/said")
        run("qdisc_tool clear -q")
        run(f"{systemctl} stop {name}.service")


if __name__ == "__main__":
    main()
