#!/usr/bin/env bash
# page.sh [go test flags] tests the status page in a real Chromium, on a real Envoy, with axe-core. Screenshots go to
# $PAGE_ARTIFACTS, where that is set.
set -euo pipefail
cd "$(dirname "$0")/.."

axe=4.14.1
cache=${XDG_CACHE_HOME:-$HOME/.cache}/understudy/axe-core-$axe
if [ ! -f "$cache/axe.min.js" ]; then
	mkdir -p "$cache"
	tmp=$(mktemp -d "$cache/fetch.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	(cd "$tmp" && npm pack --silent "axe-core@$axe" >/dev/null && tar xzf "axe-core-$axe.tgz" package/axe.min.js)
	mv -f "$tmp/package/axe.min.js" "$cache/axe.min.js" # whoever runs at the same time sees no file or a whole one
fi
scripts/need.sh chromium chromium
scripts/envoy.sh 1.40.0 >/dev/null
CHROMIUM=$(command -v chromium) AXE=$cache/axe.min.js PAGE_ARTIFACTS=${PAGE_ARTIFACTS:+$(realpath -m "$PAGE_ARTIFACTS")} \
	go test -tags page -count=1 -timeout 10m "$@" ./e2e/page
