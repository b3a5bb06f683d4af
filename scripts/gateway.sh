#!/bin/sh
# gateway.sh builds Envoy Gateway's two programs once, from the Go module whose checksum the Go checksum database vouches
# for, and prints the directory that holds them. The first time takes some ten minutes.
set -eu

version=1.9.1
dir=${XDG_CACHE_HOME:-$HOME/.cache}/understudy/gateway-$version
mkdir -p "$dir"
# go install puts a program there in one step, so whoever runs at the same time sees none or a whole one.
for program in egctl envoy-gateway; do
	[ -x "$dir/$program" ] || (cd "$dir" && GOFLAGS= GOBIN=$dir go install "github.com/envoyproxy/gateway/cmd/$program@v$version" >&2)
done
echo "$dir"
