#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 2400
# weight: 400
# Every command that a document shows works as it stands there.

. "${0%/*}/lib.sh"

top=$(realpath "$here/../../../../..")

# stand_in NAME: a program of that name, on standard input, for the commands
stand_in() {
	{ echo "#!/bin/bash"; cat; } >"$work/bin/$1"
	chmod +x "$work/bin/$1"
}

# stand_ins: programs that the host has elsewhere than the reader's
stand_ins() {
	local signer

	mkdir -p "$work/bin" "$work/cwd"
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
		verb=\$1
		shift
		[ "\$1" != --now ] || shift
		case \$verb in
		daemon-reload) exit \$# ;;
		start | stop | restart | reload | enable | disable) ;;
		*) exit 1 ;;
		esac
		[ \$# -gt 0 ] || exit 1
		for unit; do
			case \$unit in keepalived | bird) continue ;; esac
			[[ \$unit = *.* ]] || unit=\$unit.service
			[ -n "\$(find "$top/examples" -name "\${unit/@*./@.}")" ] || exit 1
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
		\$dr ipvsadm -C
		\$d2 ipvsadm -C
		\$dr ipvsadm --stop-daemon master 2>/dev/null
		\$dr ipvsadm --stop-daemon backup 2>/dev/null
		if [ -e "$work/reloaded" ] || [ "\$1" = unloaded ]; then
			for ((i = 0; i < 100; i++)); do
				rmmod ip_vs_mhs 2>/dev/null
				[ -e /sys/module/ip_vs_mhs ] || break
				sleep 0.2 # why: the pace of looks
			done
			rm -f "$work/reloaded"
			[ "\$1" != unloaded ] || exit 0
			insmod "$MHS_KO" || exit 1
		fi
		for d in "\$dr" "\$d2"; do
			\$d sysctl -qw net.ipv4.vs.mhs.hold_ms=0 \
				net.ipv4.vs.mhs.pin_ms=0
			\$d ipvsadm --set 1 1 1
		done
		\$dr sysctl -qw net.ipv4.vs.mhs.stateless=1 \
			net.ipv4.vs.conntrack=0 \
			net.ipv4.vs.mhs.lane=0 net.ipv4.vs.mhs.ingress= \
			net.ipv4.vs.expire_nodest_conn=0
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
			for ((i = 0; i < 600; i++)); do
				\$d grep -Eq " (settling|rebuilding) " \
					/proc/net/ip_vs_mhs || break
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

# alike [down] PROGRAM: the status of a program of the page of ECMP, with short times,
# when lb2 announces the address, or does not
alike() {
	rm -f "$work/cwd/down"
	[ "$1" != down ] || { shift; : >"$work/cwd/down"; }
	sed 's/[13]0s/1s/' "$work/cwd/$1" | dr env -C "$work/cwd" \
		PATH="$work/bin:$PATH" sh >"$work/said" 2>&1
	echo $?
}

# what is wrong, and a command or file that has it
faults=(
	"an option" "mhsstat show --jsn"
	"a scheduler" "ipvsadm -A -t 192.0.2.2:80 -s nhs"
	"a server" "ipvsadm -d -t 192.0.2.1:80 -r 10.0.0.19:80"
	"a sysctl" "sysctl -w net.ipv4.vs.mhs.hold=1"
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
plan $(($(python3 "$here/docs.py" --count) + ${#faults[@]} / 2 + 6))
make -s -C "$top/tools/net/ipvs_mhs" O="$work"
fresh_module
setup_net 0
director d2 30
stand_ins
report docs

# what a director waits for before it announces the address
dr sysctl -qw net.ipv4.vs.mhs.second_chance=
in_ns d2 sysctl net.ipv4.vs | dr sysctl -qp - 2>"$work/said"
dr env PATH="$work/bin:$PATH" reset fleet
check "alike: the tables of lb2" 0 "$(alike program)"
in_ns d2 ipvsadm -e -t 192.0.2.1:80 -r 10.0.0.12:80 -g -w 3
check "alike: lb2 has other tables" 124 "$(alike program)"
check "alike: lb2, with other tables, does not announce the address" 0 \
	"$(alike down program)"
dr ipvsadm -d -t 192.0.2.1:80 -r 10.0.0.12:80
check "alike: it does not, and a server is dead" 0 "$(alike down program)"
sed '/^ *exec.* 1 /d; s/ ||$//' "$work/cwd/program" >"$work/cwd/strict"
check "control: one that insists on all servers" 124 "$(alike down strict)"

check "control: a good command" 0 "$(fault "mhsstat show")"
for ((i = 0; i < ${#faults[@]}; i += 2)); do
	check "control: ${faults[i]} that is not there" 1 \
		"$(fault "${faults[i + 1]}")"
done
dr ipvsadm -C
