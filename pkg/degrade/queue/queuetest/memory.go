// Package queuetest is a store in memory for tests of what stands on pkg/degrade/queue: quick, in the time of a bubble,
// and failing when it is told to.
package queuetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"understudy/pkg/degrade/queue"
	"understudy/pkg/store"
)

const (
	// AckWait is how long an item stays with a worker who does not hold it.
	AckWait = 30 * time.Second
	// pullTick is the pause between two looks for an item.
	pullTick = 10 * time.Millisecond
	// window is how long a pushed id is remembered.
	window = 2 * time.Minute
)

// Fault is what goes wrong with a call.
type Fault int

// The faults. Unanswered is a write that was made, and of which the caller hears that the store is down; Sealed is of
// what no key opens.
const (
	None Fault = iota
	Refused
	Full
	Unanswered
	Sealed
)

// Memory is a store: all Parts of one Queue.
type Memory struct {
	// Fault, when set, decides what becomes of each call: op is create, update, put, get, put blob, get blob, delete
	// blob, push, pull, done, later or hold; key is the key, topic or id.
	Fault func(op, key string) Fault

	mu     sync.Mutex // mu guards the fields below.
	rev    uint64
	values map[string]value
}

type value struct {
	data    []byte
	rev     uint64
	expires time.Time
}

// New makes an empty store.
func New() *Memory { return &Memory{values: map[string]value{}} }

// Parts are places in m.
func (m *Memory) Parts() queue.Parts {
	return queue.Parts{
		Records: place{m, "records/"}, Dead: place{m, "dead/"}, Bodies: place{m, "bodies/"}, Results: place{m, "results/"},
		Jobs: &Line{m: m, pushed: map[string]time.Time{}}, Outbox: &Line{m: m, pushed: map[string]time.Time{}},
	}
}

// Keys are the keys below prefix, which is records/, dead/, bodies/ or results/.
func (m *Memory) Keys(prefix string) (keys []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, v := range m.values {
		if len(k) > len(prefix) && k[:len(prefix)] == prefix && time.Now().Before(v.expires) {
			keys = append(keys, k[len(prefix):])
		}
	}
	slices.Sort(keys)
	return keys
}

