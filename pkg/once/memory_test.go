package once

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"understudy/pkg/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a bucket in memory that fails when it is told to.
type memory struct {
	// fault, when set, says what a call fails with before it does anything, and after it has done it.
	fault func(op string) (before, after error)

	mu      sync.Mutex // mu guards the fields below.
	values  map[string]stored
	rev     uint64
	calls   map[string]int
	changed map[chan store.Entry]struct{} // of watches
	deaf    bool                          // watches hear nothing
}

type stored struct {
	store.Entry
	expiry *time.Timer
	ttl    time.Duration
}

func newMemory() *memory {
	return &memory{values: map[string]stored{}, calls: map[string]int{}, changed: map[chan store.Entry]struct{}{}}
}

// call makes a call, or fails.
func (m *memory) call(ctx context.Context, op string, f func() error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls[op]++
	var before, after error
	if m.fault != nil {
		before, after = m.fault(op)
	}
	if before != nil {
		return before
	}
	if err := f(); err != nil {
		return err
	}
	return after
}

func (m *memory) setLocked(key string, value []byte, ttl time.Duration) uint64 {
	if ttl <= 0 {
		panic("a value without an end")
	}
	m.removeLocked(key)
	m.rev++
	rev := m.rev
	s := stored{Entry: store.Entry{Key: key, Value: slices.Clone(value), Revision: rev}, ttl: ttl}
	s.expiry = time.AfterFunc(ttl, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.values[key].Revision == rev {
			m.removeLocked(key)
			m.tellLocked(store.Entry{Key: key, Deleted: true})
		}
	})
	m.values[key] = s
	m.tellLocked(s.Entry)
	return rev
}

func (m *memory) removeLocked(key string) {
	if s, ok := m.values[key]; ok {
		s.expiry.Stop()
		delete(m.values, key)
	}
}

func (m *memory) tellLocked(e store.Entry) {
	for c := range m.changed {
		if !m.deaf {
			c <- e
		}
	}
}

func (m *memory) Get(ctx context.Context, key string) (e store.Entry, err error) {
	err = m.call(ctx, "get", func() error {
		s, ok := m.values[key]
		if e = s.Entry; !ok {
			return store.ErrNotFound
		}
		return nil
	})
	return e, err
}

func (m *memory) Create(ctx context.Context, key string, value []byte, ttl time.Duration) (rev uint64, err error) {
	err = m.call(ctx, "create", func() error {
		if _, ok := m.values[key]; ok {
			return store.ErrExists
		}
		rev = m.setLocked(key, value, ttl)
		return nil
	})
	return rev, err
}

func (m *memory) Update(ctx context.Context, key string, value []byte, old uint64, ttl time.Duration) (rev uint64, err error) {
	err = m.call(ctx, "update", func() error {
		if m.values[key].Revision != old {
			return store.ErrConflict
		}
		rev = m.setLocked(key, value, ttl)
		return nil
	})
	return rev, err
}

func (m *memory) Delete(ctx context.Context, key string, old uint64) error {
	return m.call(ctx, "delete", func() error {
		if s, ok := m.values[key]; !ok || s.Revision != old {
			return store.ErrConflict
		}
		m.removeLocked(key)
		m.tellLocked(store.Entry{Key: key, Deleted: true})
		return nil
	})
}

func (m *memory) PutBlob(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	return m.call(ctx, "put blob", func() error { m.setLocked(key, value, ttl); return nil })
}

func (m *memory) GetBlob(ctx context.Context, key string) (value []byte, err error) {
	err = m.call(ctx, "get blob", func() error {
		s, ok := m.values[key]
		if value = s.Value; !ok {
			return store.ErrNotFound
		}
		return nil
	})
	return value, err
}

func (m *memory) Watch(ctx context.Context, f func(store.Entry)) {
	c := make(chan store.Entry, 10_000)
	m.mu.Lock()
	for _, s := range m.values {
		c <- s.Entry
	}
	m.changed[c] = struct{}{}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.changed, c)
	}()
	for {
		select {
		case e := <-c:
			f(e)
		case <-ctx.Done():
			return
		}
	}
}

func (m *memory) called(op string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls[op]
}

// each changes the values in place.
func (m *memory) each(f func(key string, s *stored)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, s := range m.values {
		f(key, &s)
		m.values[key] = s
	}
}

func (m *memory) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// world is some replicas on one store in memory.
type world struct {
	t               *testing.T
	claims, answers *memory
	replicas        []*Keys
}

// inBubble runs test with three replicas, in the time of a bubble.
func inBubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { withWorld(t, func(w *world) { test(t, w) }) })
}

func withWorld(t *testing.T, test func(w *world)) {
	w := &world{t: t, claims: newMemory(), answers: newMemory()}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 3 {
		k := New(w.claims, w.answers)
		w.replicas = append(w.replicas, k)
		wg.Go(func() { k.Run(ctx) })
	}
	synctest.Wait()
	test(w)
	cancel()
	wg.Wait()
	for n, k := range w.replicas {
		if k.waiters != 0 || len(k.rooms) != 0 {
			t.Errorf("replica %d has %d waiters in %d rooms at the end, want none", n, k.waiters, len(k.rooms))
		}
	}
}

const (
	life   = time.Minute
	window = 10 * time.Minute
)

func ask(exchange string) Request {
	return Request{Tenant: "acme", Chain: "chat", Key: "k", Digest: "d", Exchange: exchange, Life: life}
}

// claim claims on a replica and wants that outcome.
func (w *world) claim(replica int, r Request, want Outcome) *Claim {
	w.t.Helper()
	c, err := w.replicas[replica].Claim(w.t.Context(), r)
	if err != nil || c.Outcome != want {
		w.t.Fatalf("Claim(%s) = %s, %v, want %s", r.Exchange, c.Outcome, err, want)
	}
	return c
}

func (w *world) finish(c *Claim, text string) {
	w.t.Helper()
	if err := c.Finish(w.t.Context(), answer(text), window); err != nil {
		w.t.Fatalf("Finish(%s) = %v, want nil", text, err)
	}
}

func answer(text string) Answer {
	return Answer{Status: 200, ContentType: "text/event-stream", Headers: map[string]string{"x-llm-target": "a/m"}, Body: []byte(text)}
}

// waiting is a Wait that goes on in the background.
type waiting struct {
	done chan struct{}
	got  string
}

func (w *world) wait(c *Claim) *waiting {
	x := &waiting{done: make(chan struct{})}
	go func() {
		defer close(x.done)
		a, err := c.Wait(w.t.Context())
		x.got = said(a, err)
	}()
	synctest.Wait()
	return x
}

// said is an answer or error in words.
func said(a Answer, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s %v %s", a.Status, a.ContentType, a.Headers, a.Body)
}

func (x *waiting) want(t *testing.T, want string) {
	t.Helper()
	synctest.Wait()
	select {
	case <-x.done:
		if x.got != want {
			t.Errorf("Wait() = %.200s, want %.200s", x.got, want)
		}
	default:
		t.Fatalf("Wait() goes on, want %s", want)
	}
}

func (x *waiting) goesOn(t *testing.T) {
	t.Helper()
	synctest.Wait()
	select {
	case <-x.done:
		t.Errorf("Wait() = %s, want it to go on", x.got)
	default:
	}
}
