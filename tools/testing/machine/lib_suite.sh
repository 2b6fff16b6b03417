# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash disable=SC2154
# Packages of another Debian suite, without touching this machine's apt.
# Sourced; $top is the top of the tree, $here has the list of kernels.

apt=()	# options that make apt see the wanted suite only

say() {
	echo "setup: $*" >&2
}

die() {
	say "$*"
	exit 1
}

# The mirror that this machine is configured for, as apt itself tells.
debian_mirror() {
	# shellcheck disable=SC2016 # apt's variables
	apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' \
		'Created-By: Packages' | sed -n 's/^Debian|Debian|//p' |
		head -n 1
}

# source_kernel: the row whose source is built
source_kernel() {
	awk '$4 == "source" { print $1 }' "$here/kernels"
}

# is_version NAME: or does the row take what there is?
is_version() {
	[[ $1 =~ ^[0-9.]+$ ]]
}

# no_suite NAME SUITES
no_suite() {
	die "no kernel $1 in $2: name one that is there in $here/kernels, and" \
		"see what it changes by 'make check-newest'"
}

# use_suite SUITE: an apt of its own, which leaves the machine's as it is
use_suite() {
	local dir=$top/build/apt/$1 mirror

	mirror=$(debian_mirror)
	if [ -z "$mirror" ]; then
		say "updating the package lists"
		apt-get -q update >/dev/null
		mirror=$(debian_mirror)
	fi
	[ -n "$mirror" ] ||
		die "no Debian mirror in this machine's apt configuration"
	[ "$1" != - ] || return 0
	mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
	: >"$dir/status"
	echo "deb $mirror $1 main" >"$dir/sources.list"
	apt=(-o "Dir::Etc::sourcelist=$dir/sources.list"
		-o Dir::Etc::sourceparts=/dev/null
		-o Dir::Etc::preferences=/dev/null
		-o Dir::Etc::preferencesparts=/dev/null
		-o "Dir::State::status=$dir/status"
		-o "Dir::State::lists=$dir/lists"
		-o "Dir::Cache=$dir/cache")
	say "reading the package list of $1"
	apt-get "${apt[@]}" -o APT::Sandbox::User=root -q update >/dev/null ||
		die "cannot read suite $1: does the mirror have it?"
}

# download DIR PACKAGE...
download() {
	local dir=$1

	shift
	mkdir -p "$dir"
	(cd "$dir" && apt-get "${apt[@]}" -o APT::Sandbox::User=root -q \
		download "$@" >download.log 2>&1) ||
		{ tail -n 5 "$dir/download.log" >&2; die "cannot download $*"; }
}
