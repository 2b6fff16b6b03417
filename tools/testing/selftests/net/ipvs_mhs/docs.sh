#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 2400
# weight: 160
# Every command that a document shows works as it stands there.

. "${0%/*}/lib.sh"
. "${0%/*}/lib_real.sh"

top=$(realpath "$top")

# stand_ins: programs that the host has elsewhere than the reader's
stand_ins() {
	local signer

	mkdir "$work/bin" "$work/cwd"
	stand_in mhsstat <<-EOF
		[ "\$1" != plan ] || set -- "\$@" --table-program "$work/mhs_table"
		exec "$top/scripts/mhsstat" "\$@"
	EOF
	# the other director
	stand_in ssh <<-EOF
		while [ "\$1" = -o ]; do shift 2; done
		shift
		exec nsenter --net=/run/netns/d2-$$ sh -c "\$*"
	EOF
	# the module is not installed
	stand_in modprobe <<-EOF
		[ "\$1" = ip_vs_mhs ] || exit 1
		touch "$work/reloaded"
		exec insmod "$MHS_KO" "\${@:2}"
	EOF
	stand_in modinfo <<-EOF
		exec $(type -P modinfo) "\${@:1:\$#-1}" "$MHS_KO"
	EOF
	# it would listen for ever: only whether it understands the filter
	stand_in tcpdump <<-EOF
		exec $(type -P tcpdump) -d "\${@: -1}"
	EOF
	# no systemd is here, and the machine must go on: are verb and unit right?
	stand_in systemctl <<-EOF
		[[ \$1 =~ ^(daemon-reload|start|stop|restart|reload|enable|disable)\$ ]] || exit
		for unit in "\${@:2}"; do
			[[ \$unit = *.* ]] || unit=\$unit.service
			[[ \$unit =~ ^(--now|keepalived|bird)\.service$ ]] ||
				[ -n "\$(find "$top/examples" -name "\${unit/@*./@.}")" ] || exit
		done
	EOF
	stand_in reboot <<<'exit $#'
	# a bird of its own, with the file of the page; "down" withdraws the address
	stand_in birdc <<-EOF
		bird -c bird.conf -s \$\$.ctl -P \$\$.pid || exit
		[ ! -e down ] || $(type -P birdc) -s \$\$.ctl disable vip >down
		$(type -P birdc) -s \$\$.ctl "\$@"
		status=\$?
		kill "\$(cat \$\$.pid)"
		exit \$status
	EOF
	# not that of a kernel which is being fetched
	signer=$(find "$top"/build/kernel/*/ -path '*.new/*' -prune -o \
		-name sign-file -type f -perm -1 -print | head -n 1)
	stand_in sign-file <<-EOF
		"$signer" "\$@" &&
		[ "\$($(type -P modinfo) -F signer "\${@: -1}")" = ip_vs_mhs ]
	EOF
	# all as it was before; then a service, the same on two directors, none,
	# or no module
	stand_in reset <<-EOF
		dr="nsenter --net=/run/netns/dr-$$"
		d2="nsenter --net=/run/netns/d2-$$"
		for d in "\$dr" "\$d2"; do
			\$d ipvsadm -C
			\$d ipvsadm --stop-daemon master
			\$d ipvsadm --stop-daemon backup
		done 2>/dev/null
		if [ -e "$work/reloaded" ] || [ "\$1" = unloaded ]; then
			while [ -e /sys/module/ip_vs_mhs ]; do
				rmmod ip_vs_mhs 2>/dev/null ||
					sleep 0.2 # why: the pace of looks
			done
			rm -f "$work/reloaded"
			[ "\$1" != unloaded ] || exit 0
			insmod "$MHS_KO" || exit 1
		fi
		for d in "\$dr" "\$d2"; do
			\$d sysctl -qw net.ipv4.vs.mhs.{{hold_ms,pin_ms,lane}=0,ingress=} \
				net.ipv4.vs.{mhs.stateless=1,{conntrack,expire_nodest_conn}=0}
			\$d ipvsadm --set 1 1 1
		done
		case \$1 in
		empty) exit 0 ;;
		service) directors=("\$dr") ;;
		fleet) directors=("\$dr" "\$d2") ;;
		esac
		for d in "\${directors[@]}"; do
			\$d ipvsadm -R <<-END
				-A -t 192.0.2.1:80 -s mhs
				-a -t 192.0.2.1:80 -r 10.0.0.11:80 -g -w 1
				-a -t 192.0.2.1:80 -r 10.0.0.12:80 -g -w 1
			END
			while \$d grep -Eq " (settling|rebuilding) " /proc/net/ip_vs_mhs; do
				sleep 0.1 # why: the pace of looks
			done
		done
		[ "\$1" = fleet ] || exit 0
		\$d2 "$top/scripts/mhsstat" show --json -o "$work/cwd/lb1.json"
		for n in 2 3; do
			sed "s/\"namespace\": \"/&\$n/" "$work/cwd/lb1.json" \
				>"$work/cwd/lb\$n.json"
		done
	EOF
	cp "$MHS_KO" "$work/cwd/ip_vs_mhs.ko"
}

# docs ARGUMENTS...: the commands of documents, on the director
docs() {
	dr env PATH="$work/bin:$PATH" DOCS_DIR="$work/cwd" \
		python3 "$here/docs.py" --reset reset "$@"
}

# fault COMMAND: is it reported, in a document with nothing else in it?
fault() {
	printf 'Do this::\n\n\t%s\n' "$1" >"$work/broken.rst"
	docs "$work/broken.rst" | awk -F '\t' '{ n += $2 } END { print n + 0 }'
}

# alike [down]: the status of the program of the page of ECMP, with short times, when lb2
# announces the address, or does not
alike() {
	rm -f "$work/cwd/down"
	[ ! "${1:-}" ] || : >"$work/cwd/down"
	sed 's/[13]0s/1s/' "$work/cwd/program" | dr env -C "$work/cwd" \
		PATH="$work/bin:$PATH" sh >"$work/said" 2>&1
	echo $?
}

# what is wrong, and a command or file that has it
faults=(
	"an option" "mhsstat show --jsn"
	"a parameter" "modprobe ip_vs_mhs table_size=1000"
	"a target" "make nothing-like-it"
	"a program" "frobnicate"
	"a filter" "tcpdump 'tcp[tcpflgs] != 0'"
	"a metric" "ipvs_mhs_ups == 0"
	"a protocol of bird" "birdc disable vap"
	"a unit" "systemctl reload mhs"
	"a word of keepalived" $'global_defs {\n\tnonesuch 1\n\t}'
	"a word of bird" $'router id 10.0.0.1;\n\tnonesuch;'
)
plan $(($(python3 "$here/docs.py" --count) + ${#faults[@]} / 2 + 3))
make -s -C "$top/tools/net/ipvs_mhs" O="$work"
fresh_module
setup_net 0
director d2 30
stand_ins
report docs

# what a director waits for before it announces the address, but for what docs.py had
dr sysctl -qw net.ipv4.vs.mhs.second_chance=
in_ns d2 sysctl net.ipv4.vs | dr sysctl -qp - 2>"$work/said"
dr env PATH="$work/bin:$PATH" reset fleet
in_ns d2 ipvsadm -e -t 192.0.2.1:80 -r 10.0.0.12:80 -g -w 3
check "alike: lb2 has other tables" 124 "$(alike)"
dr ipvsadm -d -t 192.0.2.1:80 -r 10.0.0.12:80
check "alike: it does not announce the address, and a server is dead" 0 "$(alike down)"

check "control: a good command" 0 "$(fault "mhsstat show")"
for ((i = 0; i < ${#faults[@]}; i += 2)); do
	check "control: ${faults[i]} that is not there" 1 \
		"$(fault "${faults[i + 1]}")"
done
dr ipvsadm -C
