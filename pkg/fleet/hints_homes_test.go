package fleet

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"understudy/pkg/store"
)

// homer is one replica's homes.
type homer struct {
	*Homes
	node *node
	stop func() // and wait
}

func (w *world) homer(t testing.TB) homer {
	n := w.node()
	h := NewHomes(bucket{n, "homes"})
	return homer{h, n, running(t, h.Run)}
}

func expectHome(t testing.TB, h interface {
	Find(context.Context, string) string
}, id, want string) {
	t.Helper()
	if got := h.Find(t.Context(), id); got != want {
		t.Errorf("Find(%.40q) = %q, want %q", id, got, want)
	}
}

func TestHomes(t *testing.T) {
	for name, f := range map[string]func(t *testing.T, w *world, a, b homer){
		"an unknown id has no home": func(t *testing.T, w *world, a, b homer) {
			expectHome(t, a, "resp_1", "")
		},
		"a home is known here at once and there when it is written": func(t *testing.T, w *world, a, b homer) {
			a.Put("resp_1", "openai")
			expectHome(t, a, "resp_1", "openai")
			synctest.Wait()
			expectHome(t, b, "resp_1", "openai")
		},
		"a home outlives the replica that put it": func(t *testing.T, w *world, a, b homer) {
			a.Put("resp_1", "openai")
			a.stop()
			time.Sleep(1000 * time.Hour)
			expectHome(t, w.homer(t), "resp_1", "openai")
		},
		"while the store is down a new home is known here only": func(t *testing.T, w *world, a, b homer) {
			a.node.set(down)
			b.node.set(down)
			a.Put("resp_1", "openai")
			expectHome(t, a, "resp_1", "openai")
			expectHome(t, b, "resp_1", "")
		},
		"what was put in an outage is found after it": func(t *testing.T, w *world, a, b homer) {
			a.node.set(down)
			for i := range 100 {
				a.Put(fmt.Sprint("resp_", i), "openai")
			}
			time.Sleep(time.Hour)
			a.node.set(up)
			time.Sleep(2 * writeAgain)
			for i := range 100 {
				expectHome(t, b, fmt.Sprint("resp_", i), "openai")
			}
		},
		"a hanging store costs a request half a second": func(t *testing.T, w *world, a, b homer) {
			a.node.set(hanging)
			began := time.Now()
			expectHome(t, a, "resp_1", "")
			if took := time.Since(began); took != findWithin {
				t.Errorf("Find() took %v, want %v", took, findWithin)
			}
		},
		"a caller that goes does not wait": func(t *testing.T, w *world, a, b homer) {
			a.node.set(hanging)
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			began := time.Now()
			if got := a.Find(ctx, "resp_1"); got != "" || time.Since(began) != time.Millisecond {
				t.Errorf("Find() = %q after %v, want none after 1ms", got, time.Since(began))
			}
		},
		"the newest homes are in memory, and no more": func(t *testing.T, w *world, a, b homer) {
			a.node.set(down)
			for i := range homesRecent + 1 {
				a.Put(fmt.Sprint("resp_", i), "openai")
			}
			a.Put("resp_1", "azure") // stays as old as it is
			expectHome(t, a, "resp_0", "")
			expectHome(t, a, "resp_1", "azure")
			a.Put("resp_x", "openai")
			expectHome(t, a, "resp_1", "")
			expectHome(t, a, "resp_2", "openai")
			if n := len(a.recent); n != homesRecent {
				t.Errorf("%d homes in memory, want %d", n, homesRecent)
			}
		},
		"what the store does not get is counted": func(t *testing.T, w *world, a, b homer) {
			a.node.set(hanging)
			a.Put("resp", "openai")
			synctest.Wait() // one is being written
			for i := range homesWaiting + homesAtOnce - 1 + 42 {
				a.Put(fmt.Sprint("resp_", i), "openai")
				if i < homesAtOnce {
					synctest.Wait()
				}
			}
			if n := a.Dropped(); n != 42 {
				t.Errorf("Dropped() = %d, want 42", n)
			}
		},
		"an id that no provider makes is not looked for": func(t *testing.T, w *world, a, b homer) {
			long := strings.Repeat("i", hintBytes+1)
			a.Put("", "openai")
			a.Put(long, "openai")
			a.Put("resp_1", "")
			a.Put("resp_1", long)
			for _, id := range []string{"", long} {
				expectHome(t, a, id, "")
			}
			synctest.Wait()
			if n := w.asked(); n != 0 || a.Dropped() != 4 {
				t.Errorf("%d calls of the store and Dropped() = %d, want 0 and 4", n, a.Dropped())
			}
		},
		"the end comes while the store hangs": func(t *testing.T, w *world, a, b homer) {
			a.node.set(hanging)
			for i := range 100 {
				a.Put(fmt.Sprint("resp_", i), "openai")
			}
			began := time.Now()
			a.stop()
			if took := time.Since(began); took > patience+farewell {
				t.Errorf("the end took %v, want at most %v", took, patience+farewell)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				f(t, w, w.homer(t), w.homer(t))
			})
		})
	}
}

