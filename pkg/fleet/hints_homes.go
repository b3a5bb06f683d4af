package fleet

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// homesWaiting is how many homes wait for the store, at most.
	homesWaiting = 4096
	// homesRecent is how many homes are in memory: all that wait, and as many again.
	homesRecent = 2 * homesWaiting
	// homesAtOnce is how many are written at once: a write to a cluster waits for the way between its nodes most of all.
	homesAtOnce = 8
	// findWithin bounds what a request waits to learn where it belongs.
	findWithin = 500 * time.Millisecond
)

// Homes say where something lives that one provider made and only it knows, by its id. They are many and last long, so
// the store has them, and memory only the newest that were put here: a follow-up may come sooner than the store's word.
//
// Ownership: who made it calls Run once. Concurrency: all other methods may be called at once.
type Homes struct {
	bucket  Values
	waiting backlog[home]
	dropped atomic.Uint64

	mu     sync.Mutex // mu guards the fields below.
	recent map[string]string
	ids    []string // in recent, as a ring
	next   int      // where in ids the next one goes
}

type home struct{ id, where string }

// NewHomes makes Homes. How long they are kept, and how many, is up to the bucket.
func NewHomes(bucket Values) *Homes {
	return &Homes{bucket: bucket, waiting: make(backlog[home], homesWaiting), recent: map[string]string{},
		ids: make([]string, homesRecent)}
}

// Run writes homes to the store until ctx ends and for a moment more, in which the store gets what waits for it.
func (h *Homes) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for range homesAtOnce {
		wg.Go(func() { h.waiting.run(ctx, h.write) })
	}
	wg.Wait()
}

// Put says where id lives. It does not wait for the store; what the store does not get is counted by Dropped.
func (h *Homes) Put(id, where string) {
	if !isShort(id) || !isShort(where) {
		h.dropped.Add(1)
		return
	}
	h.remember(id, where)
	if !h.waiting.offer(home{id, where}) {
		h.dropped.Add(1)
	}
}

// Dropped is how many homes were lost to the other replicas: too many waited, the store was full, or the id or home was
// empty or beyond 340 bytes.
func (h *Homes) Dropped() uint64 { return h.dropped.Load() }

// Find returns where id lives, or "" when that is unknown, or not found out within half a second.
func (h *Homes) Find(ctx context.Context, id string) string {
	if !isShort(id) {
		return ""
	}
	if where := h.recall(id); where != "" {
		return where
	}
	ctx, cancel := context.WithTimeout(ctx, findWithin)
	defer cancel()
	e, err := h.bucket.Get(ctx, id)
	if err != nil {
		return "" // Unknown or out of reach: the caller can do the same about either.
	}
	return string(e.Value)
}

func (h *Homes) remember(id, where string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, there := h.recent[id]; !there {
		delete(h.recent, h.ids[h.next])
		h.ids[h.next] = id
		h.next = (h.next + 1) % len(h.ids)
	}
	h.recent[id] = where
}

func (h *Homes) recall(id string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.recent[id]
}

func (h *Homes) write(ctx context.Context, v home) error {
	_, err := h.bucket.Put(ctx, v.id, []byte(v.where), 0)
	if err != nil && !isPassing(err) {
		h.dropped.Add(1)
	}
	return err
}
