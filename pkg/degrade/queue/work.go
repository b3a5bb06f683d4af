package queue

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"understudy/pkg/store"
)

const (
	// unreadable is the pause before an item whose record or body cannot be read is delivered again. For what is sealed by
	// a key that is not known here it doubles with every delivery, this often: nobody but an operator can change that, and
	// what was delivered before comes before what waits.
	unreadable = 5 * time.Second
	doublings  = 7
	// pullFor is how long Next waits for an item, and sweepFor Sweep, which knows that there are some.
	pullFor  = 5 * time.Second
	sweepFor = time.Second
	// giveBack ends the word that an item is left for later.
	giveBack = 2 * time.Second
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

	q      *Queue
	item   Item
	blob   string  // key of this worker's result; "" until it has one
	result *result // once it is kept: a record may name it from then on
	state  State   // that comes with it
	noted  bool    // its outcome was counted
}

// Next takes a chain's next job. It fails with ErrEmpty when none came for a while, with store.ErrSealed when there were
// only such as no key opens, and otherwise as the store does.
func (q *Queue) Next(ctx context.Context, chain string) (*Work, error) {
	none := ErrEmpty
	for {
		item, err := pull(ctx, q.Jobs, chain, pullFor)
		if errors.Is(err, ErrEmpty) {
			return nil, none
		}
		if err != nil {
			return nil, err
		}
		w, err := q.begin(ctx, item)
		switch {
		case errors.Is(err, store.ErrSealed): // Those behind it may be others.
			none = err
		case w != nil || err != nil:
			return w, err
		}
	}
}

func pull(ctx context.Context, l Line, topic string, wait time.Duration) (Item, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return l.Pull(ctx, topic)
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
	w.item.unread(ctx, err)
	return err
}

// unread leaves an item that cannot be read, because of err, for later.
func (i Item) unread(ctx context.Context, err error) {
	pause := unreadable
	if errors.Is(err, store.ErrSealed) {
		pause <<= min(max(i.Deliveries-1, 0), doublings)
	}
	i.leave(ctx, pause)
}

// leave leaves an item for later, also when ctx has just ended. If that fails it comes back when its time is up.
func (i Item) leave(ctx context.Context, after time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBack)
	defer cancel()
	_ = i.Later(ctx, after)
}

// Hold keeps the job for another while.
func (w *Work) Hold(ctx context.Context) error { return w.item.Hold(ctx) }

// Finish records the job's result, unless another worker was first: then this one is dropped. s is Done or Failed.
// After an error it may be called again: the first result that was kept counts. If it is not, the job runs again.
func (w *Work) Finish(ctx context.Context, r Result, s State) error {
	if w.result == nil {
		if w.blob == "" {
			w.blob = w.Job.ID + "/" + rand.Text() // nobody else's, so that no loser touches the winner's
		}
		if err := w.q.Results.PutBlob(ctx, w.blob, r.Body, w.q.Config().Jobs.Keep+margin); err != nil {
			return err
		}
		w.result, w.state = &result{Result: r, Blob: w.blob}, s
	}
	return w.end(ctx, w.state, w.result)
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
	s, err := q.Jobs.Stats(ctx, chain)
	if err != nil || s.Oldest.IsZero() || time.Since(s.Oldest) < q.youth(chain) {
		return err
	}
	var young []Item
	defer func() {
		for _, item := range young {
			item.leave(ctx, 0)
		}
	}()
	for len(young) < sweepMost {
		item, err := pull(ctx, q.Jobs, chain, sweepFor)
		if errors.Is(err, ErrEmpty) {
			return nil
		}
		if err != nil {
			return err
		}
		rec, _, err := q.read(ctx, string(item.Data))
		if err == nil && !rec.State.Final() && time.Now().Before(rec.Expires) {
			young = append(young, item)
		} else if _, err = q.begin(ctx, item); err != nil && !errors.Is(err, store.ErrSealed) {
			return err
		}
	}
	return nil
}

// youth is an age at which no job needs to be looked at: max_age; but where it was shorter when the job came, the job's
// record must not go unseen, and that is kept for longer than jobs.keep.
func (q *Queue) youth(chain string) time.Duration {
	cfg := q.Config()
	if ch := cfg.ChainNamed(chain); ch != nil {
		return min(ch.Queue.MaxAge, cfg.Jobs.Keep)
	}
	return 0
}
