# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash disable=SC2034,SC2154 # who sources it sets top, and exits
# What the tests of packages share: KTAP, kernels that come and go in the chroot
# of lib_root.sh.  Sourced after n, failed and log are set.

# shellcheck source=lib_root.sh
. "$top/tools/testing/packages/lib_root.sh"

# begin NAME PLAN [SUITE]: a chroot of that name, with the sources in /src/ipvs-mhs
begin() {
	echo "KTAP version 1"
	echo "1..$2"
	mkdir -p "${log%/*}"
	: >"$log"
	fresh_root "$1" "${@:3}"
	trap 'rm -rf "$root"' EXIT
	mkdir "$root/src" "$root/src/ipvs-mhs"
	tar -C "$top" -c --exclude=./build --exclude=./.git --exclude='*.ko' \
		--exclude=__pycache__ . |
		tar -x -C "$root/src/ipvs-mhs"
}

# ok NAME COMMAND...: does it succeed?
ok() {
	local name=$1 status=ok

	shift
	n=$((n + 1))
	if ! "$@" >>"$log" 2>&1; then
		status="not ok"
		failed=1
	fi
	echo "$status $n $name"
}

# equal NAME WANT GOT
equal() {
	[ "$2" = "$3" ] || echo "# want $2, got $3"
	ok "$1" test "$2" = "$3"
}

release() {
	cat "$top/build/kernel/$1/release"
}

# put_kernel NAME [TREE...]: as its image and headers would be, but of modules the
# network's and those of lib (libaes); or these trees of them
put_kernel() {
	local from=$top/build/kernel/$1 link target
	local trees=("${@:2}")

	[ $# -gt 1 ] || trees=(boot lib/modules usr/src usr/lib)
	mkdir -p "$root/boot" "$root/lib/modules" "$root/usr/src"
	(cd "$from" && tar -c --exclude='lib/modules/*/kernel/[!ln]*' \
		"${trees[@]}") |
		tar -x --keep-directory-symlink -C "$root"
	# /lib is a link here, which a relative one would miss
	for link in build source; do
		target=$(readlink "$from/lib/modules/$(release "$1")/$link") || continue
		ln -sfn "/usr/src/${target##*/}" \
			"$root/lib/modules/$(release "$1")/$link"
	done
	inside depmod "$(release "$1")"
}

# module NAME [ALIAS]: what modprobe would load, for the scheduler if not given
module() {
	inside modprobe -S "$(release "$1")" --show-depends "${2:-ip_vs_mhs}" 2>&1 |
		sed -n '$s/^insmod \([^ ]*\).*/\1/p'
}

vermagic() {
	inside modinfo -F vermagic "$(module "$1")" | sed 's/ .*//'
}

# traces: files of ours, wherever
traces() {
	(cd "$root" && find etc lib usr var/lib -path var/lib/dpkg -prune -o \
		\( -ipath '*mhs*' -o -ipath '*qdisc[-_]tool*' -o \
		-ipath '*real_server*' \) -print)
}

tool_works() {
	inside "/usr/sbin/$1" --help &&
		inside man -w "$1" &&
		inside bash -c ". /usr/share/bash-completion/bash_completion;
			_completion_loader $1; complete -p $1"
}

# dead_links PACKAGE: links of its README.md that lead nowhere; "no README.md"
# without one
dead_links() {
	local doc=$root/usr/share/doc/$1 link

	[ -e "$doc/README.md" ] || echo "no README.md"
	grep -oE '(\]\(|src="|href=")[^)"# ]+' "$doc/README.md" |
		sed -E 's/^(\]\(|src="|href=")//' | grep -v : |
		while read -r link; do
			[ -e "$doc/$link" ] || echo "$link"
		done
}

# installed NAME: the kernel finds the module, and that the one of the lane, of the same
# place and build
installed() {
	[ "$(vermagic "$1")" = "$(release "$1")" ] &&
		[ "$(module "$1" symbol:ip_vs_mhs_lane)" = \
			"$(module "$1" | sed 's/mhs\.ko/mhs_lane.ko/')" ]
}

# check_make_install NAME: 4 tests of make install, by the headers of that kernel
check_make_install() {
	local release

	release=$(release "$1")
	ok "make install" inside make -C /src/ipvs-mhs install RELEASE="$release"
	equal "make install puts the module where modprobe looks" \
		"/lib/modules/$release/updates/ip_vs_mhs.ko" "$(module "$1")"
	ok "make uninstall" inside make -C /src/ipvs-mhs uninstall \
		RELEASE="$release"
	equal "make uninstall leaves nothing behind" "" "$(traces)"
}
