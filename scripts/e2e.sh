#!/usr/bin/env bash
# Runs the end-to-end tests, with every Envoy that they need at hand: scripts/e2e.sh [go test flags]
set -euo pipefail
cd "$(dirname "$0")/.."
for version in 1.36.4 1.39.3 1.40.0; do
	scripts/envoy.sh "$version" >/dev/null
done
go test -tags e2e -count=1 -timeout 40m "$@" ./e2e/... ./pkg/envoyconf ./pkg/processor ./pkg/provider/credential ./cmd/extproc
