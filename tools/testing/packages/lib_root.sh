# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# shellcheck disable=SC2154 # who sources it sets top
# A minimal Debian to change at will.  Sourced; $top is the tree.

here=$top/tools/testing/packages
machine=$top/tools/testing/machine
roots=$top/build/chroot
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
# A make inside must not see the variables that were given to the one outside
unset KERNEL MAKEFLAGS MAKEOVERRIDES MFLAGS

# shellcheck source=../machine/lib_suite.sh
. "$machine/lib_suite.sh"

# wanted [SUITE]: names of the packages inside; in another suite than this
# machine's what README.md has an operator install
wanted() {
	if [ $# -eq 0 ]; then
		sed 's/[[:space:]]*#.*//; /^$/d' "$here/chroot.packages"
	else
		sed -n 's/^    apt-get install //p' "$top/README.md" | tr ' ' '\n'
	fi
}

# base_root [SUITE]: made once, in minutes
base_root() {
	local base=$roots/base${1:+-$1} suite=${1:-}

	! cmp -s <(wanted "$@") "$base/wanted" || return 0
	use_suite -
	# shellcheck disable=SC1091 # of the machine
	[ -n "$suite" ] || suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
	say "making a minimal $suite in $base: some minutes"
	rm -rf "$base" "$base.new"
	mkdir -p "$roots"
	root=$base.new
	make_root "$suite" "$(debian_mirror)" "$@" >"$base.log" 2>&1 || {
		tail -n 5 "$base.log" >&2
		die "that failed, all of it: $base.log"
	}
	wanted "$@" >"$root/wanted"
	mv "$root" "$base"
}

# updates SUITE: lines for sources.list of those suites, SUITE-security among
# them, that this machine takes updates of SUITE from.  A Debian has them by
# default, and kernels come through them.
updates() {
	# shellcheck disable=SC2016 # apt's variables
	apt-get indextargets --format '$(ORIGIN) $(CODENAME) $(REPO_URI)' \
		'Created-By: Packages' |
		awk -v suite="$1-" '$1 == "Debian" && index($2, suite) == 1 {
			print "deb", $3, $2, "main" }' | sort -u
}

# make_root SUITE MIRROR [WANTED-SUITE]
make_root() {
	local packages

	debootstrap --variant=minbase "$1" "$root" "$2" &&
		echo "deb-src $2 $1 main" >>"$root/etc/apt/sources.list" &&
		updates "$1" >>"$root/etc/apt/sources.list" &&
		apt-config dump Acquire >"$root/etc/apt/apt.conf.d/90acquire" &&
		cp /etc/resolv.conf "$root/etc/resolv.conf" &&
		inside apt-get -q update &&
		mapfile -t packages < <(wanted "${@:3}") &&
		inside apt-get -q -y --no-install-recommends install \
			"${packages[@]}"
}

# fresh_root NAME [SUITE]: a copy; its path in $root
fresh_root() {
	base_root "${@:2}"
	root=$roots/$1
	rm -rf "$root"
	cp -a --reflink=auto "$roots/base${2:+-$2}" "$root"
	cp /etc/resolv.conf "$root/etc/resolv.conf"
}

# inside COMMAND...: run it there, with processes of its own
inside() {
	unshare --mount --pid --fork --kill-child \
		--mount-proc="$root/proc" chroot "$root" "$@"
}
