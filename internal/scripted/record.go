package scripted

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// keptBody is how much of a request body is kept for assertions, in bytes.
const keptBody = 64 << 10

// Request is one request as it arrived, and how it ended.
type Request struct {
	ID     string // x-script-id
	Method string
	Host   string
	Path   string // with the query
	Proto  string
	Header http.Header

	Size   int64  // bytes of the body as sent
	SHA256 string // of the body as sent, in hex
	Body   []byte // its first 64 KiB
	Model  string // as the body says, after decoding, or a platform's path
	Stream bool
	Step   Behaviour // what it was given

	Refused string // why, of a platform that was not asked as it wants to be

	At    time.Time // when its headers had come
	Done  bool      // nothing more is sent
	Ended time.Time // since when
	Gone  bool      // the client went away first
}

// log keeps the requests of a provider.
type log struct {
	// mu guards the fields below.
	mu      sync.Mutex
	all     []*Request
	byID    map[string][]*Request
	changed chan struct{} // closed and replaced at every change
}

func (l *log) init() {
	l.byID = map[string][]*Request{}
	l.changed = make(chan struct{})
}

// add keeps r and says how many requests of its id came before.
func (l *log) add(r *Request) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(l.byID[r.ID])
	l.all = append(l.all, r)
	l.byID[r.ID] = append(l.byID[r.ID], r)
	l.wakeLocked()
	return before
}

// update changes a kept request.
func (l *log) update(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	l.wakeLocked()
}

// Caller must hold mu.
func (l *log) wakeLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Requests are the requests of a script id so far, oldest first; "" means of every id.
func (p *Provider) Requests(id string) []Request {
	p.log.mu.Lock()
	defer p.log.mu.Unlock()
	kept := p.log.byID[id]
	if id == "" {
		kept = p.log.all
	}
	copies := make([]Request, len(kept))
	for i, r := range kept {
		copies[i] = *r
	}
	return copies
}

// Forget drops the requests kept so far, which a provider that plays for days must do.
func (p *Provider) Forget() {
	p.log.mu.Lock()
	defer p.log.mu.Unlock()
	p.log.all = nil
	clear(p.log.byID)
}

// Count is how many requests of a script id have come; "" counts all.
func (p *Provider) Count(id string) int {
	return p.count(id, func(*Request) bool { return true })
}

// AwaitRequests waits until n requests of a script id have come.
func (p *Provider) AwaitRequests(ctx context.Context, id string, n int) error {
	return p.await(ctx, id, n, "requests", func(*Request) bool { return true })
}

// AwaitGone waits until the clients of n requests of a script id have gone away before their answers' ends.
func (p *Provider) AwaitGone(ctx context.Context, id string, n int) error {
	return p.await(ctx, id, n, "hang-ups", func(r *Request) bool { return r.Gone })
}

// AwaitDone waits until n requests of a script id have been dealt with.
func (p *Provider) AwaitDone(ctx context.Context, id string, n int) error {
	return p.await(ctx, id, n, "answers", func(r *Request) bool { return r.Done })
}

func (p *Provider) await(ctx context.Context, id string, n int, what string, is func(*Request) bool) error {
	for {
		p.log.mu.Lock()
		changed := p.log.changed
		p.log.mu.Unlock()
		got := p.count(id, is)
		if got >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("provider %s has seen %d %s of %q, want %d: %w", p.name, got, what, id, n, ctx.Err())
		}
	}
}

func (p *Provider) count(id string, is func(*Request) bool) int {
	p.log.mu.Lock()
	defer p.log.mu.Unlock()
	kept := p.log.byID[id]
	if id == "" {
		kept = p.log.all
	}
	n := 0
	for _, r := range kept {
		if is(r) {
			n++
		}
	}
	return n
}
