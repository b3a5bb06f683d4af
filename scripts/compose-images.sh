#!/usr/bin/env bash
# compose-images.sh puts the third-party images of docker-compose.yaml and of the Dockerfile, under their own names, into
# the daemon of $DOCKER_HOST, for machines that reach no image registry. Envoy, Prometheus and Go are the real programs on
# a Debian base; Grafana is a stand-in, and says so.
set -euo pipefail
cd "$(dirname "$0")/.."
export DOCKER_BUILDKIT=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# image NAME: its reference in the files that users run.
image() { grep -hoE "(image:|FROM) +$1:[^ ]+" docker-compose.yaml Dockerfile | awk '{ print $2 }' | sort -u; }

# fresh REF KEY: the image is there, and was made of what KEY stands for.
fresh() { [ "$(docker image inspect --format '{{ index .Config.Labels "understudy.key" }}' "$1" 2>/dev/null)" = "$2" ]; }

# build REF KEY [FLAG…]: the Dockerfile on stdin, with $work/context.
build() {
	local ref=$1 key=$2
	shift 2
	echo "building $ref" >&2
	docker build --quiet --force-rm --label "understudy.key=$key" --tag "$ref" --file - "$@" "$work/context" >/dev/null
	rm -rf "$work/context"
}

base=debian:bookworm-slim
if ! fresh $base debootstrap; then
	scripts/need.sh debootstrap debootstrap
	echo "building $base" >&2
	debootstrap --variant=minbase --include=busybox,ca-certificates,git bookworm "$work/root" >"$work/log" 2>&1 || {
		tail -n 20 "$work/log" >&2
		exit 1
	}
	ln -s busybox "$work/root/bin/wget" # health checks ask with it
	rm -rf "$work/root/var/cache/apt/archives" "$work/root/var/lib/apt/lists"
	tar -C "$work/root" -c . | docker import --change 'LABEL understudy.key=debootstrap' - $base >/dev/null
	rm -rf "$work/root"
fi

envoy=$(image envoyproxy/envoy)
version=${envoy##*:v}
if ! fresh "$envoy" "$version"; then
	mkdir "$work/context"
	cp "$(scripts/envoy.sh "$version")" "$work/context/envoy"
	build "$envoy" "$version" <<-DOCKERFILE
		FROM $base
		COPY envoy /usr/local/bin/
		CMD ["envoy", "-c", "/etc/envoy/envoy.yaml"]
	DOCKERFILE
fi

scripts/need.sh prometheus prometheus promtool
prometheus=$(image prom/prometheus)
version=$(dpkg-query --show --showformat '${Version}' prometheus)
if ! fresh "$prometheus" "$version"; then
	mkdir "$work/context"
	cp "$(command -v prometheus)" "$(command -v promtool)" "$work/context/"
	build "$prometheus" "$version" <<-DOCKERFILE
		FROM $base
		COPY prometheus promtool /bin/
		USER nobody
		ENTRYPOINT ["/bin/prometheus"]
	DOCKERFILE
fi

# Go, with the modules of go.mod, as a container has no way out to fetch any, and with their packages compiled, as that
# takes minutes. What -trimpath compiles is the same wherever it is.
golang=$(image golang)
key=$(cat go.mod go.sum <(go env GOVERSION) | sha256sum | cut -c1-16)
if ! fresh "$golang" "$key"; then
	case $golang in *":$(go env GOVERSION | sed s/go//)-"*) ;; *) echo "NOTE: $golang will carry $(go env GOVERSION), which is on this machine" >&2 ;; esac
	mkdir -p "$work/context/go"
	cp -a "$(go env GOROOT)"/{bin,lib,pkg,src,VERSION,go.env} "$work/context/go/"
	export GOCACHE=${XDG_CACHE_HOME:-$HOME/.cache}/understudy/docker/go-build GOFLAGS=-buildvcs=false
	CGO_ENABLED=0 go build -trimpath -o "$work/extproc" ./cmd/extproc
	cp -a "$GOCACHE" "$work/context/compiled"
	GOFLAGS=-modcacherw GOMODCACHE="$work/context/mod" GOPROXY="file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)" \
		go mod download
	build "$golang" "$key" <<-'DOCKERFILE'
		FROM debian:bookworm-slim
		ENV GOPATH=/go GOTOOLCHAIN=local PATH=/go/bin:/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
		COPY go /usr/local/go
		COPY mod /go/pkg/mod
		COPY compiled /root/.cache/go-build
		WORKDIR /go
	DOCKERFILE
	unset GOCACHE GOFLAGS
fi

grafana=$(image grafana/grafana)
key=$(cat e2e/compose/grafana/*.go go.mod | sha256sum | cut -c1-16)
if ! fresh "$grafana" "$key"; then
	mkdir "$work/context"
	CGO_ENABLED=0 go build -buildvcs=false -o "$work/context/grafana" ./e2e/compose/grafana
	build "$grafana" "$key" <<-DOCKERFILE
		FROM $base
		COPY grafana /usr/local/bin/
		USER 472
		ENTRYPOINT ["/usr/local/bin/grafana"]
	DOCKERFILE
fi
