//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// smallDisk mounts a disk of 64 MiB for the test.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("NOT TESTED: a full disk. Mounting a small one needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// fill writes a file until the disk is full, and returns what frees it again.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	ballast := filepath.Join(dir, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{1 << 20, 4 << 10, 1} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling the disk ended with %v, want ENOSPC", err)
	}
	return func() {
		if err := os.Remove(ballast); err != nil {
			t.Error(err)
		}
	}
}

func TestAFullDiskRefusesNewJobsAndKeepsTheOthers(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t)
	c := chain{name: "full", api: "anthropic", on: []string{"a"}, breaker: fileBreaker{Failures: 1, OpenFor: time.Second, MaxOpenFor: 2 * time.Second},
		more: fileChain{Degrade: []string{"queue"}}}
	s := startStack(t, plan{idle: true, chains: []chain{c}, edit: func(f *file) {
		f.Store.Embedded.Dir, f.Store.MaxCache, f.Store.MaxJobs = filepath.Join(disk, "store"), "4MiB", "16MiB"
		f.Recovery = map[string]any{"rate": "100/s"}
	}})
	s.set(t, "a", "529")
	var accepted []order
	place := func() answer {
		o := order{key: fmt.Sprint(orderKey, len(accepted)), chain: "full"}
		id, a := s.order(within(t, patience), t, &o)
		if o.id = id; id != "" {
			accepted = append(accepted, o)
		}
		return a
	}
	for range 10 {
		if a := place(); a.status != 202 {
			t.Fatalf("an order got %d %s, %v, want a job", a.status, a.body, a.err)
		}
	}
	free := fill(t, disk)
	refused := place()
	for i := 0; refused.status == 202 && i < 10_000; i++ { // what was laid out before still has room
		refused = place()
	}
	t.Logf("with a full disk and %d jobs accepted: %d %s", len(accepted), refused.status, refused.body)
	for range 5 {
		if a := place(); a.status != 503 || !strings.Contains(a.body, "the queue ") || !strings.Contains(a.body, `"type":"error"`) {
			t.Errorf("with a full disk an order got %d %s, %v, want a 503 that says what is wrong with the queue", a.status, a.body, a.err)
		}
	}
	free()
	eventually(t, time.Minute, func() error {
		if a := place(); a.status != 202 {
			return fmt.Errorf("with room again an order got %d %s, %w", a.status, a.body, a.err)
		}
		return nil
	})
	s.set(t, "a", "ok")
	for _, o := range accepted {
		eventually(t, time.Minute, func() error {
			e, err := s.look(t.Context(), 0, o.id)
			if err == nil && e.State != "done" {
				err = fmt.Errorf("%s is %s", o.key, e.State)
			}
			return err
		})
	}
	s.survives(t)
}
