#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 1200
# weight: 40
# mhsstat lookup, /proc/net/ip_vs_mhs_lookup: a client's packets go where the
# kernel says they go, in every phase of its slot.

. "${0%/*}/lib.sh"
. "${0%/*}/lib_pair.sh"

top=$here/../../../../..
FLOWS=12

# look SERVICE ADDRESS [SHIFT]: what lookup says of the flows in $reply, a line for each
# to $work/looked: its port and server, the phase, then servers by their names, see
# column.  SHIFT: of the ports asked for.
look() {
	local flow

	for flow in $reply; do
		echo "${flow%=*} ${flow#*=}"
	done | in_ns dr python3 -IS -c '
import re, sys
sys.path.insert(0, sys.argv[1])
from types import SimpleNamespace
from mhsstat_lib.lookup import lookup
service, address, shift = sys.argv[2:]
name = lambda server: re.sub(r".*1(\d)\]?:\d+$", r"s\1", server or "none")
for port, server in map(str.split, sys.stdin):
    [s] = lookup(SimpleNamespace(service=[service], cid=None, client=
        f"{address}:{int(port) + int(shift)}"))["services"]
    print(port, server, s["phase"], name(s["old_server"]),
          name(s["candidate_server"]), name((s["entry"] or {}).get("server")),
          name(s["persistent"]))
' "$top/scripts" "$1" "$2" "${3:-0}" >"$work/looked"
}

# unlike COLUMN: how many flows have another server there
declare -A column=([old]=4 [candidate]=5 [entry]=6 [persistent]=7)
unlike() {
	awk -v c="${column[$1]}" '$c != $2 { found++ }
		END { print NR ? found + 0 : "nothing looked up" }' "$work/looked"
}

# phases: of the slots
phases() {
	awk '{ print $3 }' "$work/looked" | sort -u | xargs
}

# faults: of the file itself
faults() {
	in_ns dr python3 -IS - "$VIP4" <<-'EOF2'
		import errno, os, sys
		PATH = "/proc/net/ip_vs_mhs_lookup"
		service, client = f"TCP {sys.argv[1]}", "10.1.0.2 40000"

		def ask(text, file=None):
		    """The answer, or the error's name"""
		    file = file or open(PATH, "r+b", buffering=0)
		    try:
		        file.write(text.encode())
		        file.seek(0)
		        return file.read(4096)
		    except OSError as error:
		        return errno.errorcode[error.errno]

		for text in ("x", "TCP", "\n" * 4000, f"{service} 80", "TCP " + "1" * 4000,
		             f"IP {service[4:]} 80 {client}", f"{service} -1 {client}",
		             f"{service} 80 10.1.0.2 65536", f"{service} 80 10.1.0 1",
		             f"{service} 80 fd01::2 1", f"FWM 0 0 {client}",
		             f"FWM 4294967296 0 {client}", f"{service} 80 {'1' * 70} 1"):
		    if ask(text) != "EINVAL":
		        print("taken:", text)
		if ask(f"{service} 79 {client}") != "ENOENT":
		    print("no such service is one")
		if os.stat(PATH).st_mode & 0o777 != 0o600:
		    print("mode", oct(os.stat(PATH).st_mode))
		with open(PATH, "rb", buffering=0) as file:
		    if file.read(10):
		        print("an answer without a question")
		files = [open(PATH, "r+b", buffering=0) for _ in range(99)]
		answers = [ask(f"{service} 80 10.1.0.2 {port}", file)
		           for port, file in enumerate(files, 1)]
		for file in files:
		    file.seek(0)
		if [file.read(4096) for file in files] != answers:
		    print("disturbed")
		if len(set(answers)) < 90:
		    print("slots:", len(set(answers)))
	EOF2
}

