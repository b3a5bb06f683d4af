//go:build story

package story

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

// patience bounds what is expected within some scrapes, on a busy machine.
const patience = time.Minute

// What TestMain has found or made: paths of the service and of Envoy.
var binary, envoy string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "story")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
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

// eventually asks until ok gives no error, for at most d.
func eventually(t testing.TB, d time.Duration, what string, ok func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: after %s still: %v", what, d, err)
		}
	}
}
