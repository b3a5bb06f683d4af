// Package fleet keeps the breakers and cooldowns of all replicas in step through the store.
//
// Every replica decides by its own breakers, at once and without asking. A loop compares them with what the store
// says and passes on what is new, so that nothing in a request's path waits for the store, lost news only delays,
// and whatever replicas believed apart is reconciled when they meet again.
package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"time"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/store"
)

const (
	// beat is how often a replica looks for what is new. An opening reaches the others within about two of it.
	beat = 20 * time.Millisecond
	// patience bounds one call of the store.
	patience = time.Second
	// tenure is how long the right to a generation's trial stays with a replica that does not tell how it went.
	tenure = time.Minute
	// again is the pause before a trial that came to nothing is made once more, and before a taken one is asked for.
	again = 5 * time.Second

	subject = "breakers"
)

// Target is a target's breaker and how its half-open state is left.
type Target struct {
	Name    string
	Breaker *breaker.Breaker
	Probe   bool // by a deliberate probe; otherwise by an ordinary request
	Ratio   bool // its breaker also trips on a failure ratio, which needs the successes of all
}

// News is the part of the store that carries lossy messages.
type News interface {
	Publish(subject string, data []byte)
	Subscribe(subject string, f func(data []byte)) (stop func())
}

// Bucket is the part of a store's bucket that is needed here.
type Bucket interface {
	Create(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error)
	Update(ctx context.Context, key string, value []byte, rev uint64, ttl time.Duration) (uint64, error)
	Watch(ctx context.Context, f func(store.Entry))
}

// Options of a Fleet.
type Options struct {
	Replica                   string          // unlike any other's
	Targets                   func() []Target // of the config in use now
	Probe                     func(ctx context.Context, target string)
	News                      News
	Truths, Cooldowns, Trials Bucket
}

// Fleet is one replica's part in it.
//
// Ownership: who calls Start calls Stop, which waits. Concurrency: its loop alone decides; watches and news only
// write down what they hear.
type Fleet struct {
	o    Options
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu        sync.Mutex // guards the fields below
	truths    map[string]known[breaker.Truth]
	cooldowns map[string]known[time.Time]
	failing   map[string]bool // a failure was told, by anyone, and no success since
	probing   map[string]bool

	trials map[string]trial // the loop's own
}

// known is what the store says under a key.
type known[T any] struct {
	value T
	rev   uint64
}

// trial is this replica's part in the trial of a generation.
type trial struct {
	gen     uint64
	ours    bool
	running bool
	next    time.Time // not to be asked for before
}

// New makes a Fleet.
func New(o Options) *Fleet {
	return &Fleet{o: o, truths: map[string]known[breaker.Truth]{}, cooldowns: map[string]known[time.Time]{},
		failing: map[string]bool{}, probing: map[string]bool{}, trials: map[string]trial{}}
}

// Start joins the fleet.
func (f *Fleet) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	f.stop = cancel
	unsubscribe := f.o.News.Subscribe(subject, f.hear)
	f.wg.Go(func() { f.o.Truths.Watch(ctx, f.truth) })
	f.wg.Go(func() { f.o.Cooldowns.Watch(ctx, f.cooldown) })
	f.wg.Go(func() {
		defer unsubscribe()
		f.loop(ctx)
	})
}

// Stop leaves the fleet and waits for everything that Start began.
func (f *Fleet) Stop() {
	f.stop()
	f.wg.Wait()
}

func (f *Fleet) loop(ctx context.Context) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var tell []item
		for _, t := range f.o.Targets() {
			t.Breaker.Fleet(true)
			state := t.Breaker.State()
			f.agree(ctx, t)
			tell = f.add(tell, ctx, t)
			if state == breaker.HalfOpen {
				f.tryOut(ctx, t)
			}
		}
		f.publish(tell)
	}
}

// truth takes down what the store says of a target.
func (f *Fleet) truth(e store.Entry) {
	var t breaker.Truth
	if !e.Deleted && json.Unmarshal(e.Value, &t) != nil {
		return // not ours
	}
	k := known[breaker.Truth]{t, e.Revision}
	if e.Deleted {
		k.rev = 0
	}
	f.mu.Lock()
	f.truths[e.Key] = k
	f.mu.Unlock()
	if b := f.breaker(e.Key); b != nil {
		b.Follow(t)
	}
}

func (f *Fleet) breaker(name string) *breaker.Breaker {
	for _, t := range f.o.Targets() {
		if t.Name == name {
			return t.Breaker
		}
	}
	return nil
}

// agree makes the store and the breaker go by the better of their truths.
func (f *Fleet) agree(ctx context.Context, t Target) {
	f.mu.Lock()
	store := f.truths[t.Name]
	f.mu.Unlock()
	own := t.Breaker.Truth()
	switch {
	case own.Beats(store.value):
		if rev, ok := write(ctx, f.o.Truths, t.Name, own, store.rev, 0); ok {
			f.mu.Lock()
			f.truths[t.Name] = known[breaker.Truth]{own, rev}
			f.mu.Unlock()
		}
	case store.value.Beats(own):
		t.Breaker.Follow(store.value)
	}
}

// write puts value under key if nobody has written since rev. What another wrote comes by the watch.
func write[T any](ctx context.Context, b Bucket, key string, value T, rev uint64, ttl time.Duration) (uint64, bool) {
	data, err := json.Marshal(value)
	if err != nil {
		return 0, false
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if rev == 0 {
		rev, err = b.Create(ctx, key, data, ttl)
	} else {
		rev, err = b.Update(ctx, key, data, rev, ttl)
	}
	return rev, err == nil // what fails is tried again at the next beat
}

// tryOut sees to it that one replica tries a half-open target.
func (f *Fleet) tryOut(ctx context.Context, t Target) {
	gen := t.Breaker.Truth().Gen
	now := time.Now()
	x := f.trials[t.Name]
	if x.gen != gen {
		x = trial{gen: gen}
	}
	if x.running && f.over(t.Name) {
		x.running, x.next = false, now.Add(again)
	}
	if !x.running && !now.Before(x.next) {
		x = f.claim(ctx, t, x, now)
	}
	f.trials[t.Name] = x
}

// claim asks for the trial of a generation; without a store every replica is on its own.
func (f *Fleet) claim(ctx context.Context, t Target, x trial, now time.Time) trial {
	if !x.ours && f.taken(ctx, t.Name, x.gen) {
		x.next = now.Add(again)
		return x
	}
	x.ours = true
	if t.Probe {
		x.running = true
		f.probe(ctx, t.Name)
		return x
	}
	t.Breaker.Lead(x.gen)
	x.next = now.Add(again)
	return x
}

// taken says whether another replica has the trial; if not it is this one's.
func (f *Fleet) taken(ctx context.Context, target string, gen uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := f.o.Trials.Create(ctx, target+"#"+strconv.FormatUint(gen, 10), []byte(f.o.Replica), tenure)
	return errors.Is(err, store.ErrExists)
}

// probe makes the deliberate trial beside the loop.
func (f *Fleet) probe(ctx context.Context, target string) {
	f.mu.Lock()
	f.probing[target] = true
	f.mu.Unlock()
	f.wg.Go(func() {
		f.o.Probe(ctx, target)
		f.mu.Lock()
		delete(f.probing, target)
		f.mu.Unlock()
	})
}

func (f *Fleet) over(target string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.probing[target]
}
