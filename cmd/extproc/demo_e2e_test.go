//go:build e2e

package main

import (
	"os/exec"
	"strings"
	"testing"
)

func TestDemoComesTrueOnARealEnvoy(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "../../scripts/envoy.sh", "1.40.0").Output()
	if err != nil {
		t.Fatalf("scripts/envoy.sh: %v", err)
	}
	code, stdout, stderr := play(t, t.Context(), "--envoy", strings.TrimSpace(string(out)))
	if code != exitFine || !strings.Contains(stdout, "All 6 steps came true") {
		t.Errorf("demo = exit %d, want %d\n%s%s", code, exitFine, stdout, stderr)
	}
}
