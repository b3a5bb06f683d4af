// Package fleet keeps the breakers and cooldowns of all replicas in step through the store.
//
// Every replica decides by its own breakers, at once and without asking. A loop compares them with what the store
// says and passes on what is new, so that nothing in a request's path waits for the store, lost news only delays,
// and whatever replicas believed apart is reconciled when they meet again.
package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/store"
)

const (
	// beat is how often a replica looks for what is new. An opening reaches the others within about two of it.
	beat = 20 * time.Millisecond
	// beatAlone is how often a replica looks that has nobody to tell.
	beatAlone = 100 * time.Millisecond
	// patience bounds what the loop waits for the store at a time.
	patience = time.Second

	subject = "breakers"
)

// Target is a target's breaker and how its half-open state is left.
type Target struct {
	Name string
	// Key is what the replicas know the target by, Name when empty. It should also tell the model and the endpoint:
	// while a new config is rolled out, one name may mean two targets that have nothing to do with each other.
	Key     string
	Breaker *breaker.Breaker
	Probe   bool // by a deliberate probe; otherwise by an ordinary request
	Ratio   bool // its breaker also trips on a failure ratio, which needs the successes of all
}

func (t Target) key() string { return cmp.Or(t.Key, t.Name) }

// News is the part of the store that carries lossy messages.
type News interface {
	Publish(subject string, data []byte)
	Subscribe(subject string, f func(data []byte)) (stop func())
}

// Bucket is the part of a store's bucket that is needed here.
type Bucket interface {
	Create(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error)
	Update(ctx context.Context, key string, value []byte, rev uint64, ttl time.Duration) (uint64, error)
	Get(ctx context.Context, key string) (store.Entry, error)
	Watch(ctx context.Context, f func(store.Entry))
}

// Options of a Fleet.
type Options struct {
	Replica string          // unlike any other's
	Alone   bool            // there is none: the first request that comes is the trial
	Targets func() []Target // of the config in use now
	// Probe tries a half-open target once, by its name, and tells its breaker what came of it. It ends with ctx.
	Probe                     func(ctx context.Context, target string)
	News                      News
	Truths, Cooldowns, Trials Bucket
}

// Fleet is one replica's part in it.
//
// Ownership: who calls Start calls Stop, which waits. Concurrency: its loop alone decides; watches only write
// down what they hear, and news count in the breakers as they come.
type Fleet struct {
	o    Options
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu        sync.Mutex // guards the fields below
	truths    map[string]known[breaker.Truth]
	cooldowns map[string]known[time.Time]
	failing   map[string]bool // a failure was told, by anyone, and no success since

	trials map[string]trial // the loop's own
}

// known is what the store says under a key.
type known[T any] struct {
	value T
	rev   uint64
}

// New makes a Fleet.
func New(o Options) *Fleet {
	return &Fleet{o: o, truths: map[string]known[breaker.Truth]{}, cooldowns: map[string]known[time.Time]{},
		failing: map[string]bool{}, trials: map[string]trial{}}
}

// Start joins the fleet, until Stop or the end of ctx.
func (f *Fleet) Start(ctx context.Context) {
	ctx, f.stop = context.WithCancel(ctx)
	unsubscribe := f.o.News.Subscribe(subject, f.hear)
	f.wg.Go(func() { f.o.Truths.Watch(ctx, f.truth) })
	f.wg.Go(func() { f.o.Cooldowns.Watch(ctx, f.cooldown) })
	f.wg.Go(func() {
		defer unsubscribe()
		f.loop(ctx)
	})
}

// Stop leaves the fleet and waits for everything that Start began. The breakers then go by this process alone.
func (f *Fleet) Stop() {
	f.stop()
	f.wg.Wait()
	for _, t := range f.o.Targets() {
		t.Breaker.Fleet(false)
	}
}

func (f *Fleet) loop(ctx context.Context) {
	every := beat
	if f.o.Alone {
		every = beatAlone
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f.beat(ctx)
		}
	}
}

// beat tells the others first, as that waits for nobody.
func (f *Fleet) beat(ctx context.Context) {
	targets := f.o.Targets()
	var tell []item
	for _, t := range targets {
		t.Breaker.Fleet(true)
		tell = f.add(tell, t)
	}
	f.publish(tell)
	brief, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, t := range targets {
		f.agree(brief, t)
		f.cool(brief, t)
		f.tryOut(ctx, brief, t)
	}
}

// truth takes down what the store says of a target.
func (f *Fleet) truth(e store.Entry) {
	var t breaker.Truth
	if !e.Deleted && json.Unmarshal(e.Value, &t) != nil {
		return // not ours
	}
	heard(f, f.truths, e, t)
}

// heard takes down what a watch says.
func heard[T any](f *Fleet, in map[string]known[T], e store.Entry, value T) {
	k := known[T]{value, e.Revision}
	if e.Deleted {
		k.rev = 0 // the next value is the key's first
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	in[e.Key] = k
}

// agree makes the store and the breaker go by the better of their truths.
func (f *Fleet) agree(ctx context.Context, t Target) {
	told := says(f, f.truths, t)
	own := t.Breaker.Truth()
	switch {
	case own.Beats(told.value):
		write(ctx, f, f.o.Truths, f.truths, t, known[breaker.Truth]{own, told.rev}, 0)
	case told.value.Beats(own):
		t.Breaker.Follow(told.value)
	}
}

// says is what the store said last of a target.
func says[T any](f *Fleet, in map[string]known[T], t Target) known[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	return in[t.key()]
}

// write puts a value into the store if nobody has written since its revision. What fails is tried again at the next
// beat, and what another wrote comes by the watch.
func write[T any](ctx context.Context, f *Fleet, b Bucket, in map[string]known[T], t Target, k known[T], ttl time.Duration) {
	data, err := json.Marshal(k.value)
	if err != nil {
		return
	}
	rev, err := put(ctx, b, t.key(), data, k.rev, ttl)
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if rev > in[t.key()].rev { // the watch may have been faster, and tell of something newer
		in[t.key()] = known[T]{k.value, rev}
	}
}

// put writes a value over the one at revision rev; with zero, where there is none.
func put(ctx context.Context, b Bucket, key string, value []byte, rev uint64, ttl time.Duration) (uint64, error) {
	if rev == 0 {
		return b.Create(ctx, key, value, ttl)
	}
	return b.Update(ctx, key, value, rev, ttl)
}

// isTaken says that something else is there than was thought: another replica's, it seems. Whatever else goes wrong, each is
// on its own.
func isTaken(err error) bool {
	return errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrConflict)
}
