package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"understudy/pkg/store"
)

// Put implements Values.
func (b bucket) Put(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error) {
	return b.write(ctx, key, value, ttl, func(store.Entry, bool) error { return nil })
}

// Get implements Values.
func (b bucket) Get(ctx context.Context, key string) (store.Entry, error) {
	if err := b.n.reach(ctx); err != nil {
		return store.Entry{}, err
	}
	b.n.w.mu.Lock()
	defer b.n.w.mu.Unlock()
	e, there := b.n.w.data(b.name).entries[key]
	if !there {
		return store.Entry{}, store.ErrNotFound
	}
	return e, nil
}

// entry is what the store has under a key.
func (w *world) entry(name, key string) (store.Entry, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, there := w.data(name).entries[key]
	return e, there
}

// hinter is one replica's hints.
type hinter struct {
	*Hints
	node *node
	stop func() // and wait
}

func (w *world) hinter(t testing.TB, most int) hinter {
	n := w.node()
	h := NewHints(bucket{n, "hints"}, most)
	return hinter{h, n, running(t, h.Run)}
}

// running runs something until it is stopped, or the test ends.
func running(t testing.TB, run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { run(ctx) })
	stop = func() { cancel(); wg.Wait() }
	t.Cleanup(stop)
	return stop
}

func expectHint(t testing.TB, h interface{ Get(string) string }, key, want string) {
	t.Helper()
	if got := h.Get(key); got != want {
		t.Errorf("Get(%.40q) = %q, want %q", key, got, want)
	}
}

