package recovery

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"understudy/pkg/config"
	"understudy/pkg/degrade/queue"
	"understudy/pkg/store"
)

// shelf is a bucket in memory, for small values and for large ones. Nothing in it expires.
type shelf struct {
	mu      sync.Mutex
	entries map[string]store.Entry
}

func newShelf() *shelf { return &shelf{entries: map[string]store.Entry{}} }

func (s *shelf) Get(_ context.Context, key string) (store.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries[key]
	if !ok {
		return e, store.ErrNotFound
	}
	return e, nil
}

func (s *shelf) Create(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error) {
	if rev, err := s.Update(ctx, key, value, 0, ttl); err == nil {
		return rev, nil
	}
	return 0, store.ErrExists
}

func (s *shelf) Update(_ context.Context, key string, value []byte, revision uint64, _ time.Duration) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[key].Revision != revision {
		return 0, store.ErrConflict
	}
	s.entries[key] = store.Entry{Value: value, Revision: revision + 1}
	return revision + 1, nil
}

func (s *shelf) Put(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error) {
	e, _ := s.Get(ctx, key)
	return s.Update(ctx, key, value, e.Revision, ttl)
}

func (s *shelf) PutBlob(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	_, err := s.Put(ctx, key, value, ttl)
	return err
}

func (s *shelf) GetBlob(ctx context.Context, key string) ([]byte, error) {
	e, err := s.Get(ctx, key)
	return e.Value, err
}

func (s *shelf) DeleteBlob(_ context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.entries, key)
	return nil
}

func (s *shelf) keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.entries))
}

// line is a work queue in memory.
type line struct {
	hurry bool // what is put off comes again soon
	fail  func(what string) error

	mu     sync.Mutex
	topics map[string]chan queue.Item
	put    []time.Duration // how long each was put off
}

func newLine() *line {
	return &line{topics: map[string]chan queue.Item{}, fail: func(string) error { return nil }}
}

func (l *line) topic(name string) chan queue.Item {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.topics[name] == nil {
		l.topics[name] = make(chan queue.Item, 1000)
	}
	return l.topics[name]
}

func (l *line) Push(_ context.Context, topic, _ string, data []byte) error {
	l.deliver(topic, data, 1)
	return nil
}

func (l *line) deliver(topic string, data []byte, deliveries int) {
	d := &delivery{line: l, topic: topic, data: data, n: deliveries}
	l.topic(topic) <- queue.Item{Delivery: d, Data: data, Deliveries: deliveries}
}

func (l *line) Pull(ctx context.Context, topic string) (queue.Item, error) {
	if err := l.fail("pull"); err != nil {
		return queue.Item{}, err
	}
	select {
	case item := <-l.topic(topic):
		return item, nil
	case <-time.After(time.Minute):
		return queue.Item{}, queue.ErrEmpty
	case <-ctx.Done():
		return queue.Item{}, ctx.Err()
	}
}

func (l *line) Stats(_ context.Context, topic string) (queue.Stats, error) {
	return queue.Stats{Waiting: uint64(len(l.topic(topic)))}, nil
}

// puts are the times for which items were put off so far.
func (l *line) puts() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.put)
}

type delivery struct {
	line  *line
	topic string
	data  []byte
	n     int
}

// Done fails as the line does; an item that is not done comes again when its time is up.
func (d *delivery) Done(context.Context) error {
	err := d.line.fail("done")
	if err != nil {
		time.AfterFunc(30*time.Second, d.again)
	}
	return err
}

func (d *delivery) again()                     { d.line.deliver(d.topic, d.data, d.n+1) }
func (d *delivery) Hold(context.Context) error { return nil }

func (d *delivery) Later(_ context.Context, after time.Duration) error {
	d.line.mu.Lock()
	d.line.put = append(d.line.put, after)
	d.line.mu.Unlock()
	if d.line.hurry {
		after = 10 * time.Millisecond
	}
	time.AfterFunc(after, d.again)
	return nil
}

// newQueue is the real queue over memory.
func newQueue(cfg func() *config.Config) (q *queue.Queue, outbox *line, dead *shelf) {
	outbox, dead = newLine(), newShelf()
	return &queue.Queue{
		Parts: queue.Parts{
			Records: newShelf(), Dead: dead, Bodies: newShelf(), Results: newShelf(), Jobs: newLine(), Outbox: outbox,
		},
		Config: cfg, Count: func(string, string) {},
	}, outbox, dead
}

// ended is a job of chain that has just ended as done, whose notice is in the outbox.
func ended(t *testing.T, q *queue.Queue, chain, key string) queue.Job {
	t.Helper()
	job, err := q.Accept(t.Context(), queue.Request{
		Chain: chain, Key: key, Path: "/v1/messages", Body: []byte(`{}`), MaxAge: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	w, err := q.Next(t.Context(), chain)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Finish(t.Context(), queue.Result{Status: 200, Body: []byte("the answer, a secret")}, queue.Done); err != nil {
		t.Fatal(err)
	}
	return job
}
