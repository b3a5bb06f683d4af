#!/usr/bin/env bash
# mesh.sh [go test flags] runs what needs the tools of a mesh: Envoy Gateway's control plane and Istio's patch code in front
# of real Envoys. The first time it builds those tools, which takes some twenty minutes.
#
# mesh.sh --if-changed does nothing, and says so, where the very same sources have passed on this machine before.
set -euo pipefail
cd "$(dirname "$0")/.."

# What these tests look at: what Envoy is told, where requests are sent, and the tests themselves.
sources=(envoy pkg/envoyconf pkg/processor pkg/chain pkg/provider pkg/config cmd/extproc/attach.go internal e2e/mesh scripts go.mod)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/understudy
mkdir -p "$cache"
passed=$cache/mesh-passed-$(git ls-files -s -- "${sources[@]}" | sha256sum | cut -c1-16)
bar=$(printf '#%.0s' {1..100})
if [ "${1-}" = --if-changed ]; then
	shift
	if [ -e "$passed" ] && git diff --quiet HEAD -- "${sources[@]}"; then
		printf '%s\n### NOT RUN: THE TESTS OF ENVOY GATEWAY AND ISTIO: the same sources passed here on %s (make test-mesh runs them)\n%s\n' \
			"$bar" "$(date -r "$passed" +%F)" "$bar" >&2
		exit
	fi
fi

for version in 1.36.4 1.40.0; do
	scripts/envoy.sh "$version" >/dev/null
done
scripts/gateway.sh >/dev/null
scripts/istio.sh >/dev/null
go test -tags mesh -count=1 -timeout 30m "$@" ./e2e/mesh
if [ $# = 0 ] && git diff --quiet HEAD -- "${sources[@]}"; then # with flags it may have been a part
	touch "$passed"
fi