func TestHints(t *testing.T) {
	const ttl = 10 * time.Minute
	for name, f := range map[string]func(t *testing.T, w *world, a, b hinter){
		"an unknown key has no value": func(t *testing.T, w *world, a, b hinter) {
			expectHint(t, a, "k", "")
		},
		"a hint is known here at once and there a moment later": func(t *testing.T, w *world, a, b hinter) {
			a.Put("k", "x", ttl)
			expectHint(t, a, "k", "x")
			synctest.Wait()
			expectHint(t, b, "k", "x")
		},
		"a replica that starts later knows the hints": func(t *testing.T, w *world, a, b hinter) {
			a.Put("k", "x", ttl)
			synctest.Wait()
			c := w.hinter(t, 10)
			synctest.Wait()
			expectHint(t, c, "k", "x")
		},
		"the later value counts everywhere": func(t *testing.T, w *world, a, b hinter) {
			a.Put("k", "x", ttl)
			a.Put("k", "y", ttl)
			synctest.Wait()
			expectHint(t, a, "k", "y")
			expectHint(t, b, "k", "y")
			b.Put("k", "z", ttl)
			synctest.Wait()
			expectHint(t, a, "k", "z")
			expectHint(t, b, "k", "z")
		},
		"an empty value takes the hint back": func(t *testing.T, w *world, a, b hinter) {
			a.Put("k", "x", ttl)
			synctest.Wait()
			b.Put("k", "", ttl)
			synctest.Wait()
			expectHint(t, a, "k", "")
		},
		"a hint ends with its ttl everywhere": func(t *testing.T, w *world, a, b hinter) {
			a.Put("k", "x", ttl)
			time.Sleep(ttl - time.Millisecond)
			expectHint(t, a, "k", "x")
			expectHint(t, b, "k", "x")
			time.Sleep(time.Millisecond)
			expectHint(t, a, "k", "")
			expectHint(t, b, "k", "")
		},
		"a hint ends with its ttl while the store is down": func(t *testing.T, w *world, a, b hinter) {
			a.Put("old", "x", ttl)
			synctest.Wait()
			a.node.set(down)
			b.node.set(hanging)
			a.Put("new", "x", ttl)
			expectHint(t, a, "new", "x")
			time.Sleep(ttl)
			expectHint(t, a, "old", "")
			expectHint(t, a, "new", "")
			expectHint(t, b, "old", "")
		},
		"what was put in an outage is told after it": func(t *testing.T, w *world, a, b hinter) {
			a.node.set(down)
			a.Put("k", "x", ttl)
			a.Put("l", "x", ttl)
			time.Sleep(time.Minute)
			a.Put("k", "y", ttl)
			a.node.set(up)
			time.Sleep(2 * writeAgain)
			expectHint(t, b, "k", "y")
			expectHint(t, b, "l", "x")
			time.Sleep(ttl - time.Minute)
			expectHint(t, b, "k", "y")
			expectHint(t, b, "l", "")
		},
		"what was put into a hanging store is told after it": func(t *testing.T, w *world, a, b hinter) {
			a.node.set(hanging)
			a.Put("k", "x", ttl)
			time.Sleep(time.Minute)
			expectHint(t, a, "k", "x")
			a.node.set(up)
			time.Sleep(2*writeAgain + patience)
			expectHint(t, b, "k", "x")
		},
		"an old value from the store does not replace one that waits for it": func(t *testing.T, w *world, a, b hinter) {
			a.Put("k", "x", ttl)
			synctest.Wait()
			a.node.set(down)
			a.Put("k", "y", ttl)
			synctest.Wait()
			a.node.set(up) // all current values come again
			synctest.Wait()
			expectHint(t, a, "k", "y")
			time.Sleep(2 * writeAgain)
			expectHint(t, b, "k", "y")
		},
		"a store that lost a hint takes it from no one and gets it with the next Put": func(t *testing.T, w *world, a, b hinter) {
			a.Put("k", "x", ttl)
			synctest.Wait()
			w.change(func() { clear(w.data("hints").entries) })
			synctest.Wait()
			expectHint(t, a, "k", "x")
			expectHint(t, b, "k", "x")
			b.Put("k", "x", ttl)
			synctest.Wait()
			if _, there := w.entry("hints", "k"); !there {
				t.Error("the store has no k after a Put, want it again")
			}
		},
		"beyond the most in memory the oldest go": func(t *testing.T, w *world, a, b hinter) {
			for i := range 10 {
				a.Put(fmt.Sprint(i), "x", ttl)
			}
			a.Put("0", "y", ttl)
			a.Put("10", "x", ttl)
			a.Put("11", "x", ttl)
			synctest.Wait()
			expectHint(t, a, "0", "y")
			expectHint(t, a, "1", "")
			expectHint(t, a, "2", "")
			expectHint(t, a, "3", "x")
			expectHint(t, b, "11", "x")
			if n := a.ages.Len(); n != 10 {
				t.Errorf("%d hints in memory, want 10", n)
			}
		},
		"what is over makes room": func(t *testing.T, w *world, a, b hinter) {
			for i := range 5 {
				a.Put(fmt.Sprint(i), "x", time.Second)
			}
			time.Sleep(ttl)
			a.Put("k", "x", ttl)
			synctest.Wait()
			if n := a.ages.Len(); n != 1 {
				t.Errorf("%d hints in memory, want 1", n)
			}
		},
		"a value without ttl, and what is too long, is not kept": func(t *testing.T, w *world, a, b hinter) {
			long := strings.Repeat("k", hintBytes+1)
			a.Put("k", "x", 0)
			a.Put("k", "x", -ttl)
			a.Put("", "x", ttl)
			a.Put(long, "x", ttl)
			a.Put("k", long, ttl)
			synctest.Wait()
			if n := w.asked(); a.ages.Len() != 0 || n != 0 {
				t.Errorf("%d hints in memory and %d calls of the store, want none", a.ages.Len(), n)
			}
		},
		"any bytes are a key and a value": func(t *testing.T, w *world, a, b hinter) {
			key, value := "\xff\x00 .*>\n"+strings.Repeat("\xfe", 300), "\xc3\x28\x00\""
			a.Put(key, value, ttl)
			synctest.Wait()
			expectHint(t, b, key, value)
		},
		"what is no hint in the store is passed over": func(t *testing.T, w *world, a, b hinter) {
			for i, data := range []string{"", "null", "{", `{"value":7}`, `{"value":"eA=="}`, `{"value":"eA==","left":-1}`,
				`{"value":"eA==","until":"1999-12-31T23:59:59Z","left":9223372036854775807}`} {
				a.hear(store.Entry{Key: fmt.Sprint(i), Value: []byte(data), Revision: 1})
			}
			if n := a.ages.Len(); n != 0 {
				t.Errorf("%d hints in memory, want none", n)
			}
		},
		"a clock that is ahead makes no hint longer than it was put for": func(t *testing.T, w *world, a, b hinter) {
			data, _ := json.Marshal(record{[]byte("x"), time.Now().Add(time.Hour), time.Second})
			a.hear(store.Entry{Key: "k", Value: data, Revision: 1})
			expectHint(t, a, "k", "x")
			time.Sleep(time.Second)
			expectHint(t, a, "k", "")
		},
		"what is put last before the end is told to the others": func(t *testing.T, w *world, a, b hinter) {
			a.Put("k", "x", ttl)
			a.stop()
			synctest.Wait()
			expectHint(t, b, "k", "x")
			a.Put("k", "y", ttl)
			expectHint(t, a, "k", "y")
		},
		"the end comes while the store hangs": func(t *testing.T, w *world, a, b hinter) {
			a.node.set(hanging)
			for i := range 9 {
				a.Put(fmt.Sprint(i), "x", ttl)
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
				f(t, w, w.hinter(t, 10), w.hinter(t, 100))
			})
		})
	}
}

