package fleet

import (
	"context"
	"errors"
	"time"

	"understudy/pkg/store"
)

const (
	// writeAgain is the pause before a write that the store did not take is made again.
	writeAgain = time.Second
	// farewell bounds what is written after the end.
	farewell = time.Second
)

// backlog is what waits to be written to the store, so that no request does.
type backlog[T any] chan T

// offer adds v, or says that too much waits.
func (b backlog[T]) offer(v T) bool {
	select {
	case b <- v:
		return true
	default:
		return false
	}
}

// run writes what waits until ctx ends, and then for a moment what is left. Through an outage it holds on to what it has.
func (b backlog[T]) run(ctx context.Context, write func(context.Context, T) error) {
	for {
		select {
		case <-ctx.Done():
			b.finish(ctx, write)
			return
		case v := <-b:
			if !hold(ctx, v, write) {
				b.offer(v)
			}
		}
	}
}

// hold writes v however long the store is down, or until ctx ends: then it is false.
func hold[T any](ctx context.Context, v T, write func(context.Context, T) error) bool {
	for {
		brief, cancel := context.WithTimeout(ctx, patience)
		err := write(brief, v)
		cancel()
		if !isPassing(err) {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		sleep(ctx, writeAgain)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// finish writes what is left, once: those who come after can use it.
func (b backlog[T]) finish(ctx context.Context, write func(context.Context, T) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	for ctx.Err() == nil {
		select {
		case v := <-b:
			_ = write(ctx, v) // Nobody is left who could try again.
		default:
			return
		}
	}
}

// isPassing says that a write may do better later.
func isPassing(err error) bool {
	return errors.Is(err, store.ErrDown) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