// call makes a call, or fails as Fault says.
func (m *Memory) call(op, key string, f func() error) error {
	fault := None
	if m.Fault != nil {
		fault = m.Fault(op, key)
	}
	switch fault {
	case Refused:
		return store.ErrDown
	case Full:
		return store.ErrFull
	case Sealed:
		return store.ErrSealed
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := f(); err != nil || fault == None {
		return err
	}
	return store.ErrDown
}

type place struct {
	m      *Memory
	prefix string
}

func (p place) find(key string) (value, bool) {
	v, ok := p.m.values[p.prefix+key]
	return v, ok && time.Now().Before(v.expires)
}

func (p place) set(key string, data []byte, ttl time.Duration) uint64 {
	if ttl <= 0 {
		ttl = 100 * 365 * 24 * time.Hour
	}
	p.m.rev++
	p.m.values[p.prefix+key] = value{data: slices.Clone(data), rev: p.m.rev, expires: time.Now().Add(ttl)}
	return p.m.rev
}

func (p place) Get(_ context.Context, key string) (e store.Entry, err error) {
	err = p.m.call("get", key, func() error {
		v, ok := p.find(key)
		if !ok {
			return store.ErrNotFound
		}
		e = store.Entry{Key: key, Value: v.data, Revision: v.rev}
		return nil
	})
	return e, err
}

func (p place) Create(_ context.Context, key string, data []byte, ttl time.Duration) (rev uint64, err error) {
	err = p.m.call("create", key, func() error {
		if _, ok := p.find(key); ok {
			return store.ErrExists
		}
		rev = p.set(key, data, ttl)
		return nil
	})
	return rev, err
}

func (p place) Update(_ context.Context, key string, data []byte, old uint64, ttl time.Duration) (rev uint64, err error) {
	err = p.m.call("update", key, func() error {
		if v, ok := p.find(key); !ok || v.rev != old {
			return store.ErrConflict
		}
		rev = p.set(key, data, ttl)
		return nil
	})
	return rev, err
}

func (p place) Put(_ context.Context, key string, data []byte, ttl time.Duration) (rev uint64, err error) {
	err = p.m.call("put", key, func() error { rev = p.set(key, data, ttl); return nil })
	return rev, err
}

func (p place) PutBlob(_ context.Context, key string, data []byte, ttl time.Duration) error {
	return p.m.call("put blob", key, func() error { p.set(key, data, ttl); return nil })
}

func (p place) GetBlob(_ context.Context, key string) (data []byte, err error) {
	err = p.m.call("get blob", key, func() error {
		v, ok := p.find(key)
		if !ok {
			return store.ErrNotFound
		}
		data = v.data
		return nil
	})
	return data, err
}

func (p place) DeleteBlob(_ context.Context, key string) error {
	return p.m.call("delete blob", key, func() error { delete(p.m.values, p.prefix+key); return nil })
}

// Line is a work queue.
type Line struct {
	m      *Memory
	pushed map[string]time.Time // by topic and id
	items  []*item
}

type item struct {
	topic, id  string
	data       []byte
	pushed     time.Time
	due        time.Time // when it may be delivered
	deliveries int
}

// Push adds an item.
func (l *Line) Push(_ context.Context, topic, id string, data []byte) error {
	return l.m.call("push", topic, func() error {
		now := time.Now()
		if at, ok := l.pushed[topic+"/"+id]; ok && now.Sub(at) < window {
			return nil
		}
		l.pushed[topic+"/"+id] = now
		l.items = append(l.items, &item{topic: topic, id: id, data: data, pushed: now, due: now})
		return nil
	})
}

// Pull takes the next item, or waits for one until ctx's deadline.
func (l *Line) Pull(ctx context.Context, topic string) (queue.Item, error) {
	tick := time.NewTicker(pullTick)
	defer tick.Stop()
	for {
		got, err := l.take(topic)
		if err != nil || got.Delivery != nil {
			return got, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return queue.Item{}, queue.ErrEmpty
			}
			return queue.Item{}, ctx.Err()
		}
	}
}

func (l *Line) take(topic string) (got queue.Item, err error) {
	err = l.m.call("pull", topic, func() error {
		now := time.Now()
		for _, it := range l.items {
			if it.topic == topic && !now.Before(it.due) {
				it.due = now.Add(AckWait)
				it.deliveries++
				got = queue.Item{Delivery: &delivery{l, it, it.deliveries}, Data: it.data, Deliveries: it.deliveries}
				break
			}
		}
		return nil
	})
	return got, err
}

// Stats counts.
func (l *Line) Stats(_ context.Context, topic string) (s queue.Stats, err error) {
	err = l.m.call("stats", topic, func() error {
		for _, it := range l.items {
			switch {
			case it.topic != topic:
				continue
			case it.deliveries > 0:
				s.Running++
			default:
				s.Waiting++
			}
			if s.Oldest.IsZero() {
				s.Oldest = it.pushed
			}
		}
		return nil
	})
	return s, err
}

// delivery is one delivery of an item; an outdated one changes nothing, except that what is done is done.
type delivery struct {
	l  *Line
	it *item
	n  int
}

func (d *delivery) Done(context.Context) error {
	return d.l.m.call("done", d.it.id, func() error {
		d.l.items = slices.DeleteFunc(d.l.items, func(it *item) bool { return it == d.it })
		return nil
	})
}

func (d *delivery) Later(_ context.Context, after time.Duration) error {
	return d.l.m.call("later", d.it.id, func() error { d.delay(after); return nil })
}

func (d *delivery) Hold(context.Context) error {
	return d.l.m.call("hold", d.it.id, func() error { d.delay(AckWait); return nil })
}

func (d *delivery) delay(after time.Duration) {
	if d.it.deliveries == d.n {
		d.it.due = time.Now().Add(after)
	}
}
