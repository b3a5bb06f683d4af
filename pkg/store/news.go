package store

import (
	"bytes"
	"context"
	"sync/atomic"
)

type news struct {
	subject string
	data    []byte
}

// Publish sends news to all subscribers of subject, this store's own included, if it can: it never waits, and what
// cannot be sent, or is larger than 64 KiB, is dropped and counted.
func (s *Store) Publish(subject string, data []byte) {
	if s.state.Load().ses == nil || len(data) > newsMost {
		s.dropped.Add(1)
		return
	}
	select {
	case s.news <- news{subject, bytes.Clone(data)}:
	default:
		s.dropped.Add(1)
	}
}

// sendNews passes news on until the session ends; what then waits is stale and dropped. A goroutine of its own does it,
// because a write may wait for a server that does not read.
func (s *Store) sendNews(ses *session) {
	for {
		select {
		case n := <-s.news:
			if err := ses.nc.Publish(n.subject, n.data); err != nil {
				s.dropped.Add(1)
			}
		case <-ses.ctx.Done():
			s.dropNews()
			return
		}
	}
}

// dropNews drops what waits; only one goroutine at a time receives from news.
func (s *Store) dropNews() {
	for range len(s.news) {
		<-s.news
		s.dropped.Add(1)
	}
}

// subscription is a wish to hear a subject, made anew in every session.
type subscription struct {
	store   *Store
	subject string
	f       func(data []byte)
	stopped atomic.Bool
	current atomic.Pointer[inbox]
}

// Subscribe calls f, one call at a time, with each piece of news under subject, while the store is up. f must return
// soon and must not close the store. After stop at most a call that has begun goes on.
func (s *Store) Subscribe(subject string, f func(data []byte)) (stop func()) {
	sub := &subscription{store: s, subject: subject, f: f}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subs[sub] = struct{}{}
	if ses := s.state.Load().ses; ses != nil {
		if err := sub.begin(ses); err != nil {
			s.suspect() // The session is ending; the next one begins the subscription.
		}
	}
	return sub.stop
}

// begin subscribes in a session. The caller holds the store's mu.
func (sub *subscription) begin(ses *session) error {
	in, err := listen(ses.nc, sub.subject)
	if err != nil {
		return err
	}
	sub.current.Store(in)
	ses.wg.Go(func() { sub.hear(ses.ctx, in) })
	return nil
}

func (sub *subscription) hear(ctx context.Context, in *inbox) {
	defer in.stop()
	for counted := 0; ; {
		m, err := in.take(ctx)
		if err != nil || sub.stopped.Load() {
			return
		}
		lost := max(counted, in.dropped())
		sub.store.dropped.Add(uint64(lost - counted))
		counted = lost
		sub.f(m.Data)
	}
}

func (sub *subscription) stop() {
	sub.stopped.Store(true)
	sub.store.mu.Lock()
	delete(sub.store.subs, sub)
	sub.store.mu.Unlock()
	if in := sub.current.Load(); in != nil {
		in.stop()
	}
}
