//go:build mesh

package mesh

import (
	"context"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"
)

// The suite itself is right: our own bootstrap passes it. Where a mesh fails a row, the mesh is different.
func TestOurOwnBootstrapPassesTheSuite(t *testing.T) {
	s := newStage(t, nil)
	bootstrap, err := exec.Command(binary, "envoy", "-c", s.config).Output()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.dir, "bootstrap.yaml")
	write(t, path, bootstrap)
	envoy := start(t, "envoy", filepath.Join(s.dir, "envoy.log"), nil, script(t, "envoy.sh", envoyVersion), "-c", path,
		"--use-dynamic-base-id", "--concurrency", "2", "--log-level", "warning")
	envoy.ready(t, func(ctx context.Context) error { return s.is(ctx, s.frontURL()+"/v1/models", http.StatusOK) })
	rows(t, s.frontURL(), s)
}
