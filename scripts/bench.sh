#!/usr/bin/env bash
# Measures what Understudy costs, side by side with Envoy alone, with the least that any ext_proc service would cost (the
# floor), and with peers: scripts/bench.sh [flags of `bench run`]
#
#   BENCH=full    all, at most 40 minutes; writes docs/results.md and envoy/sizing.md, and the raw data that they are made
#                 from: docs/results.jsonl, docs/fleet.jsonl
#   BENCH=quick   most of it, briefly and without peers, some 5 minutes; prints the page (the default)
#   EXTPROC=PATH  a build of the service to measure instead of one made here
#
# One workload, two builds of the service beside the floor:
#   scripts/bench.sh -workloads json-small -variants floor,before,understudy -before /path/of/old/extproc -rounds 6
set -euo pipefail
export CGO_ENABLED=0 # as in the image
cd "$(dirname "$0")/.."
envoy=$(scripts/envoy.sh "${ENVOY_VERSION:-1.40.0}")
go build -o bin/bench ./bench
if [ -z "${EXTPROC:-}" ]; then
	go build -o bin/extproc ./cmd/extproc
	EXTPROC=bin/extproc
fi
run=(bin/bench run -envoy "$envoy" -extproc "$EXTPROC")
case ${BENCH:-quick} in
quick)
	"${run[@]}" -raw bin/bench.jsonl -rounds 2 -lasts 1s \
		-workloads json-small,json-100k,json-8m,stream-20,stream-200,throughput,fail-10,fail-100,open-100,open-2000 "$@"
	;;
full)
	eval "$(scripts/peers.sh)"
	"${run[@]}" -raw docs/results.jsonl -variants direct,envoy,floor,understudy,litellm,portkey \
		-litellm "$LITELLM" -portkey "$PORTKEY" "$@" >bin/results.md
	go test ./pkg/fleet -count=1 -run LargeFleet -simulation "$PWD/docs/fleet.jsonl" >&2 # last: before, it would be what else the machine does
	bin/bench sizing -raw docs/results.jsonl -fleet docs/fleet.jsonl >bin/sizing.md
	mv bin/results.md docs/results.md
	mv bin/sizing.md envoy/sizing.md
	;;
*) echo "bench.sh: BENCH is quick or full, not $BENCH" >&2; exit 2 ;;
esac