plan 31
fresh_module table_size=4093
setup_net 3
windows 3600000 3600000
pair_services "1 2 3" mhs
udp pair_services "1 2 3" mhs
dgram_servers 53
flow_start t4 --host "$VIP4" --port 80 --bind 10.1.0.2
flow_start t6 --host "$VIP6" --port 80 --bind fd01::2
client_py=dgrams.py flow_start u4 --host "$VIP4" --bind 10.1.0.2
client_py=dgrams.py flow_start u6 --host "$VIP6" --bind fd01::2
declare -A service=([t4]="TCP $VIP4:80" [t6]="TCP [$VIP6]:80"
	[u4]="UDP $VIP4:53" [u6]="UDP [$VIP6]:53")
declare -A address=([t4]=10.1.0.2 [t6]="[fd01::2]" [u4]=10.1.0.2
	[u6]="[fd01::2]")

# asked CLIENT: the flows ask, and lookup is asked of them
asked() {
	flow "$1" ping
	flow "$1" where
	look "${service[$1]}" "${address[$1]}"
}

for c in t4 t6 u4 u6; do
	flow $c open $FLOWS
	asked $c
	check "$c, stable: where packets go" "0 stable" \
		"$(unlike candidate) $(phases)"
	look "${service[$c]}" "${address[$c]}" 100
	check_cmp "control: $c, stable: of other ports" "$(unlike candidate)" -gt 0
done

# the first server takes slots of the others
pair_edit -e 1 -g -w 3
udp pair_edit -e 1 -g -w 3
for c in t4 t6 u4 u6; do
	asked $c
	check "$c, hold: older flows" "0 hold stable" "$(unlike old) $(phases)"
	check_cmp "control: $c, hold: they are not all at the candidate" \
		"$(unlike candidate)" -gt 0
done
for c in t4 t6; do
	flow $c reset
	flow $c open $FLOWS
	asked $c
	check "$c, hold: new flows" 0 "$(unlike candidate)"
	check "$c, hold: those in unstable slots have an entry" \
		"$(awk '$3 == "hold"' "$work/looked" | wc -l)" \
		"$(awk '$6 == $2' "$work/looked" | wc -l)"
	check_cmp "control: $c, hold: they are not all at the old server" \
		"$(unlike old)" -gt 0
done
windows 0 3600000
for c in u4 u6; do
	busywait 20 pinning "${service[$c]#* }"
	asked $c
	check "$c, pin: plain UDP is at the candidate" "0 pin stable" \
		"$(unlike candidate) $(phases)"
done
# a service by mark in both families
dr ipvsadm -R <<-EOT
	-A -f 7 -s mhs
	-a -f 7 -r 10.2.0.11 -g
	-A -f 7 -6 -s mhs
	-a -f 7 -6 -r [fd02::12]:0 -g
EOT
asked t4
check_cmp "control: the last flows of TCP have entries" "$(wc -l <"$work/looked")" -gt \
	"$(unlike entry)"
look "FWM 7" 10.1.0.2
check "a mark does not have those" "$(wc -l <"$work/looked")" "$(unlike entry)"
check "all services of the family" "FWM 7,TCP $VIP4:80,UDP $VIP4:53" \
	"$(dr "$top/scripts/mhsstat" lookup 10.1.0.2:40000 | sed -n 's/^  service  *\(.*\), slot.*/\1/p' |
	   sort | paste -sd,)"
check "the version is the module's" "mhsstat $(modinfo -F version \
	"${MHS_KO:-ip_vs_mhs}")" "$("$top/scripts/mhsstat" --version)"

# persistence
dr ipvsadm -E -t "$SVC4" -s mhs -p 300
flow t4 reset
flow t4 open $FLOWS
flow t4 ping
flow t4 where
look "${service[t4]}" 10.1.0.2 100
check "persistence: where new connections go" 0 "$(unlike persistent)"
check_cmp "control: persistence: not by their slots" "$(unlike candidate)" -gt 0
check "the file: faults" "" "$(faults | paste -sd,)"
