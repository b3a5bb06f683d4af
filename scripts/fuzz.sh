#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time: scripts/fuzz.sh 10s
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
grep -rlE '^func Fuzz' --include='*_test.go' cmd internal pkg | xargs -n1 dirname | sort -u | while read -r dir; do
	go test -list '^Fuzz' "./$dir" | grep '^Fuzz' | while read -r target; do
		echo "fuzz $dir $target for $time"
		# A crash is kept under testdata/fuzz; minimising one must not eat the time of the others.
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 2s "./$dir" </dev/null | tail -n 1
	done
done
