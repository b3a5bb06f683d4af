#!/usr/bin/env bash
# compose.sh [-test.FLAG…] tests the demo stack for real: a Docker daemon of our own, the images, docker-compose.yaml as it
# is, calls by the official SDKs, a killed provider, Prometheus. COMPOSE=PROGRAM takes another docker-compose than that of
# the PATH.
set -euo pipefail
cd "$(dirname "$0")/.."

cache=${XDG_CACHE_HOME:-$HOME/.cache}/understudy
mkdir -p "$cache/docker"
exec 9>"$cache/docker/lock"
flock 9 # one stack at a time on a machine

work=$(mktemp -d)
trap 'scripts/docker.sh stop; rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

status=0
started=$(scripts/docker.sh start 2>"$work/why") || status=$?
if [ $status = 77 ]; then
	bar=$(printf '#%.0s' {1..100})
	printf '%s\n### SKIPPED: THE COMPOSE STACK IS NOT TESTED: %s\n%s\n' "$bar" "$(cat "$work/why")" "$bar" >&2
	exit 0
elif [ $status != 0 ]; then
	cat "$work/why" >&2
	exit $status
fi
read -r socket netns <<<"$started"
export DOCKER_HOST=unix://$socket

scripts/compose-images.sh
[ -n "${COMPOSE:-}" ] || scripts/need.sh docker-compose docker-compose
go test -c -tags compose -o "$work/compose.test" ./e2e/compose
# The legacy builder is what every Docker and docker-compose has.
(cd e2e/compose && DOCKER_BUILDKIT=0 nsenter --net="$netns" "$work/compose.test" -test.v -test.timeout 15m "$@")
docker image prune --force >/dev/null # what earlier builds left
