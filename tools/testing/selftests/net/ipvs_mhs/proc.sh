#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# timeout: 480
# weight: 35
# tags: core
# /proc/net/ip_vs_mhs: what its columns have to do with each other, in every state of a
# service, and while several read it and the servers change.

. "${0%/*}/lib.sh"
. "${0%/*}/lib_pair.sh"

FIRST="Prot Address:Port State Servers Gone NoSlot Size Stable Hold Pin Tracked NextMergeMs\
 Entries PktStateless PktOld PktCandidate PktTracked PktUnsettled NewEntries PinnedEntries\
 Capped NoMemory BuildUs OldPrint CandidatePrint"

# faults: what is wrong in a dump of the file on standard input; counters of a
# service must not fall from one dump to the next
faults() {
	awk '
		function bad(what) { print what ": " $0 }
		$1 == "Prot" {
			dumps++
			nf = NF
			for (i = 1; i <= NF; i++)
				col[$i] = i
			next
		}
		NF != nf { bad("fields"); next }
		$col["Stable"] + $col["Hold"] + $col["Pin"] != $col["Size"] {
			bad("sum of the slots")
		}
		$col["Tracked"] > $col["Size"] { bad("tracked") }
		$col["State"] !~ /^(settling|rebuilding|transition|stable)$/ {
			bad("state")
		}
		$col["State"] == "stable" && $col["StableMs"] ||
		$col["NextMergeMs"] > $col["StableMs"] {
			bad("time to merge")
		}
		length($col["OldPrint"]) != 16 ||
		length($col["CandidatePrint"]) != 16 ||
		($col["OldPrint"] $col["CandidatePrint"]) ~ /[^0-9a-f]/ {
			bad("prints")
		}
		$col["State"] == "stable" &&
		$col["OldPrint"] != $col["CandidatePrint"] {
			bad("prints of a stable table")
		}
		{
			for (i = col["PktStateless"]; i <= col["NoMemory"]; i++) {
				if ($i < last[$2, i] + 0)
					bad("counter " i)
				last[$2, i] = $i
			}
		}
		END { if (!dumps) print "no dump" }'
}

# look: one dump, kept with the earlier ones
look() {
	dr cat /proc/net/ip_vs_mhs >>"$work/dumps"
}

# reader N: read it in pieces of that size, until told to stop
reader() {
	while [ ! -e "$work/stop" ]; do
		dd if=/proc/net/ip_vs_mhs bs="$1" status=none
	done >"$work/reader.$1"
}

# sockopt WHAT OPTION...: see sockopt.py, in a namespace made with unshare
sockopt() {
	unshare "${@:2}" --net sh -c \
		"ip link set lo up; exec python3 -IS '$here/sockopt.py' $1"
}

plan 18
load_module
setup_net 3
check "no service: the head alone" 1 "$(dr sed -n '$=' /proc/net/ip_vs_mhs)"
check "columns: new ones are at the end" "$FIRST" \
	"$(dr head -n 1 /proc/net/ip_vs_mhs | cut -d ' ' -f 1-25)"
windows 3600000 3600000
# ipvsadm works in no namespace of a user namespace, the older socket options do
check "a user namespace: services are refused, those of others not" "EPERM made" \
	"$(sockopt refused --user --map-root-user)"
check "control: in other namespaces they are not" "made EEXIST" \
	"$(sockopt refused)"
# the kernel has no function for every forwarding method
check "all forwarding methods: packets do no harm" 320 \
	"$(sockopt methods)"

pair_services "1 2 3" mhs
dr ipvsadm -A -f 7 -s mhs
dr ipvsadm -A -u $VIP4:53 -s mhs
look
pair_clients --timeout 4
pair open 30
pair ping
check_cmp "stable: packets" "$(mhs PktStateless)" -ge 90
look

pair_edit -a 4 -g
pair ping
look
left=$(mhs NextMergeMs)
falls() {
	[ "$(mhs NextMergeMs)" -lt "$left" ]
}
busywait 10 falls
result "hold: the time to the merge falls" $?
check_cmp "hold: it is hold and pin" "$left" -gt 7000000

to_pin
pair ping
check "pin: entries" "$(pair_total PinnedEntries)" "$(conns)"
check_cmp "pin: the time is that of pin" "$(mhs NextMergeMs)" -le 3960000
look
windows 3600000 3600000
pair_edit -a 5 -g
check_cmp "second change: the last slots are stable an hour later" \
	"$(mhs StableMs)" -gt $(($(mhs NextMergeMs) + 3000000))
look
pair_edit -d 5
to_stable
check "merged: fingerprints" "$(mhs CandidatePrint)" "$(mhs OldPrint)"
look
windows 3600000 3600000
pair_edit -d 4
pair_edit -d 3
look
check "deleted: servers" "2 2" "$(mhs Servers) $(mhs Gone)"
to_stable
look
check "seen in every state: no fault" "" "$(faults <"$work/dumps")"
check "control: a slot too many is seen" "sum of the slots" \
	"$(sed 's/ stable \(.*\) 4093 4093 / stable \1 4093 4094 /' \
	   "$work/dumps" | faults | cut -d : -f 1 | sort -u)"
check_cmp "control: a counter that falls is seen" \
	"$({ cat "$work/dumps"; head -n 5 "$work/dumps"; } | faults |
	   grep -c ^counter)" -gt 0

# Readers in the middle of changes
windows 300 500
pids=()
for n in 300 4096 65536; do
	bg_ns dr bash -c "$(declare -f reader)
		work=$work reader $n" &
	pids+=($!)
done
flow_send c4 busy 3600
for i in 1 2 3 4 5 6 7 8; do
	pair_edit -a 3 -g
	pair_edit -e 2 -g -w $i
	printf '%s\n' "-D -f 7" "-A -f 7 -s mhs" | dr ipvsadm -R
	pair_edit -d 3
done
: >"$work/stop"
flow c4 stop
wait "${pids[@]}"
# a read in pieces is not one moment, its lines are whole all the same
check "while it changes: no fault" "" \
	"$(for n in 4096 65536; do faults <"$work/reader.$n"; done)"
check "while it changes: no torn line" 0 \
	"$(awk 'NR == 1 { nf = NF } NF != nf { n++ }
		END { print n + 0 }' "$work/reader.300")"
pair reset
dr ipvsadm -C
