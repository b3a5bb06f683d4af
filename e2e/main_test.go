//go:build e2e

// Package e2e proves the promises on real parts: a real Envoy, the built binary, scripted providers, and the official
// SDKs as clients. Nothing here asserts how long a thing takes, only what happens, in which order, and that it ends.
package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// The Envoys that are promised to work. The first is the one to test on when a promise does not depend on it.
const (
	envoyMain   = "1.40.0"
	envoyMiddle = "1.39.3"
	envoyOldest = "1.36.4"
)

// binary is the path of the built service. TestMain sets it.
var binary string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "e2e")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	// Rows wait for deadlines more than they work; how many stacks run at once is bounded on its own. There must be room
	// for every test that waits for a stack and for the rows of those that have one, or they wait for each other for ever.
	flag.Parse()
	if err := flag.Set("test.parallel", "1000"); err != nil {
		return 1, err
	}
	binary = filepath.Join(dir, "extproc")
	if err := build(binary); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// racing says that the service is built with the race detector, which costs much time and memory.
var racing = os.Getenv("E2E_RACE") != ""

func build(to string) error {
	args := []string{"build", "-o", to}
	if racing {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "./cmd/extproc")...)
	cmd.Dir = ".."
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the service: %w\n%s", err, out)
	}
	return nil
}

// envoys are the paths of Envoy binaries by version, looked up once each.
var envoys = map[string]func() (string, error){
	envoyMain:   sync.OnceValues(func() (string, error) { return findEnvoy(envoyMain) }),
	envoyMiddle: sync.OnceValues(func() (string, error) { return findEnvoy(envoyMiddle) }),
	envoyOldest: sync.OnceValues(func() (string, error) { return findEnvoy(envoyOldest) }),
}

func findEnvoy(version string) (string, error) {
	cmd := exec.Command("../scripts/envoy.sh", version)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return "", fmt.Errorf("get Envoy %s: %w\n%s", version, err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}

// within is a context of the test that also ends after d: the bound of what must end at all.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// patience bounds what is expected to happen soon.
const patience = 30 * time.Second

// eventually asks until ok gives no error.
func eventually(t testing.TB, d time.Duration, ok func() error) {
	t.Helper()
	ctx := within(t, d)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("after %s still: %v", d, err)
		}
	}
}

// wait lets time pass where time itself is the input: a cooldown, a freeze.
func wait(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}
