#!/usr/bin/python3 -BS
# SPDX-License-Identifier: GPL-2.0-only
"""The restarts of servers.py, and of two servers more.  MHS_ROUNDS= and MHS_BETWEEN= are
how many, and after how many requests."""

import glob
import os
import sys

sys.path.insert(0, os.path.realpath(f"{__file__}/../../../selftests/net/qdisc_tool"))

import servers  # noqa: E402
from lib import TOP, check, defer, main, run, test, write  # noqa: E402
from net import PORT, Server  # noqa: E402

ENVOY = """
admin: {{address: {{pipe: {{path: {directory}/envoy.sock}}}}}}
static_resources:
  listeners:
  - address: {{socket_address: {{address: {address}, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.\
http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          http_protocol_options: {{accept_http_10: true}}
          route_config:
            virtual_hosts:
            - {{name: all, domains: ["*"], routes: [{{match: {{prefix: /}},
               direct_response: {{status: 200, body: {{inline_string: x}}}}}}]}}
          http_filters:
          - name: router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
"""


@test
def s17_envoy_restart():
    """Not its hot restart, which holds by itself."""
    programs = glob.glob(f"{TOP}/build/venv/lib/python3*/site-packages/envoy/_bin/envoy")
    check(programs, "Envoy is not installed")
    servers.directory()
    config, pid_file = f"{servers.DIRECTORY}/envoy.yaml", f"{servers.DIRECTORY}/envoy.pid"
    write(config, ENVOY.format(directory=servers.DIRECTORY, address=servers.LO, port=PORT))
    admin = f"curl -s --unix-socket {servers.DIRECTORY}/envoy.sock http://envoy"
    start = (f"{programs[0]} --disable-hot-restart --concurrency 2 -l error -c {config} "
             f"<&- >&- 2>&- & echo $! >{pid_file}")
    is_live = servers.until(f"{admin}/ready | grep LIVE")
    run(["sh", "-c", f"{start}\n{is_live}"])
    defer(servers.end, pid_file)
    # It listens no more, and ends when it has answered.
    servers.compare("Envoy restart", servers.script(
        "restart", is_live, f"{admin}/drain_listeners -X POST",
        servers.until(f"{admin}/stats?filter=http.in.downstream_cx_active | grep ': 0$'"),
        servers.stop(pid_file, "TERM"), start), ())


@test
def s17_restart_of_a_plain_server():
    servers.directory()
    with Server(PORT, 0.5, b"HTTP/1.0 200 OK\r\n\r\nx") as server:
        servers.compare("restart of a plain server", servers.script(
            "restart", f"kill -USR1 {server.pid}",
            servers.until(f"! ss -Hltn sport = :{PORT} | grep .")), ())


if __name__ == "__main__":
    main()
