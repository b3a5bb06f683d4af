package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// heartbeat is how often an idle cursor shows that it lives; after heartbeatsMissed of them it is given up. A cursor
	// dies with the node that holds it, and nobody says so.
	heartbeat        = time.Second
	heartbeatsMissed = 3
	// heartbeatInside is that of a server in this process, whose end is known anyway: each one wakes a dozen goroutines.
	heartbeatInside = 10 * time.Second
	// rewatch is the pause before a watch that broke begins again.
	rewatch = 100 * time.Millisecond

	// Status messages of a push consumer (ADR-15): 100 with one of these headers or without data.
	statusHeader       = "Status"
	lastConsumerHeader = "Nats-Last-Consumer"
	stalledHeader      = "Nats-Consumer-Stalled"
)

var errGap = errors.New("a change was missed")

// Watch calls f with all current values and then with each change, in order, until ctx ends or the store is closed. It
// blocks; f runs in its goroutine. After an outage all current values come again, and what is gone meanwhile comes as
// Deleted. Two quick changes of one key may come as the later one.
func (b *Bucket) Watch(ctx context.Context, f func(Entry)) {
	w := &watch{bucket: b, f: f, known: map[string]uint64{}}
	for {
		w.session(ctx)
		select {
		case <-b.store.done:
			return
		default:
		}
		if !pause(ctx, rewatch) {
			return
		}
	}
}

// watch is what outlives a watch's sessions: what f knows.
type watch struct {
	bucket *Bucket
	f      func(Entry)
	known  map[string]uint64 // the revisions of the values that f has
	high   uint64            // the greatest revision told, of the stream made at born
	born   time.Time
}

// session watches until something breaks; what it was, the store knows better.
func (w *watch) session(ctx context.Context) {
	ses := w.bucket.store.state.Load().ses
	if ses == nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ses.ctx, cancel)()
	c, err := w.begin(ctx, ses)
	if err != nil {
		return
	}
	defer c.stop()
	if w.catchUp(ctx, c) != nil {
		return
	}
	for {
		e, ok, err := c.next(ctx)
		if err != nil {
			return
		}
		if _, known := w.known[e.Key]; ok && (known || !e.Deleted) {
			w.tell(e)
		}
	}
}

func (w *watch) begin(ctx context.Context, ses *session) (*cursor, error) {
	ctx, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	h, err := w.bucket.open(ctx, ses)
	if err != nil {
		return nil, err
	}
	info, err := ask(ctx, func(ctx context.Context) (*jetstream.StreamInfo, error) { return h.stream.Info(ctx) })
	if err != nil {
		return nil, err
	}
	if !info.Created.Equal(w.born) {
		w.born, w.high = info.Created, 0 // The bucket is another one: its revisions begin anew.
	}
	return ask(ctx, func(ctx context.Context) (*cursor, error) {
		return w.bucket.follow(ctx, h, jetstream.ConsumerConfig{})
	})
}

// catchUp tells the current values, and then which known keys are not among them. A node that lags behind may begin
// with values that f knows to be old: they are left out.
func (w *watch) catchUp(ctx context.Context, c *cursor) error {
	before, high := w.known, w.high
	w.known = map[string]uint64{}
	for !c.current() {
		e, ok, err := c.next(ctx)
		if err != nil {
			maps.Copy(before, w.known)
			w.known = before
			return err
		}
		rev, known := before[e.Key]
		_, told := w.known[e.Key]
		if !ok || e.Revision <= high && e.Revision != rev || e.Deleted && !known && !told {
			continue
		}
		delete(before, e.Key)
		w.tell(e)
	}
	for key := range before {
		w.f(Entry{Key: key, Deleted: true})
	}
	return nil
}

func (w *watch) tell(e Entry) {
	w.high = max(w.high, e.Revision)
	if e.Deleted {
		delete(w.known, e.Key)
	} else {
		w.known[e.Key] = e.Revision
	}
	w.f(e)
}

// cursor reads a bucket's messages in order: first the newest under each key, then what comes. It is a push consumer
// without acknowledgements that is thrown away at the first irregularity.
type cursor struct {
	bucket    *Bucket
	ses       *session
	in        *inbox
	keysOnly  bool   // the values are left out
	delivered uint64 // messages so far, as the server counts them
	initial   uint64 // messages that were there when the cursor was made
	caughtUp  bool   // they have been read
	barrier   uint64 // a revision that was there too, though the cursor's node may not have it yet
	last      uint64 // the last revision read
}

