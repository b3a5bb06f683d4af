#!/bin/sh
# story.sh [go test flags] has a real Prometheus, with the alert rules as they are, watch an outage on a real Envoy. With -v
# it tells how long after the outage each alert fired. The rules' own times make it take about three minutes.
set -eu
cd "$(dirname "$0")/.."

scripts/need.sh prometheus prometheus
scripts/envoy.sh 1.40.0 >/dev/null
go test -tags story -count=1 -timeout 10m "$@" ./e2e/story
