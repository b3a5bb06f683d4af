#!/usr/bin/env bash
# Two replicas under a mixed load, with faults, reloads and restarts, for SOAK (1h): memory, goroutines, file handles and
# latency must stay flat. SOAK=2m is the short version, which CI runs.
set -euo pipefail
export CGO_ENABLED=0 # as in the image
cd "$(dirname "$0")/.."
envoy=$(scripts/envoy.sh "${ENVOY_VERSION:-1.40.0}")
go build -o bin/bench ./bench
go build -o bin/extproc ./cmd/extproc
bin/bench soak -envoy "$envoy" -lasts "${SOAK:-1h}" -raw bin/soak.jsonl "$@"
