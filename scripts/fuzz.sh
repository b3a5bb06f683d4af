#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time, two at once: scripts/fuzz.sh 10s
set -euo pipefail
cd "$(dirname "$0")/.."
export FUZZTIME=${1:-10s}

# one PACKAGE_DIR TARGET fuzzes one target and shows what it said only where it failed. A crash is kept under
# testdata/fuzz; minimising one must not eat the time of the others.
one() {
	local out
	if out=$(go test -run '^$' -fuzz "^$2\$" -fuzztime "$FUZZTIME" -fuzzminimizetime 2s -parallel 1 "./$1" </dev/null 2>&1); then
		echo "fuzz $1 $2: $(grep -oE 'execs: [0-9]+' <<<"$out" | tail -n 1)"
	else
		printf 'fuzz %s %s failed:\n%s\n' "$1" "$2" "$out"
		return 255 # xargs stops
	fi
}
export -f one

grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' cmd internal pkg |
	sed -E 's|/[^/]*:func | |' | sort -u |
	xargs -P 2 -L 1 bash -c 'one "$1" "$2"' _