func (b *Bucket) follow(ctx context.Context, h *handle, cfg jetstream.ConsumerConfig) (*cursor, error) {
	barrier, err := b.barrier(ctx, h)
	if err != nil {
		return nil, err
	}
	cfg.DeliverSubject = h.ses.nc.NewInbox()
	cfg.DeliverPolicy = jetstream.DeliverLastPerSubjectPolicy
	cfg.FilterSubject = b.subject("*") // A blob's chunks have more tokens.
	cfg.AckPolicy = jetstream.AckNonePolicy
	cfg.MaxDeliver = 1
	cfg.MemoryStorage = true
	cfg.Replicas = 1
	cfg.FlowControl = true
	cfg.IdleHeartbeat = b.store.heartbeat()
	in, err := listen(h.ses.nc, cfg.DeliverSubject)
	if err != nil {
		return nil, err
	}
	consumer, err := h.stream.CreatePushConsumer(ctx, cfg)
	if err != nil {
		in.stop()
		return nil, err
	}
	info := consumer.CachedInfo()
	initial := info.NumPending + info.Delivered.Consumer
	return &cursor{
		bucket: b, ses: h.ses, in: in, keysOnly: cfg.HeadersOnly, initial: initial, caughtUp: initial == 0, barrier: barrier,
	}, nil
}

func (s *Store) heartbeat() time.Duration {
	if s.opt.Dir != "" {
		return heartbeatInside
	}
	return heartbeat
}

// barrier makes a revision that is newer than every write acknowledged so far. Among several nodes the cursor may be on
// one that lags behind, and only there is it needed.
func (b *Bucket) barrier(ctx context.Context, h *handle) (uint64, error) {
	if h.stream.CachedInfo().Config.Replicas == 1 {
		return 0, nil
	}
	rev, err := b.mark(ctx, h, proofToken)
	if isFull(err) {
		return 0, nil // Then without it.
	}
	return rev, err
}

// stop ends the cursor; the server removes its own half when nobody listens any more.
func (c *cursor) stop() { c.in.stop() }

// current says that all values that were there at the beginning have been read.
func (c *cursor) current() bool { return c.caughtUp && c.last >= c.barrier }

// next waits for a message. ok is false for one that is no entry.
func (c *cursor) next(ctx context.Context) (e Entry, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, heartbeatsMissed*c.bucket.store.heartbeat())
	defer cancel()
	m, err := c.in.take(ctx)
	if err != nil {
		return Entry{}, false, err
	}
	if m.Header.Get(statusHeader) != "" {
		return Entry{}, false, c.control(m)
	}
	meta, err := m.Metadata()
	if err != nil {
		return Entry{}, false, err
	}
	c.delivered++
	c.last = meta.Sequence.Stream
	if meta.Sequence.Consumer != c.delivered {
		return Entry{}, false, errGap
	}
	c.caughtUp = c.caughtUp || meta.NumPending == 0 || c.delivered >= c.initial
	key, ok := decodeKey(strings.TrimPrefix(m.Subject, c.bucket.subject("")))
	e = Entry{Key: key, Value: m.Data, Revision: meta.Sequence.Stream, Deleted: isMarker(m.Header)}
	if ok && !e.Deleted && !c.keysOnly {
		c.open(&e, m)
	}
	return e, ok, nil
}

// open opens an entry's value; one that does not open is as good as gone.
func (c *cursor) open(e *Entry, m *nats.Msg) {
	var err error
	if e.Value, err = c.bucket.seal.open(m.Subject, m.Header, m.Data); err != nil {
		e.Deleted = true
		c.bucket.store.log.note("store value is left out", "bucket", c.bucket.name, "key", e.Key, "err", err)
	}
}

// control answers flow control (without an answer the server stops sending), and finds from a heartbeat that the last
// messages are missing.
func (c *cursor) control(m *nats.Msg) error {
	if m.Header.Get(statusHeader) != "100" {
		return fmt.Errorf("the cursor ended: %s", m.Header.Get("Description"))
	}
	if m.Reply != "" {
		return m.Respond(nil)
	}
	if stalled := m.Header.Get(stalledHeader); stalled != "" {
		return c.ses.nc.Publish(stalled, nil)
	}
	last, err := strconv.ParseUint(m.Header.Get(lastConsumerHeader), 10, 64)
	if err == nil && last != c.delivered {
		return errGap
	}
	return nil
}
