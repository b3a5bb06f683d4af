package queue

import (
	"context"
	"errors"

	"understudy/pkg/store"
)

// line is a store's queue as a Line.
type line struct{ *store.Queue }

func (l line) Pull(ctx context.Context, topic string) (Item, error) {
	item, err := l.Queue.Pull(ctx, topic)
	if errors.Is(err, store.ErrNotFound) || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return Item{}, ErrEmpty
	}
	if err != nil {
		return Item{}, err
	}
	return Item{Delivery: item, Data: item.Data, Deliveries: item.Deliveries}, nil
}

func (l line) Stats(ctx context.Context, topic string) (Stats, error) {
	s, err := l.Queue.Stats(ctx, topic)
	return Stats(s), err
}
