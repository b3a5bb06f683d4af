package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Acknowledgements of a consumer's messages (NATS's JetStream wire API); delay is in nanoseconds.
const (
	ackDone  = "+ACK"
	ackHold  = "+WPI"
	ackLater = `-NAK {"delay": %d}`
)

// Item is a piece of work that was pulled and is to be settled, by Done or Later, before its lease runs out. A lost
// session does not matter to it.
//
// Concurrency: all methods may be called at once.
type Item struct {
	Topic string
	Data  []byte
	// Pushed is when it was pushed, as the server's clock says.
	Pushed time.Time
	// Deliveries is how often it was given out, this time included. A kill of the process may take some from the count.
	Deliveries int

	queue *Queue
	ack   string    // the subject that settles it
	born  time.Time // when its stream was made

	mu    sync.Mutex // mu guards the fields below.
	until time.Time  // when the lease ends
}

func (q *Queue) item(h *handle, topic string, m jetstream.Msg) (*Item, error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, err
	}
	return &Item{
		Topic: topic, Data: m.Data(), Pushed: meta.Timestamp, Deliveries: int(meta.NumDelivered),
		queue: q, ack: m.Reply(), born: h.born(), until: time.Now().Add(q.opt.Lease),
	}, nil
}

// born tells a stream from another that was made later under the same name.
func (h *handle) born() time.Time { return h.stream.CachedInfo().Created }

// Done settles the item for good: when it returns nil nobody is given it again. It may be called again after ErrDown.
// It settles an item whose lease ran out too, even while another has it.
func (i *Item) Done(ctx context.Context) error { return i.tell(ctx, "settle", ackDone) }

// Later gives the item back, to be given out again after a pause. A restart may cut the pause or add to it, by a lease at
// most.
func (i *Item) Later(ctx context.Context, after time.Duration) error {
	return i.tell(ctx, "put off", fmt.Sprintf(ackLater, max(after, 0).Nanoseconds()))
}

// Hold begins the lease anew, or fails with ErrHeld when it had run out: another may have the item.
func (i *Item) Hold(ctx context.Context) error {
	i.mu.Lock()
	late := time.Now().After(i.until)
	i.mu.Unlock()
	if late {
		return fmt.Errorf("store: hold an item of %q in %s: its lease ran out: %w", i.Topic, i.queue.name, ErrHeld)
	}
	began := time.Now()
	if err := i.tell(ctx, "hold", ackHold); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.until = began.Add(i.queue.opt.Lease)
	return nil
}

// tell has the server do something with the item, and waits until it says so. An item whose stream is gone is not found:
// its place in a new one is another's.
func (i *Item) tell(ctx context.Context, op, word string) error {
	return i.queue.run(ctx, fmt.Sprintf("%s an item of %q", op, i.Topic), func(ctx context.Context, h *handle) error {
		if !h.born().Equal(i.born) {
			return ErrNotFound
		}
		_, err := ask(ctx, func(ctx context.Context) (*nats.Msg, error) {
			m, err := h.ses.nc.RequestWithContext(ctx, i.ack, []byte(word))
			if errors.Is(err, nats.ErrNoResponders) { // The consumer has no leader yet.
				<-ctx.Done()
				err = context.DeadlineExceeded
			}
			return m, err
		})
		return err
	})
}
