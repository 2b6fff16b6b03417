# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# shellcheck disable=SC2154 # work is of lib.sh
# nginx as a real server.  Sourced after lib.sh.

# nginx_start NAMESPACE PORT: says the namespace's name, and has files of $work/files
nginx_start() {
	local dir=$work/$1

	mkdir -p "$dir" "$work/files"
	chmod a+rx "$work" "$work/files"
	cat >"$dir/conf" <<-EOF
		pid $dir/pid;
		error_log $dir/error.log;
		daemon off;
		worker_processes 1;
		events { worker_connections 256; }
		http {
			access_log off;
			server {
				listen $2; listen [::]:$2;
				location / { return 200 "$1\n"; }
				location /files { root $work; }
			}
		}
	EOF
	bg_ns "$1" nginx -q -c "$dir/conf" -e "$dir/error.log" &
	defer kill $!
	busywait 20 listening "$1" "$2"
}
