package fleet

import (
	"container/list"
	"context"
	"encoding/json"
	"sync"
	"time"

	"understudy/pkg/store"
)

const (
	// hintBytes bounds keys, values and ids, which come from outside. The store takes keys of 1,024 bytes once they are
	// escaped, and an escaped byte is three.
	hintBytes = 340
	// hintsWaiting is how many hints wait for the store, at most.
	hintsWaiting = 1024
)

// Values is the part of a store's bucket that hints and homes need.
type Values interface {
	Get(ctx context.Context, key string) (store.Entry, error)
	Put(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error)
	Watch(ctx context.Context, f func(store.Entry))
}

// Hints are values that replicas tell each other, and that it does no harm to miss: each replica goes by those it has
// in memory. Of two values that replicas put under one key at once, the one that the store takes last becomes everyone's.
//
// Ownership: who made it calls Run once. Concurrency: all other methods may be called at once, also without Run: then
// what is put stays here.
type Hints struct {
	bucket  Values
	most    int
	waiting backlog[string] // keys

	known sync.Map // of *hint by key, never changed in place: Get takes no lock
	mu    sync.Mutex
	ages  *list.List // keys, the oldest first; guarded by mu, as is the storing in known
}

// hint is a value and what else is known of it.
type hint struct {
	value string
	until time.Time
	kept  time.Time // until when the store has this value; zero when it has not
	waits bool      // in the backlog, or being written
	told  *hint     // what the store said while it waits
	rev   uint64    // of what the store said
	age   *list.Element
}

// record is a hint in the store. How long it had to live when it was written bounds what another clock makes of its end.
type record struct {
	Value []byte        `json:"value"` // any bytes, which a JSON string would not keep
	Until time.Time     `json:"until"`
	Left  time.Duration `json:"left"`
}

// NewHints makes Hints that keep at most so many in memory; beyond that the oldest go. The store's memory of them is
// bounded by the bucket.
func NewHints(bucket Values, most int) *Hints {
	return &Hints{bucket: bucket, most: most, waiting: make(backlog[string], hintsWaiting), ages: list.New()}
}

// Run shares the hints until ctx ends and for a moment more, in which the store gets what waits for it.
func (h *Hints) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { h.bucket.Watch(ctx, h.hear) })
	h.waiting.run(ctx, h.write)
}

// Get returns the value under key, or "" when none is known or its time is over. It asks nobody.
func (h *Hints) Get(key string) string {
	if n := h.load(key); n != nil && time.Now().Before(n.until) {
		return n.value
	}
	return ""
}

// Put sets the value under key, here at once and for the other replicas a moment later. They are not told again what
// they know for another half ttl, nor anything when too much waits for the store. An empty value takes the hint back.
// Without a ttl, or with a key or value beyond 340 bytes, it does nothing.
func (h *Hints) Put(key, value string, ttl time.Duration) {
	if ttl <= 0 || !isShort(key) || len(value) > hintBytes {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	n := hint{value: value, until: time.Now().Add(ttl)}
	if old := h.load(key); old != nil {
		n.waits, n.told = old.waits, old.told
		if old.value == value {
			n.kept = old.kept
		}
	}
	if !n.waits && time.Until(n.kept) < ttl/2 {
		n.waits = h.waiting.offer(key)
	}
	h.addLocked(key, n)
}

// isShort says that the store can take key.
func isShort(key string) bool { return key != "" && len(key) <= hintBytes }

func (h *Hints) load(key string) *hint {
	n, ok := h.known.Load(key)
	if !ok {
		return nil
	}
	return n.(*hint)
}

// addLocked makes n the youngest hint, and room for it. Caller holds mu.
func (h *Hints) addLocked(key string, n hint) {
	if old := h.load(key); old != nil {
		n.age = old.age
		h.ages.MoveToBack(n.age)
	} else {
		n.age = h.ages.PushBack(key)
	}
	h.known.Store(key, &n)
	for e := h.ages.Front(); e != nil && h.mayGoLocked(e); e = h.ages.Front() {
		h.dropLocked(e)
	}
}

// dropLocked forgets the hint of that age. Caller holds mu.
func (h *Hints) dropLocked(age *list.Element) {
	h.known.Delete(h.ages.Remove(age))
}

// mayGoLocked says that the oldest hint is one too many, or over. Caller holds mu.
func (h *Hints) mayGoLocked(oldest *list.Element) bool {
	return h.ages.Len() > h.most || !time.Now().Before(h.load(oldest.Value.(string)).until)
}

// hear takes over what a watch of the store says.
func (h *Hints) hear(e store.Entry) {
	var r record
	switch {
	case e.Deleted:
		h.lost(e.Key)
	case isShort(e.Key) && json.Unmarshal(e.Value, &r) == nil && len(r.Value) <= hintBytes:
		h.adopt(e.Key, e.Revision, r)
	}
}

// lost has the next Put of a hint tell the store again, which has it no more. That took nothing back: here the hint
// ends at its own time.
func (h *Hints) lost(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := h.load(key); n != nil {
		gone := *n
		gone.kept = time.Time{}
		h.known.Store(key, &gone)
	}
}

// adopt goes by what the store has. While another value from here is on its way, which of them the store took last is
// known only when that has arrived.
func (h *Hints) adopt(key string, rev uint64, r record) {
	now := time.Now()
	until := now.Add(min(r.Until.Sub(now), r.Left))
	if !until.After(now) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	n := hint{value: string(r.Value), until: until, kept: until, rev: rev}
	old := h.load(key)
	switch {
	case old == nil || !now.Before(old.until):
	case old.waits:
		waiting := *old
		waiting.told = &n
		h.known.Store(key, &waiting)
		return
	case old.value == n.value && old.until.After(until):
		n.until = old.until
	}
	h.addLocked(key, n)
}

// write has the store take the newest value under key, which may become another one meanwhile.
func (h *Hints) write(ctx context.Context, key string) error {
	for {
		n := h.due(key)
		if n == nil {
			return nil
		}
		left := time.Until(n.until)
		data, err := json.Marshal(record{[]byte(n.value), n.until.UTC(), left})
		if err != nil {
			return err
		}
		rev, err := h.bucket.Put(ctx, key, data, left)
		if isPassing(err) || h.settle(key, n, rev, err) {
			return err
		}
	}
}

// due returns the hint that waits to be written, or nil when it does not any more, or is over.
func (h *Hints) due(key string) *hint {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.load(key)
	switch {
	case n == nil || !n.waits:
		return nil
	case !time.Now().Before(n.until):
		h.dropLocked(n.age)
		return nil
	}
	return n
}

// settle takes down how a write ended, and says whether nothing is left to write.
func (h *Hints) settle(key string, written *hint, rev uint64, err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.load(key)
	if n == nil {
		return true
	}
	if err == nil && n.value != written.value {
		return false
	}
	done := *n
	done.waits, done.told = false, nil
	if err == nil {
		done.kept = written.until
	}
	if err == nil && n.told != nil && n.told.rev > rev {
		done = *n.told // Another replica was later.
		done.age = n.age
	}
	h.known.Store(key, &done)
	return true
}
