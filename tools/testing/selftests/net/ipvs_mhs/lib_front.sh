# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # lib.sh sets work; for the tests
# For tests in which keepalived runs the director, with flows of two clients:
# c has long ones, new short ones; or two directors, as a VRRP pair.  Sourced after
# lib.sh.

readonly conf=$work/keepalived.conf pid=$work/dr.pid

# configure SCHEDULER [SERVER[:LINE]]...: its file; LINE goes to that server,
# with $more, lines for the service; $connect_s, how long a check waits
configure() {
	local server

	{
		printf '%s\n' "virtual_server $VIP4 80 {" "delay_loop 1" "lb_algo $1" \
			"lb_kind DR" "protocol TCP" "${more:-}"
		for server in "${@:2}"; do
			printf '%s\n' "real_server 10.2.0.$((10 + ${server%%:*})) 80 {" \
				"${server#"${server%%:*}"}" "TCP_CHECK {" \
				"connect_timeout ${connect_s:-10}" "retry 0" "}" "}"
		done
		echo "}"
	} | sed 's/^://' >"$conf"
}

# run_keepalived DIRECTOR ARGUMENTS...
run_keepalived() {
	bg_ns "$1" "${MHS_KEEPALIVED:-keepalived}" --dont-fork --log-console \
		--no-syslog --use-file "$conf" --pid "$work/$1.pid" \
		--checkers_pid "$work/$1.checkers" --vrrp_pid "$work/$1.vrrp" \
		"${@:2}" >>"$work/$1.log" 2>&1 &
	busywait 20 test -s "$work/$1.pid"
}

# down DIRECTOR: its keepalived
down() {
	[ ! -s "$work/$1.pid" ] || kill "$(<"$work/$1.pid")"
	busywait 20 test ! -e "$work/$1.pid"
}

# activated: health checkers that keepalived has begun so far.  It does that for
# each server of its file, at a start and at a reload, when the kernel knows the
# services.
activated() {
	grep -c "Activating healthchecker for" "$work/dr.log"
}

# configured COMMAND...: a start or a reload, until its file is taken in
configured() {
	local before servers

	: >>"$work/dr.log"
	before=$(activated)
	servers=$(grep -c real_server "$conf")
	"$@"
	busywait 40 grown "$servers" activated ||
		note "keepalived: $(activated) checkers, $before before"
}

# start [ARGUMENTS], stop: keepalived on the director
start() {
	configured run_keepalived dr --check "$@"
}

stop() {
	down dr
}

# scheduler: of the service, as the kernel has it
scheduler() {
	dr ipvsadm -Ln | awk -v "s=$VIP4:80" '$2 == s { print $3 }'
}

# weights: of the servers, by number, without those that are not listed
weights() {
	dr ipvsadm -Ln | sed -n 's/^  -> 10\.2\.0\.1\([0-9]\):80 *Route *\([0-9]*\).*/\1:\2/p' |
		sort | tr '\n' ' '
}

# weights_are LIST; wait_weights NAME LIST: a check, too
weights_are() {
	[ "$(weights)" = "$1 " ]
}

wait_weights() {
	result "$1: $2" "$(busywait 40 weights_are "$2"; echo $?)" "$(weights)"
}

# begin: flows to all servers
begin() {
	flow c reset
	flow c open 60
	flow c ping
}

# step NAME WEIGHTS COMMAND...: keepalived makes these weights of it, if given, and it
# breaks neither the long flows nor short ones, one after another
step() {
	flow_send new churn 3600
	"${@:3}"
	[ -z "$2" ] || wait_weights "$1" "$2"
	flow c ping
	check "$1: no flow broken" "60 0" "$(value flows) $(value broken)"
	flow new stop churn
	check "$1: no new flow failed" 0 "$(value failed)"
}

# front_clients: both.  Short flows come to use all ports of an address, and some
# of them leave an entry, which a flow by the same port would have, too.
front_clients() {
	ip -n "$(ns cl)" addr add 10.1.0.3/24 dev eth0
	flow_start c --host "$VIP4" --bind 10.1.0.3 --timeout 6
	flow_start new --host "$VIP4" --timeout 6 --pause 0.05
}

# front_name: a scheduler's name that keepalived knows and mhs answers for here,
# with names=mhs,mh,sed: some kernels have mh built in
front_name() {
	dr ipvsadm -A -t "$VIP4:80" -s mh
	[ -n "$(mhs State)" ] && echo mh || echo sed
	dr ipvsadm -C
}

# A VRRP pair, as its runbook has it

readonly top=$here/../../../../..
readonly page=$top/Documentation/networking/ipvs-mhs-pair.rst

# vrrp_configure SCHEDULER: the page's file, with the addresses of this network, less of
# a delay, three servers, and patience with a script and packets that are late.  With wlc it
# asks for no mhs
vrrp_configure() {
	awk '/^\tglobal_defs \{/ { in_it = 1 }
		in_it && !/^\t/ { exit }
		in_it' "$page" |
		sed "s,192\.0\.2\.1/24,$VIP4/32,; s,192\.0\.2\.1\([ :]\),$VIP4\1,
			s,mhsstat,$top/scripts/mhsstat,
			s,10\.0\.0\.,10.2.0.,; s/_delay 10/_delay 1/
			s/\(interval\|timeout\) ./&${patience:+0}/
			s/nopreempt/&\n\t    advert_int ${patience:-1}/
			s/lb_algo mh/lb_algo $1/" >"$work/page"
	[ "$1" != wlc ] || sed -i '/track_script {/,/}/d' "$work/page"
	{
		sed '$d' "$work/page"
		sed -n '/real_server 10\.2\.0\.11 /,/^\t    }/{s/\.11 /.13 /; p}' \
			"$work/page"
		echo "}"
	} >"$conf"
}

# up DIRECTOR: its keepalived
up() {
	run_keepalived "$1" --dont-release-ipvs
}

# has_vip DIRECTOR
has_vip() {
	[ -n "$(ip -n "$(ns "$1")" addr show dev eth0 to "$VIP4/32")" ]
}

# roles_are ROLE ROLE: of the sync daemons
roles_are() {
	[ "$(for n in dr d2; do
		in_ns $n ipvsadm -l --daemon | awk '{ print $1 }'
	done | paste -sd " ")" = "$*" ]
}