// fullBucket takes nothing more.
type fullBucket struct{ bucket }

func (fullBucket) Put(context.Context, string, []byte, time.Duration) (uint64, error) {
	return 0, store.ErrFull
}

func TestHomesThatAFullStoreRefusesAreCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHomes(fullBucket{bucket{newWorld().node(), "homes"}})
		running(t, h.Run)
		h.Put("resp_1", "openai")
		time.Sleep(time.Hour)
		if n := h.Dropped(); n != 1 {
			t.Errorf("Dropped() = %d, want 1", n)
		}
		expectHome(t, h, "resp_1", "openai")
	})
}

func TestHintsThatAFullStoreRefusesAreTriedWithTheNextPut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		n := w.node()
		h := NewHints(fullBucket{bucket{n, "hints"}}, 10)
		stop := running(t, h.Run)
		h.Put("k", "x", time.Hour)
		synctest.Wait()
		stop()
		h.bucket = bucket{n, "hints"}
		running(t, h.Run)
		h.Put("k", "x", time.Hour)
		synctest.Wait()
		if _, there := w.entry("hints", "k"); !there {
			t.Error("the store has no k, want it with the next Put")
		}
	})
}

// openStore opens a real store on a folder.
func openStore(t *testing.T, dir string) (s *store.Store, closeNow func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 60*time.Second)
	s, err := store.Open(ctx, store.Options{Dir: dir})
	if err != nil {
		t.Fatalf("Open() = %v, want a store", err)
	}
	return s, func() {
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
	}
}

// await waits until f is true.
func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(30 * time.Second); !f(); <-tick.C {
		if time.Now().After(until) {
			t.Fatalf("%s does not come", what)
		}
	}
}

func TestHintsAndHomesInARealStore(t *testing.T) {
	dir := t.TempDir()
	odd := "resp_\xff. *>\n" + strings.Repeat("\xfe", hintBytes-20)
	hints := func(s *store.Store) *Hints {
		return NewHints(s.Bucket(store.BucketOptions{Name: "hints", TTL: time.Hour, MaxBytes: 1 << 20}), 100)
	}
	homes := func(s *store.Store) *Homes {
		return NewHomes(s.Bucket(store.BucketOptions{Name: "homes", TTL: time.Hour, MaxBytes: 1 << 20}))
	}

	s, closeNow := openStore(t, dir)
	a, b, h := hints(s), hints(s), homes(s)
	stops := []func(){running(t, a.Run), running(t, b.Run), running(t, h.Run)}
	a.Put(odd, "anthropic/claude", time.Hour)
	await(t, "the hint of another replica", func() bool { return b.Get(odd) == "anthropic/claude" })
	b.Put(odd, "bedrock/claude", time.Hour)
	await(t, "its change", func() bool { return a.Get(odd) == "bedrock/claude" })
	a.Put("brief", "x", time.Second)
	await(t, "a brief hint's end in the store", func() bool {
		_, err := b.bucket.Get(t.Context(), "brief")
		return err != nil && a.Get("brief") == ""
	})
	for i := range 200 {
		h.Put(fmt.Sprint("resp_", i), "openai")
	}
	h.Put(odd, "azure")
	for _, stop := range stops {
		stop()
	}
	closeNow()

	s, closeNow = openStore(t, dir)
	a, h = hints(s), homes(s)
	stop := running(t, a.Run)
	await(t, "a hint after a restart", func() bool { return a.Get(odd) == "bedrock/claude" })
	await(t, "a home after a restart", func() bool { return h.Find(t.Context(), odd) == "azure" })
	for i := range 200 {
		expectHome(t, h, fmt.Sprint("resp_", i), "openai")
	}
	expectHome(t, h, "resp_200", "")
	stop()
	closeNow()
	expectHome(t, h, odd, "")
	expectHint(t, a, odd, "bedrock/claude")
}
