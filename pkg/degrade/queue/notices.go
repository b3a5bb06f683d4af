package queue

import (
	"context"
	"errors"
	"time"

	"understudy/pkg/store"
)

// Notice says that a job has ended. One job may have several, all with the job's id.
type Notice struct {
	ID       string    `json:"id"` // the job's, also the id of the webhook
	State    State     `json:"state"`
	Chain    string    `json:"chain"`
	Key      string    `json:"idempotency_key"`
	Created  time.Time `json:"created"`
	Finished time.Time `json:"finished"`
	Location string    `json:"location"`

	Deliveries int `json:"-"` // how often it was handed out, this time included

	q    *Queue
	item Item
}

// dead is a notice that nobody took.
type dead struct {
	Notice
	Why string    `json:"why"`
	At  time.Time `json:"at"`
}

// Notices hands out what is to be told.
type Notices struct{ q *Queue }

// Notices are those of all chains.
func (q *Queue) Notices() Notices { return Notices{q} }

// Next waits for a chain's next notice, which must end with Done, Later or Dead. It fails when ctx ends, or as the store
// does.
func (n Notices) Next(ctx context.Context, chain string) (*Notice, error) {
	for {
		item, err := pull(ctx, n.q.Outbox, chain, pullFor)
		if errors.Is(err, ErrEmpty) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return nil, err
		}
		notice, err := n.open(ctx, item)
		if notice != nil || err != nil && !errors.Is(err, store.ErrSealed) {
			return notice, err
		}
	}
}

// open makes a notice of an item. Without notice and error there is nothing to tell any more: nobody could fetch the
// result.
func (n Notices) open(ctx context.Context, item Item) (*Notice, error) {
	rec, _, err := n.q.read(ctx, string(item.Data))
	if errors.Is(err, ErrNotFound) {
		return nil, item.Done(ctx)
	}
	if err != nil {
		item.unread(ctx, err)
		return nil, err
	}
	return &Notice{
		ID: rec.ID, State: rec.State, Chain: rec.Chain, Key: rec.Key, Created: rec.Created, Finished: rec.Finished,
		Location: rec.Location(), Deliveries: item.Deliveries, q: n.q, item: item,
	}, nil
}

// Hold keeps the notice for another while.
func (n *Notice) Hold(ctx context.Context) error { return n.item.Hold(ctx) }

// Done says that the receiver has it.
func (n *Notice) Done(ctx context.Context) error { return n.item.Done(ctx) }

// Later gives the notice back, to be handed out again after a while.
func (n *Notice) Later(ctx context.Context, after time.Duration) error {
	return n.item.Later(ctx, after)
}

// Dead gives the notice up, and keeps it for the operator as long as the job is kept.
func (n *Notice) Dead(ctx context.Context, why string) error {
	d := dead{Notice: *n, Why: why, At: time.Now().UTC()}
	if _, err := n.q.Dead.Put(ctx, n.ID, encode(d), n.q.Config().Jobs.Keep); err != nil {
		return err
	}
	n.q.Count(n.Chain, "dead")
	return n.item.Done(ctx)
}
