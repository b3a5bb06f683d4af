package queue

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"understudy/pkg/store"
)

const (
	// unreadable is the pause before an item whose record or body cannot be read is delivered again.
	unreadable = 5 * time.Second
	// sweepMost is how many items Sweep looks at that turn out to have time left: those that were delivered before come
	// in no strict order.
	sweepMost = 16
)

// Work is a job that was given to this worker. It must end with Finish, Expire or Later; a worker that dies gives it to
// another, as does one that forgets to Hold.
//
// Concurrency: Hold may be called during any other method.
type Work struct {
	Job  Job
	Body []byte

	q     *Queue
	item  Item
	blob  string // key of this worker's result; "" until it has one
	noted bool   // its outcome was counted
}

// Next takes a chain's next job. It fails with ErrEmpty when none came for a while, and otherwise as the store does.
func (q *Queue) Next(ctx context.Context, chain string) (*Work, error) {
	for {
		item, err := q.Jobs.Pull(ctx, chain)
		if err != nil {
			return nil, err
		}
		if w, err := q.begin(ctx, item); w != nil || err != nil {
			return w, err
		}
	}
}

// begin makes work of an item. Without work and error there was none in it.
func (q *Queue) begin(ctx context.Context, item Item) (*Work, error) {
	w := &Work{q: q, item: item}
	rec, _, err := q.read(ctx, string(item.Data))
	switch {
	case errors.Is(err, ErrNotFound): // The record precedes the push: it was there, and was kept as long as it should be.
		return nil, item.Done(ctx)
	case err != nil:
		return nil, w.back(ctx, err)
	case rec.State.Final():
		return nil, w.settle(ctx, rec)
	case !time.Now().Before(rec.Expires):
		w.Job = rec.Job
		return nil, w.Expire(ctx)
	}
	w.Body, err = q.Bodies.GetBlob(ctx, rec.bodyKey())
	if errors.Is(err, store.ErrNotFound) {
		// Somebody else has just finished it; if not, it can never run.
		w.Job = rec.Job
		return nil, w.Expire(ctx)
	}
	if err != nil {
		return nil, w.back(ctx, err)
	}
	return w.start(ctx, rec.ID)
}

// start marks the job as running. That the store takes the mark shows that it takes results, before one is paid for.
func (w *Work) start(ctx context.Context, id string) (*Work, error) {
	rec, started, err := w.q.update(ctx, id, func(rec *record) bool {
		final := rec.State.Final()
		if !final {
			rec.State, rec.Started, rec.Pushed = Running, time.Now().UTC(), true
			rec.Attempts++
		}
		return !final
	})
	if err != nil {
		return nil, w.back(ctx, err)
	}
	if !started {
		return nil, w.settle(ctx, rec)
	}
	w.Job = rec.Job
	return w, nil
}

// back leaves an item that cannot be worked on now for later, because of err.
func (w *Work) back(ctx context.Context, err error) error {
	_ = w.item.Later(ctx, unreadable) // If that fails, too, it comes back when its time is up.
	return err
}

// Hold keeps the job for another while.
func (w *Work) Hold(ctx context.Context) error { return w.item.Hold(ctx) }

// Finish records the job's result, unless another worker was first: then this one is dropped. s is Done or Failed.
// After an error it may be called again with the same result; if it is not, the job runs again.
func (w *Work) Finish(ctx context.Context, r Result, s State) error {
	if w.blob == "" {
		w.blob = w.Job.ID + "/" + rand.Text() // nobody else's, so that no loser touches the winner's
	}
	if err := w.q.Results.PutBlob(ctx, w.blob, r.Body, w.q.Config().Jobs.Keep+margin); err != nil {
		return err
	}
	return w.end(ctx, s, &result{Result: r, Blob: w.blob})
}

// Expire ends the job without a result.
func (w *Work) Expire(ctx context.Context) error { return w.end(ctx, Expired, nil) }

// end makes the job final, or finds that somebody else did, and lets go of it.
func (w *Work) end(ctx context.Context, s State, r *result) error {
	rec, changed, err := w.q.update(ctx, w.Job.ID, func(rec *record) bool {
		final := rec.State.Final()
		if !final {
			rec.State, rec.Finished, rec.Result = s, time.Now().UTC(), r
		}
		return !final
	})
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	// A write that ended with an error may have been made all the same.
	ours := changed || r != nil && rec.Result != nil && rec.Result.Blob == r.Blob
	if ours && !w.noted {
		w.noted = true
		w.q.Count(rec.Chain, string(s))
	}
	if r != nil && !ours {
		_ = w.q.Results.DeleteBlob(ctx, r.Blob) // Its lifetime ends it otherwise.
	}
	if err != nil {
		return w.item.Done(ctx)
	}
	return w.settle(ctx, rec)
}

// settle does what is left once a job is final: its body goes, its end is told, and nobody gets it any more.
func (w *Work) settle(ctx context.Context, rec record) error {
	_ = w.q.Bodies.DeleteBlob(ctx, rec.bodyKey()) // Its lifetime ends it otherwise.
	if w.q.webhook(rec.Chain) {
		if err := w.q.Outbox.Push(ctx, rec.Chain, rec.ID, []byte(rec.ID)); err != nil {
			return err
		}
	}
	return w.item.Done(ctx)
}

// Later gives the job back, to be delivered again after a while.
func (w *Work) Later(ctx context.Context, after time.Duration) error {
	_, _, _ = w.q.update(ctx, w.Job.ID, func(rec *record) bool { // It only informs.
		running := rec.State == Running
		rec.State = Queued
		return running
	})
	return w.item.Later(ctx, after)
}

// Sweep ends those at the head of a chain's line that have grown too old, whether or not anybody drains it. An owner
// calls it now and then. Those that wait for another try are looked at when their pause is over.
func (q *Queue) Sweep(ctx context.Context, chain string) error {
	var young []Item
	defer func() {
		for _, item := range young {
			_ = item.Later(ctx, 0) // If that fails, it comes back when its time is up.
		}
	}()
	for len(young) < sweepMost {
		s, err := q.Jobs.Stats(ctx, chain)
		if err != nil || s.Waiting == 0 {
			return err
		}
		item, err := q.Jobs.Pull(ctx, chain)
		if errors.Is(err, ErrEmpty) {
			return nil
		}
		if err != nil {
			return err
		}
		rec, _, err := q.read(ctx, string(item.Data))
		if err == nil && !rec.State.Final() && time.Now().Before(rec.Expires) {
			young = append(young, item)
			continue
		}
		if _, err = q.begin(ctx, item); err != nil {
			return err
		}
	}
	return nil
}
