#!/bin/sh
# istio.sh builds e2e/mesh/istiopatch once, Istio's own code that applies EnvoyFilters, and prints the binary's path. The
# first build takes some minutes.
set -eu

source=$(cd "$(dirname "$0")/../e2e/mesh/istiopatch" && pwd)
version=$(cd "$source" && { cat go.mod go.sum ./*.go; go env GOVERSION; } | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/understudy
patch=$cache/istiopatch-$version/istiopatch
if [ -x "$patch" ]; then
	echo "$patch"
	exit
fi

# Everything happens beside the target, so that the last step is one rename.
mkdir -p "$cache/istiopatch-$version"
tmp=$(mktemp -d "$cache/istiopatch-$version/build.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
(cd "$source" && GOFLAGS= GOWORK=off go build -o "$tmp/istiopatch" .) >&2
mv -f "$tmp/istiopatch" "$patch"
echo "$patch"