func TestHintsWrites(t *testing.T) {
	const ttl = 10 * time.Minute
	for name, c := range map[string]struct {
		puts []string // one every 100 s, by turns here and there
		want int      // writes
	}{
		"one value is written once":                         {puts: []string{"x"}, want: 1},
		"the same within half the ttl costs no write":       {puts: []string{"x", "x", "x", "x"}, want: 1},
		"the same after half the ttl is written again":      {puts: []string{"x", "x", "x", "x", "x"}, want: 2},
		"another value is written each time":                {puts: []string{"x", "y", "x"}, want: 3},
		"a value that goes on is written twice in each ttl": {puts: slices.Repeat([]string{"x"}, 13), want: 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				all := []hinter{w.hinter(t, 10), w.hinter(t, 10)}
				for i, v := range c.puts {
					all[i%2].Put("k", v, ttl)
					time.Sleep(100 * time.Second)
				}
				if got := w.asked(); got != c.want {
					t.Errorf("Put(%v) = %d writes, want %d", c.puts, got, c.want)
				}
				for _, h := range all {
					expectHint(t, h, "k", c.puts[len(c.puts)-1])
				}
			})
		})
	}
}

func TestHintsDropWhatIsTooMuchAndWriteItWithTheNextPut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		a := w.hinter(t, 2*hintsWaiting)
		a.node.set(down)
		const all = hintsWaiting + 100
		for range 2 {
			for i := range all {
				a.Put(fmt.Sprint(i), "x", time.Hour)
			}
			synctest.Wait()
		}
		last := fmt.Sprint(all - 1)
		expectHint(t, a, last, "x")
		a.node.set(up)
		time.Sleep(2 * writeAgain)
		b := w.hinter(t, all)
		synctest.Wait()
		expectHint(t, b, "0", "x")
		expectHint(t, b, last, "")
		a.Put(last, "x", time.Hour)
		synctest.Wait()
		expectHint(t, b, last, "x")
	})
}

// slowBucket says that a value is written only when it is let.
type slowBucket struct {
	bucket
	say chan struct{}
}

func (b slowBucket) Put(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error) {
	rev, err := b.bucket.Put(ctx, key, value, ttl)
	<-b.say
	return rev, err
}

func TestHintThatAnotherReplicaChangesBeforeTheWriteIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		slow := slowBucket{bucket{w.node(), "hints"}, make(chan struct{})}
		a, b := NewHints(slow, 10), w.hinter(t, 10)
		running(t, a.Run)
		a.Put("k", "x", time.Hour)
		synctest.Wait()
		b.Put("k", "y", time.Hour)
		synctest.Wait()
		expectHint(t, a, "k", "x")
		close(slow.say)
		synctest.Wait()
		expectHint(t, a, "k", "y")
		expectHint(t, b, "k", "y")
		a.Put("k", "y", time.Hour)
		synctest.Wait()
		if n := w.asked(); n != 2 {
			t.Errorf("%d writes, want 2: the store has the value", n)
		}
	})
}

func TestHintsOfManyAtOnceBecomeOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.rough(0, 50*time.Millisecond)
		var all []hinter
		var wg sync.WaitGroup
		for i := range 5 {
			h := w.hinter(t, 50)
			all = append(all, h)
			for j := range 200 {
				wg.Go(func() {
					time.Sleep(time.Duration(j) * time.Millisecond)
					h.Put(fmt.Sprint(j%20), fmt.Sprint(i, j), time.Hour)
					h.Get(fmt.Sprint(j % 20))
				})
			}
		}
		wg.Wait()
		time.Sleep(time.Minute)
		for key := range 20 {
			for _, h := range all {
				expectHint(t, h, fmt.Sprint(key), all[0].Get(fmt.Sprint(key)))
			}
		}
	})
}

// FuzzHints says that nothing in the store brings a replica down, or makes it keep more than its most.
func FuzzHints(f *testing.F) {
	f.Add("k", []byte(`{"value":"eA==","until":"9999-01-01T00:00:00Z","left":9223372036854775807}`))
	f.Add("", []byte(`{}`))
	h := NewHints(nil, 3)
	f.Fuzz(func(t *testing.T, key string, data []byte) {
		h.hear(store.Entry{Key: key, Value: data})
		if len(h.Get(key)) > hintBytes || h.ages.Len() > 3 {
			t.Errorf("hear(%q, %q) keeps %d bytes in %d hints, want at most %d in 3", key, data, len(h.Get(key)), h.ages.Len(), hintBytes)
		}
	})
}

func BenchmarkHintsGet(b *testing.B) {
	h := NewHints(nil, 10_000)
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("conversation-%032d", i)
		h.Put(keys[i], "anthropic/claude", time.Hour)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if h.Get(keys[i%len(keys)]) == "" {
				b.Error("Get() of a known key is empty")
			}
		}
	})
}
