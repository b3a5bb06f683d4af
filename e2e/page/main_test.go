//go:build page

package page

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// patience bounds what is expected to happen soon.
const patience = 40 * time.Second

// What TestMain has found or made: paths of the service and of Envoy, and where screenshots go.
var binary, envoy, artifacts string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "page")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if artifacts = os.Getenv("PAGE_ARTIFACTS"); artifacts == "" {
		artifacts = filepath.Join(dir, "artifacts")
	}
	if err := os.MkdirAll(artifacts, 0o755); err != nil {
		return 1, err
	}
	binary = filepath.Join(dir, "extproc")
	if _, err := output("../..", "go", "build", "-o", binary, "./cmd/extproc"); err != nil {
		return 1, err
	}
	if envoy, err = output("../..", "scripts/envoy.sh", "1.40.0"); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// output is what a command prints, run in dir.
func output(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%s: %w\n%s", name, err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}

// eventually asks until ok gives no error.
func eventually(t testing.TB, what string, ok func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: after %s still: %v", what, patience, err)
		}
	}
}
