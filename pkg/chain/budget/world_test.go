package budget

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"understudy/pkg/config"
	"understudy/pkg/store"
)

// world is a store that replicas reach over links of their own.
type world struct {
	mu      sync.Mutex
	rev     uint64
	entries map[string]entry
	writes  int
}

type entry struct {
	store.Entry
	until time.Time
}

func newWorld() *world { return &world{entries: map[string]entry{}} }

func (w *world) get(key string) (store.Entry, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, ok := w.entries[key]
	if !ok || time.Now().After(e.until) {
		return store.Entry{}, store.ErrNotFound
	}
	return e.Entry, nil
}

func (w *world) put(key string, value []byte, rev uint64, ttl time.Duration) (uint64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, ok := w.entries[key]
	if ok && time.Now().After(e.until) {
		e, ok = entry{}, false
	}
	switch {
	case rev == 0 && ok:
		return 0, store.ErrExists
	case e.Revision != rev:
		return 0, store.ErrConflict
	}
	w.rev++
	w.writes++
	w.entries[key] = entry{store.Entry{Key: key, Value: bytes.Clone(value), Revision: w.rev}, time.Now().Add(ttl)}
	return w.rev, nil
}

// made is how many writes were made.
func (w *world) made() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes
}

// link is a replica's way to the store.
type link struct {
	w *world

	mu    sync.Mutex
	down  bool    // nothing gets through
	doubt float64 // share of writes whose answer is lost: they were not made, were made, or will be made
	mute  bool    // all writes are made, and no answer comes
}

func (l *link) set(down bool, doubt float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down, l.doubt = down, doubt
}

func (l *link) fails() (down, lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.down, rand.Float64() < l.doubt
}

func (l *link) setMute(mute bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mute = mute
}

func (l *link) isMute() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mute
}

func (l *link) Get(ctx context.Context, key string) (store.Entry, error) {
	if down, _ := l.fails(); down {
		return store.Entry{}, store.ErrDown
	}
	if !pause(ctx, rand.N(time.Millisecond)) {
		return store.Entry{}, store.ErrDown
	}
	return l.w.get(key)
}

func (l *link) Create(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error) {
	return l.Update(ctx, key, value, 0, ttl)
}

func (l *link) Update(ctx context.Context, key string, value []byte, rev uint64, ttl time.Duration) (uint64, error) {
	down, lost := l.fails()
	if l.isMute() {
		_, _ = l.w.put(key, value, rev, ttl)
		return 0, store.ErrDown
	}
	if down || !pause(ctx, rand.N(2*time.Millisecond)) {
		return 0, store.ErrDown
	}
	if !lost {
		return l.w.put(key, value, rev, ttl)
	}
	switch value = bytes.Clone(value); rand.IntN(3) {
	case 0:
		_, _ = l.w.put(key, value, rev, ttl)
	case 1:
		time.AfterFunc(rand.N(3*time.Second), func() { _, _ = l.w.put(key, value, rev, ttl) })
	}
	return 0, store.ErrDown
}

// replica is a Meter with its link.
type replica struct {
	*Meter
	link *link
}

func (w *world) replica(t testing.TB, name string, notify func(Transition)) *replica {
	r := &replica{link: &link{w: w}}
	r.Meter = New(Options{Replica: name, Store: r.link, Notify: notify})
	r.Start(t.Context())
	t.Cleanup(r.halt) // Also of one that was killed or stopped.
	return r
}

// replicas starts some.
func (w *world) replicas(t testing.TB, n int) (all []*replica) {
	for i := range n {
		all = append(all, w.replica(t, fmt.Sprint("r", i), nil))
	}
	return all
}

var support = Key{Chain: "support"}

func hourly(usd float64) config.Budget { return config.Budget{USD: usd, Window: time.Hour} }
