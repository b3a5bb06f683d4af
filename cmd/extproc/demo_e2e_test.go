//go:build e2e

package main

import (
	"io"
	"os/exec"
	"strings"
	"testing"
)

func realEnvoy(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "../../scripts/envoy.sh", "1.40.0").Output()
	if err != nil {
		t.Fatalf("scripts/envoy.sh: %v", err)
	}
	return strings.TrimSpace(string(out))
}

func TestDemoComesTrueOnARealEnvoy(t *testing.T) {
	code, stdout, stderr := play(t, t.Context(), "--envoy", realEnvoy(t))
	if code != exitFine || !strings.Contains(stdout, "All 6 steps came true") {
		t.Errorf("demo = exit %d, want %d\n%s%s", code, exitFine, stdout, stderr)
	}
}

func TestDemoEndsWhenNobodyReadsOn(t *testing.T) {
	r, w := io.Pipe()
	_ = r.Close()
	code, stderr := playTo(t, t.Context(), w, "--envoy", realEnvoy(t))
	if code != exitWrong || !strings.Contains(stderr, "closed pipe") {
		t.Errorf("unread demo = exit %d, %q, want exit %d and the write error", code, stderr, exitWrong)
	}
}
