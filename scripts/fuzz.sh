#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time, two at once: scripts/fuzz.sh 10s
# Each package is built once for all of its targets: linking the cloud SDKs anew for each took longer than the fuzzing.
set -euo pipefail
cd "$(dirname "$0")/.."
export FUZZTIME=${1:-10s}
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
export built

# build PACKAGE_DIR builds its tests, instrumented.
build() {
	go test -c -fuzz . -o "$built/${1//\//-}" "./$1" </dev/null || return 255 # xargs stops
}

# one PACKAGE_DIR TARGET fuzzes one target and shows what it said only where it failed. A crash is kept under
# testdata/fuzz; minimising one must not eat the time of the others.
one() {
	local out
	if out=$(cd "$1" && "$built/${1//\//-}" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "$FUZZTIME" -test.fuzzminimizetime 2s \
		-test.parallel 1 -test.fuzzcachedir "$(go env GOCACHE)/fuzz/understudy/$1" </dev/null 2>&1) || only_time_ran_out "$out"; then
		echo "fuzz $1 $2: $(grep -oE 'execs: [0-9]+' <<<"$out" | tail -n 1)"
	else
		printf 'fuzz %s %s failed:\n%s\n' "$1" "$2" "$out"
		return 255 # xargs stops
	fi
}

# only_time_ran_out OUTPUT tells the end of the time, which Go before 1.27 now and then calls a failure
# (https://go.dev/issue/75804), from a finding: nothing is said beside progress, the deadline and FAIL.
only_time_ran_out() {
	grep -qx '    context deadline exceeded' <<<"$1" &&
		! grep -vqE '^(fuzz: elapsed: .*|--- FAIL: Fuzz[A-Za-z0-9_]+ \([0-9.]+s\)|    context deadline exceeded|FAIL|exit status 1|)$' <<<"$1"
}
export -f build one only_time_ran_out

targets=$(grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' cmd internal pkg | sed -E 's|/[^/]*:func | |' | sort -u)
cut -d' ' -f1 <<<"$targets" | sort -u | xargs -P 2 -L 1 bash -c 'build "$1"' _
xargs -P 2 -L 1 bash -c 'one "$1" "$2"' _ <<<"$targets"
