package once

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"understudy/pkg/store"
)

const (
	// pollEvery is how often the store is asked about a run that is waited for, should Run miss its end.
	pollEvery = 5 * time.Second
	// waitersMost is how many wait in this process at once.
	waitersMost = 10_000
	// readsMost is how many answers are read from the store at once. Those who wait for one run share one.
	readsMost = 8
)

// Wait waits, for a claim that is Running, until the other exchange has ended, and returns its answer, a failing one
// too; or ErrFreed when it left none, also when its claim ran out. Its other errors are ErrTooLarge, ErrBusy, ctx's,
// and the store's when what it says cannot be understood. While the store is down Wait waits on.
func (c *Claim) Wait(ctx context.Context) (Answer, error) {
	a, err := c.keys.await(ctx, c.key, c.rec.Run)
	return a, c.told("wait", err)
}

// room is where those of this process wait who wait for one run.
type room struct {
	key, run string

	// The mutex of Keys guards these.
	inside int
	news   int           // how often the key has changed, as far as it was heard
	heard  chan struct{} // closed at the next change

	// turn is held, by a send, by whoever asks the store for all in the room. It guards the fields below.
	turn  chan struct{}
	asked time.Time // when that was done last
	known int       // the news at that time
	end   *ending   // nil while the run goes on
}

// ending is how a run ended for those who wait.
type ending struct {
	answer Answer
	err    error
}

// await waits for the end of a run.
func (k *Keys) await(ctx context.Context, key, run string) (Answer, error) {
	r, err := k.enter(key, run)
	if err != nil {
		return Answer{}, err
	}
	defer k.leave(r)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		heard, news := k.listen(r)
		end, err := k.ask(ctx, r, news)
		switch {
		case err != nil && !errors.Is(err, store.ErrDown):
			return Answer{}, err
		case end != nil:
			return end.answer, end.err
		}
		select {
		case <-heard:
		case <-tick.C:
		case <-ctx.Done():
			return Answer{}, ctx.Err()
		}
	}
}

// fetch returns the answer of a run that has ended, without waiting for a store that is down.
func (k *Keys) fetch(ctx context.Context, key, run string) (Answer, error) {
	r, err := k.enter(key, run)
	if err != nil {
		return Answer{}, err
	}
	defer k.leave(r)
	k.hear(store.Entry{Key: key}) // Those who wait for it need not wait any more.
	_, news := k.listen(r)
	end, err := k.ask(ctx, r, news)
	switch {
	case err != nil:
		return Answer{}, err
	case end == nil: // Somebody else has asked and got no answer.
		return Answer{}, fmt.Errorf("an answer is not read: %w", store.ErrDown)
	}
	return end.answer, end.err
}

// enter finds the room of a run, or opens it, with the news that somebody waits now.
func (k *Keys) enter(key, run string) (*room, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.waiters >= k.most {
		return nil, fmt.Errorf("%w: %d of them", ErrBusy, k.waiters)
	}
	k.waiters++
	for _, r := range k.rooms[key] {
		if r.run == run {
			r.inside++
			return r, nil
		}
	}
	r := &room{key: key, run: run, inside: 1, news: 1, heard: make(chan struct{}), turn: make(chan struct{}, 1)}
	k.rooms[key] = append(k.rooms[key], r)
	return r, nil
}

func (k *Keys) leave(r *room) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waiters--
	if r.inside--; r.inside > 0 {
		return
	}
	k.rooms[r.key] = slices.DeleteFunc(k.rooms[r.key], func(other *room) bool { return other == r })
	if len(k.rooms[r.key]) == 0 {
		delete(k.rooms, r.key)
	}
}

// listen returns what is closed at the news after these.
func (k *Keys) listen(r *room) (heard <-chan struct{}, news int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return r.heard, r.news
}

// hear wakes those who wait for a key. What has become of it they read: a watch may tell what was.
func (k *Keys) hear(e store.Entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.rooms[e.Key] {
		close(r.heard)
		r.heard, r.news = make(chan struct{}), r.news+1
	}
}

// ask returns how the run of a room ended, nil while it goes on or when the store is down. The store is asked once for
// all in the room: when there is news, and when it was not asked for long.
func (k *Keys) ask(ctx context.Context, r *room, news int) (*ending, error) {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if r.end != nil || r.known >= news && time.Since(r.asked) < pollEvery/2 {
		return r.end, nil
	}
	end, err := k.look(ctx, r)
	if ctx.Err() != nil {
		return nil, ctx.Err() // Another one will ask.
	}
	r.end, r.known, r.asked = end, news, time.Now()
	return end, err
}

// look asks the store how a run ended. An error says that the store is down.
func (k *Keys) look(ctx context.Context, r *room) (*ending, error) {
	rec, _, err := k.read(ctx, r.key)
	if err != nil {
		return endedBy(err)
	}
	answer, ended := rec.answerOf(r.run)
	switch {
	case !ended:
		return nil, nil
	case answer == "":
		return &ending{err: ErrFreed}, nil
	}
	a, err := k.load(ctx, answer)
	if err != nil {
		return endedBy(err)
	}
	if a.TooLarge {
		err = ErrTooLarge
	}
	return &ending{answer: a, err: err}, nil
}

// endedBy says what an error means to those who wait.
func endedBy(err error) (*ending, error) {
	switch {
	case errors.Is(err, store.ErrDown):
		return nil, err
	case errors.Is(err, store.ErrNotFound):
		return &ending{err: ErrFreed}, nil
	}
	return &ending{err: err}, nil
}

// load reads an answer.
func (k *Keys) load(ctx context.Context, name string) (Answer, error) {
	select {
	case k.reads <- struct{}{}:
		defer func() { <-k.reads }()
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
	value, err := k.answers.GetBlob(ctx, name)
	if err != nil {
		return Answer{}, err
	}
	return decodeAnswer(value, name)
}
