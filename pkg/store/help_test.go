package store

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long a test waits for an event before it says that it does not come.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		workUntilKilled(dir)
	}
	goleak.VerifyTestMain(m)
}

// bounded is a test's context with a deadline.
func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	return ctx
}

// openStore opens a store that is closed at the test's end.
func openStore(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(bounded(t), o)
	if err != nil {
		t.Fatalf("Open(%+v) = %v, want a store", o, err)
	}
	t.Cleanup(func() { closeStore(t, s) })
	return s
}

func closeStore(t testing.TB, s *Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Errorf("Close() = %v, want nil", err)
	}
}

func openEmbedded(t testing.TB) *Store {
	t.Helper()
	return openStore(t, Options{Dir: t.TempDir()})
}

// eventually waits until f is nil.
func eventually(t testing.TB, what string, f func() error) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(patience)
	for err := f(); err != nil; err = f() {
		if time.Now().After(deadline) {
			t.Fatalf("%s does not come: %v", what, err)
		}
		<-tick.C
	}
}

func awaitReady(t testing.TB, s *Store) {
	t.Helper()
	eventually(t, "a ready store", s.Ready)
}

// seen collects what a watch tells.
type seen struct {
	entries chan Entry
}

func watchAll(t testing.TB, b *Bucket) *seen {
	w := &seen{entries: make(chan Entry, 10000)}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { b.Watch(ctx, func(e Entry) { w.entries <- e }) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return w
}

// next returns the next thing told, like "key=value" or "-key".
func (w *seen) next(t testing.TB) string {
	t.Helper()
	select {
	case e := <-w.entries:
		if e.Deleted {
			return "-" + e.Key
		}
		return e.Key + "=" + string(e.Value)
	case <-time.After(patience):
		t.Fatal("Watch told nothing more")
		return ""
	}
}

func (w *seen) want(t testing.TB, want ...string) {
	t.Helper()
	for _, want := range want {
		if got := w.next(t); got != want {
			t.Fatalf("Watch told %q, want %q", got, want)
		}
	}
}

// untilAll skips what is told until all that is wanted has come, in any order.
func (w *seen) untilAll(t testing.TB, want ...string) {
	t.Helper()
	for len(want) > 0 {
		got := w.next(t)
		want = slices.DeleteFunc(want, func(s string) bool { return s == got })
	}
}

// logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *logBuffer) count(text string) int { return strings.Count(b.String(), text) }

func (b *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

func writeFile(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
