#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 100
# examples/balancer/, with its own files: editing the one file and reloading
# adds, drains and removes servers, and no flow breaks.

. "${0%/*}/lib.sh"
. "${0%/*}/lib_front.sh"

readonly state=$work/qdisc_tool
readonly files=$top/examples/balancer

# here_as FILE: an example's file with the addresses and names of this network
here_as() {
	sed -e "s/192\.0\.2\.10/$VIP4/; s/10\.0\.0\./10.2.0./" \
		-e "s/lb_algo mh/lb_algo $algo/" "$files/$1"
}

# reload_unit: the drop-in's ExecReload= lines, each if the one before succeeds
reload_unit() {
	sed -n 's/^ExecReload=\(.\)/\1/p' "$files/keepalived.service.conf" |
		sed -e "s,/usr/sbin/keepalived,& --use-file $conf," \
			-e "s,/usr/sbin/qdisc_tool protect,$top/scripts/qdisc_tool protect --state-dir $state," \
			-e "s/\$MAINPID/$(<"$pid")/" >"$work/reload"
	dr bash -e "$work/reload" >>"$work/reload.log" 2>&1
}

# start_options: the options that the drop-in starts keepalived with
start_options() {
	sed -n 's/^ExecStart=.*--dont-fork \(.*\) \$DAEMON_ARGS/\1/p' \
		"$files/keepalived.service.conf"
}

# add SERVER, drain SERVER, remove SERVER: edit the file
add() {
	sed -i "\$d" "$conf"
	sed -n '/real_server 10.2.0.11 /,/^    }/p' "$conf" |
		sed "s/10\.2\.0\.11/10.2.0.1$1/; s/weight 0/weight 1/" >"$work/new"
	{ cat "$work/new"; echo "}"; } >>"$conf"
}

drain() {
	sed -i "/real_server 10.2.0.1$1 /,/}/s/weight 1/weight 0/" "$conf"
}

remove() {
	sed -i "/real_server 10.2.0.1$1 /,/^    }/d" "$conf"
}

# drained SERVER: mhsstat waits for it
drained() {
	dr "$top/scripts/mhsstat" wait --quiet --timeout 120s --drained "10.2.0.1$1:80"
}

need keepalived
plan 17
modprobe -q ip_vs
parameter=$(sed -n 's/^options ip_vs_mhs //p' "$files/modprobe.conf")
fresh_module "$parameter,sed"
setup_net 4
defer stop
algo=$(front_name)
front_clients
dr "$top/scripts/qdisc_tool" setup --state-dir "$state" --device eth0 \
	--address $VIP4 --all --max-hold 10s >"$work/setup.log"
result "qdisc_tool is set up" $?
here_as keepalived.conf >"$conf"
read -ra options <<<"$(start_options)"
check "services stay in the kernel at a restart" --dont-release-ipvs \
	"${options[*]}"
start "${options[@]}"
wait_weights "the servers of the file are there" "1:1 2:1"
wait_settled
windows 600000 0
begin

short_flows
add 3
reload_unit
result "a server is added: reload" $?
wait_weights "it is there" "1:1 2:1 3:1"
none_broken "a server is added"

short_flows
drain 1
reload_unit
wait_weights "a server is drained" "1:0 2:1 3:1"
none_broken "a server is drained"
windows 600000 0

short_flows
cp "$conf" "$work/good"
echo "virtual_server {" >>"$conf"
! reload_unit
result "a file with a mistake is refused" $?
cp "$work/good" "$conf"
none_broken "and nothing has changed"

# its flows end, then mhsstat says so
flow c reset
windows 0 0
dr ipvsadm --set 3 3 3
drained 1
result "mhsstat: it is drained" $?
dr ipvsadm --set 900 120 300
flow c open 60
flow c ping
short_flows
remove 1
reload_unit
wait_weights "it is removed" "2:1 3:1"
none_broken "a drained server is removed"

flow_end c
flow_end new
