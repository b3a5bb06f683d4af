#!/bin/sh
# peers.sh installs the gateways that Understudy is measured beside, once, and prints where they are, for eval:
#   LITELLM=PATH  the LiteLLM proxy, from PyPI, in a virtual environment of its own
#   PORTKEY=PATH  start-server.js of the Portkey gateway, from npm
set -eu

litellm=1.100.5 # of later ones, the proxy needs litellm-proxy, which is not on PyPI
portkey=1.15.2

cache=${XDG_CACHE_HOME:-$HOME/.cache}/understudy
mkdir -p "$cache"

# Python calls what is in a virtual environment by absolute paths: it cannot be moved into place, so a file says that it is whole.
place=$cache/litellm-$litellm
if [ ! -e "$place/whole" ]; then
	rm -rf "$place"
	python3 -m venv "$place" >&2
	"$place/bin/pip" install --quiet --disable-pip-version-check "litellm[proxy]==$litellm" >&2
	touch "$place/whole"
fi
echo "LITELLM=$place/bin/litellm"

place=$cache/portkey-$portkey
if [ ! -e "$place/node_modules/@portkey-ai/gateway/build/start-server.js" ]; then
	tmp=$(mktemp -d "$cache/portkey.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	# With a later server library the gateway answers every stream with a 500 ("TypeError: immutable").
	echo "{\"dependencies\":{\"@portkey-ai/gateway\":\"$portkey\"},\"overrides\":{\"@hono/node-server\":\"1.13.8\"}}" >"$tmp/package.json"
	npm install --silent --no-fund --no-audit --prefix "$tmp" >&2
	rm -rf "$place"
	mv "$tmp" "$place"
fi
echo "PORTKEY=$place/node_modules/@portkey-ai/gateway/build/start-server.js"
