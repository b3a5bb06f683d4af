# Two commands do everything on a machine with Go and Python 3 (pip): make demo, make test.

ENVOY_VERSION ?= 1.40.0
FUZZTIME ?= 10s
# The race detector needs a C compiler.
RACE := $(if $(shell command -v cc),-race)

.PHONY: build demo test unit lint fuzz e2e manifests test-page test-story test-compose test-mesh bench soak

build: ## the binary, in bin/
	go build -o bin/extproc ./cmd/extproc

demo: build ## the whole story on this machine, without accounts
	bin/extproc demo --envoy "$$(scripts/envoy.sh $(ENVOY_VERSION))"

test: lint unit fuzz e2e ## what every change must pass; CI runs those below too

lint:
	@test -z "$$(gofmt -l cmd internal pkg e2e envoy bench)" || { gofmt -l cmd internal pkg e2e envoy bench; echo "these files want gofmt"; exit 1; }
	go vet ./...
	go vet -tags e2e,mesh,compose,page,story ./...
	go tool staticcheck ./...

# pkg/store runs real servers and kills real processes, which the race detector makes several times as slow; the others
# have property tests that it cannot run.
unit: ## all packages, under the race detector where it can be; benchmarks run once so that they keep compiling
	go test $(RACE) -shuffle=on $$(go list ./... | grep -v /pkg/store$$)
	go test -run Alloc ./pkg/classify/... ./pkg/processor # a pool loses some of what it gets to the race detector
	go test ./pkg/fleet ./pkg/store ./pkg/chain/budget ./pkg/degrade/queue
	go test -run '^$$' -bench . -benchtime 1x ./...

fuzz: ## every fuzz target for FUZZTIME
	scripts/fuzz.sh $(FUZZTIME)

e2e: ## the real Envoys, the built binary, the official SDKs
	scripts/e2e.sh

manifests: ## every manifest, alert rule and dashboard below envoy/, without a cluster
	scripts/manifests.sh

test-page: ## the status page in a real Chromium, with axe-core; screenshots go to PAGE_ARTIFACTS
	scripts/page.sh

test-story: ## an outage as an operator sees it, with a real Prometheus
	scripts/story.sh

test-compose: ## docker-compose.yaml as it is, in a Docker of its own, driven by the official SDKs
	scripts/compose.sh

test-mesh: ## Envoy Gateway's control plane and Istio's patch code in front of real Envoys; slow the first time
	scripts/mesh.sh

bench: ## what an exchange costs beside Envoy alone, the mechanism's floor and other gateways; half an hour on a quiet machine
	BENCH=full scripts/bench.sh

soak: ## an hour (SOAK=2m: two minutes) of mixed load with faults, reloads and restarts: nothing may grow
	scripts/soak.sh
