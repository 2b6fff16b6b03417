#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 25
# examples/balancer/, with its own files: editing the one file and reloading
# adds, drains and removes servers, and no flow breaks, nor at a restart.

. "${0%/*}/lib.sh"
. "${0%/*}/lib_front.sh"

readonly state=$work/qdisc_tool files=$top/examples/balancer

# edited SED: the file; then the drop-in's ExecReload= lines, each if the one before
# succeeds
edited() {
	sed -i "$1" "$conf"
	sed -n 's/^ExecReload=\(.\)/\1/p' "$files/keepalived.service.conf" |
		sed -e "s,/usr/sbin/keepalived,& --use-file $conf," \
			-e "s,/usr/sbin/qdisc_tool protect,$top/scripts/qdisc_tool protect --state-dir $state," \
			-e "s/\$MAINPID/$(<"$pid")/" >"$work/reload"
	dr bash -e "$work/reload" >>"$work/reload.log" 2>&1
}

# refused: a file with a mistake
refused() {
	cp "$conf" "$work/good"
	! edited '$a virtual_server {'
	result "a file with a mistake is refused" $?
	cp "$work/good" "$conf"
}

# begin_unit: as the drop-in does
begin_unit() {
	# shellcheck disable=SC2046 # its options
	start $(sed -n 's/^ExecStart=.*--dont-fork \(.*\) \$DAEMON_ARGS/\1/p' \
		"$files/keepalived.service.conf")
}

restart() {
	stop
	begin_unit
}

need keepalived
plan 18
modprobe -q ip_vs
fresh_module "$(sed -n 's/^options ip_vs_mhs //p' "$files/modprobe.conf"),sed"
setup_net 4
defer stop
front_clients
dr "$top/scripts/qdisc_tool" setup --state-dir "$state" --device eth0 \
	--address $VIP4 --all --max-hold 10s >"$work/setup.log"
result "qdisc_tool is set up" $?
sed -e "s/192\.0\.2\.10/$VIP4/; s/10\.0\.0\./10.2.0./" \
	-e "s/lb_algo mh/lb_algo $(front_name)/" "$files/keepalived.conf" >"$conf"
begin_unit
wait_weights "the servers of the file are there" "1:1 2:1"
wait_settled
windows 600000 0
begin
step "a server is added" "1:1 2:1 3:1" edited \
	'/real_server 10.2.0.11 /,/^    }/H; ${x; s/\n//; s/\.11 /.13 /; G}'
step "a server is drained" "1:0 2:1 3:1" edited '/\.11 /,/}/s/weight 1/weight 0/'
step "and nothing has changed" "1:0 2:1 3:1" refused
step "keepalived restarts" "1:0 2:1 3:1" restart
step "a drained server is removed" "2:1 3:1" edited '/ 10.2.0.11 /,/^    }/d'
flow_end c
flow_end new
