package once

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"understudy/pkg/store"
)

const (
	// failKept is how long the answer of Fail is there for those who wait: several of their looks, should they hear nothing.
	failKept = 6 * pollEvery
	// answerMargin is how much longer than its record an answer is kept: it is written before, and a waiter reads it after.
	answerMargin = time.Minute
	// retryFirst and retryMost bound the pause before a store that is down is tried again; it doubles.
	retryFirst = 100 * time.Millisecond
	retryMost  = 2 * time.Second
)

// Claim is one attempt's claim of a key.
//
// Ownership: who has one that is Mine, or came with the store's error, ends it by Finish, Fail or Abandon; the first of
// them counts. While the store is down they try again until ctx ends or the claim's life is over. Concurrency: all
// methods may be called at once.
type Claim struct {
	Outcome Outcome
	Answer  Answer // of one that is Finished

	keys  *Keys
	key   string
	rec   record    // as this claim wrote it, or tried to
	rev   uint64    // its revision; 0 when it is not known
	until time.Time // when its life is over, by the clock here
}

// Finish ends the claim with a good answer, which all who ask within the window get. An answer that the store refuses
// frees the key, and the error says why.
func (c *Claim) Finish(ctx context.Context, a Answer, window time.Duration) error {
	if window <= 0 {
		return fmt.Errorf("idempotency: the window of a key must be more than 0, got %s", window)
	}
	return c.told("finish", c.end(ctx, kept, a, window))
}

// Fail ends the claim with an answer that only those get who wait for it now. Whoever asks later runs anew.
func (c *Claim) Fail(ctx context.Context, a Answer) error {
	return c.told("fail", c.end(ctx, failed, a, failKept))
}

// Abandon ends the claim without an answer: the key is free, and one of those who wait gets it. It is no error when the
// claim has ended already.
func (c *Claim) Abandon(ctx context.Context) error {
	err := c.insist(ctx, func() error {
		return c.swap(ctx, func(rev uint64) error { return c.keys.claims.Delete(ctx, c.key, rev) })
	})
	if errors.Is(err, ErrLost) {
		return nil
	}
	return c.told("abandon", err)
}

func (c *Claim) told(op string, err error) error {
	if err != nil {
		return fmt.Errorf("idempotency: %s: %w", op, err)
	}
	return nil
}

func (c *Claim) end(ctx context.Context, s state, a Answer, ttl time.Duration) error {
	ended := c.rec
	ended.State, ended.Answer = s, rand.Text()
	value, err := a.encode(ended.Answer)
	if err != nil {
		return err
	}
	err = c.insist(ctx, func() error { return c.keys.answers.PutBlob(ctx, ended.Answer, value, ttl+answerMargin) })
	if err == nil {
		err = c.insist(ctx, func() error {
			return c.swap(ctx, func(rev uint64) error {
				_, err := c.keys.claims.Update(ctx, c.key, encode(ended), rev, ttl)
				return err
			})
		})
	}
	if err == nil || errors.Is(err, ErrLost) || errors.Is(err, store.ErrDown) || ctx.Err() != nil {
		return err
	}
	return errors.Join(err, c.Abandon(ctx)) // Nobody shall wait for what will not come.
}

// swap makes one change at the revision of the claim's record, or fails with ErrLost. It is nil too when an earlier
// change was made whose answer did not come.
func (c *Claim) swap(ctx context.Context, change func(rev uint64) error) error {
	for rev := c.rev; ; {
		if rev == 0 {
			rec, now, err := c.keys.read(ctx, c.key)
			switch {
			case errors.Is(err, store.ErrNotFound) || err == nil && rec.Pen != c.rec.Pen:
				return ErrLost
			case err != nil || rec.State != running:
				return err
			}
			rev = now
		}
		err := change(rev)
		if err == nil {
			c.keys.hear(store.Entry{Key: c.key}) // Who waits here need not wait for the watch.
		}
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		rev = 0
	}
}

// insist calls f again while the store is down.
func (c *Claim) insist(ctx context.Context, f func() error) error {
	for wait := retryFirst; ; wait = min(2*wait, retryMost) {
		err := f()
		if !errors.Is(err, store.ErrDown) || time.Now().After(c.until) || !pause(ctx, wait) {
			return err
		}
	}
}

// pause waits, or returns false when ctx ends before.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
