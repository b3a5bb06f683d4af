#!/usr/bin/env bash
# docker.sh start   starts a Docker daemon of our own and prints "SOCKET NETNS"
# docker.sh stop    ends it, by its pid, and its network namespace
#
# The daemon lives in a network namespace of its own, so that neither its bridges nor its firewall rules touch the host:
# reach its published ports with nsenter --net=NETNS. Images and build layers stay in the user's cache folder.
# Exit code 77: Docker cannot run on this machine at all; the reason is on stderr.
set -euo pipefail

home=${XDG_CACHE_HOME:-$HOME/.cache}/understudy/docker
run=$home/run
socket=$run/docker.sock
netns=understudy-$(printf %s "$home" | cksum | cut -d' ' -f1) # another user's daemon has another

cannot() {
	echo "$1" >&2
	exit 77
}

# alive PID: that process is a daemon of this script's.
alive() {
	[ -n "$1" ] && { tr '\0' ' ' <"/proc/$1/cmdline"; } 2>/dev/null | grep -qF -- "--exec-root $run"
}

# orphans ends the containers of a daemon that was killed, and their shims: no later daemon would.
orphans() {
	local runc=$run/runtime-runc/moby shim
	[ ! -d "$runc" ] || runc --root "$runc" list --quiet | xargs -r -n 1 runc --root "$runc" delete --force >&2 || true
	for shim in $(grep -lszxF -f - /proc/[0-9]*/cmdline <<<"$run/containerd/containerd.sock"); do
		kill -KILL "$(cut -d/ -f3 <<<"$shim")" 2>/dev/null || true # it may have ended by itself
	done
}

# What an earlier run left, a killed one too: the daemon, its mounts, its namespace.
stop() {
	local pid
	pid=$(cat "$home/pid" 2>/dev/null || true)
	if alive "$pid"; then
		kill "$pid"
		for _ in $(seq 300); do
			alive "$pid" || break
			sleep 0.1
		done
		! alive "$pid" || kill -KILL "$pid"
	fi
	orphans
	awk -v at="$home/" 'index($2, at) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount --lazy
	ip netns delete "$netns" 2>/dev/null || true
	rm -rf "$run" "$home/pid"
}

install() {
	local need
	need=$(dirname "$0")/need.sh
	"$need" docker.io dockerd runc
	"$need" docker-cli docker # before Debian 13 that came with docker.io
	"$need" iptables iptables
	"$need" iproute2 ip
}

start() {
	[ "$(uname -s)" = Linux ] || cannot "Docker's daemon needs Linux, this is $(uname -s)"
	[ "$(id -u)" = 0 ] || cannot "Docker's daemon needs root, this is user $(id -un)"
	install
	stop
	mkdir -p "$run"
	ip netns add "$netns" || cannot "no network namespace can be made here"
	nsenter --net="/run/netns/$netns" ip link set lo up
	# Not ip netns exec: it mounts another /sys, and the daemon would not find the cgroups. Descriptor 9 is the caller's lock.
	nsenter --net="/run/netns/$netns" dockerd --data-root "$home/data" --exec-root "$run" --pidfile "$run/docker.pid" \
		--host "unix://$socket" --log-level warn >"$home/log" 2>&1 9>&- &
	local pid=$!
	echo "$pid" >"$home/pid"
	for _ in $(seq 1200); do
		if docker --host "unix://$socket" version >/dev/null 2>&1; then
			echo "$socket /run/netns/$netns"
			return
		fi
		kill -0 "$pid" 2>/dev/null || break # not alive: a process that is only now starting has not its words yet
		sleep 0.1
	done
	if kill -0 "$pid" 2>/dev/null; then # a slow machine is no reason to skip
		echo "docker.sh: the daemon runs, and has not answered for two minutes: $(tail -n 3 "$home/log")" >&2
		stop
		exit 1
	fi
	stop
	cannot "the daemon does not start: $(tail -n 3 "$home/log")"
}

case ${1:-} in
start) start ;;
stop) stop ;;
*) echo "usage: docker.sh start|stop" >&2; exit 2 ;;
esac
