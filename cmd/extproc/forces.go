package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"understudy/pkg/admin"
	"understudy/pkg/chain/breaker"
	"understudy/pkg/processor"
	"understudy/pkg/store"
)

// forces are operators' words on breakers, which all replicas share and restarts do not end. A target's word stays with
// its name, also while a config does not have it.
//
// Ownership: the app makes it with newForces, start runs it, stop waits. Concurrency: its methods from any goroutine.
type forces struct {
	processor *processor.Processor
	words     *store.Bucket
	changed   func(target string, from, to breaker.Force)
	log       *slog.Logger

	mu    sync.Mutex // guards known
	known map[string]breaker.Force

	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// newForces takes over the words that the store has, if it is there: a target that is forced open must be asked by
// nobody while their watch begins.
func newForces(s *store.Store, p *processor.Processor, changed func(target string, from, to breaker.Force), log *slog.Logger) *forces {
	f := &forces{processor: p, words: s.Bucket(store.BucketOptions{Name: "forces"}), changed: changed, log: log,
		known: map[string]breaker.Force{}}
	if err := takeOver(s, f.words, slices.Collect(maps.Keys(p.Book().Config.Targets)), f.turn); err != nil {
		log.Warn("which breakers are forced is not known at the start", "error", err.Error())
	}
	return f
}

func (f *forces) start(ctx context.Context) {
	ctx, f.cancel = context.WithCancel(ctx)
	f.wg.Go(func() { f.words.Watch(ctx, f.turn) })
}

func (f *forces) stop() {
	f.cancel()
	f.wg.Wait()
}

// turn hears of a word.
func (f *forces) turn(e store.Entry) {
	to, _ := forceOf(string(e.Value))
	if e.Deleted {
		to = breaker.Released
	}
	f.mu.Lock()
	from := f.known[e.Key]
	if f.known[e.Key] = to; to == breaker.Released {
		delete(f.known, e.Key)
	}
	f.processor.Force(maps.Clone(f.known))
	f.mu.Unlock()
	if from != to {
		f.changed(e.Key, from, to)
	}
}

// set makes a word hold, for all replicas and for good.
func (f *forces) set(ctx context.Context, target, how string) error {
	if f.processor.Book().Config.Targets[target] == nil {
		return fmt.Errorf("no target: %w", admin.ErrUnknown)
	}
	if _, ok := forceOf(how); !ok {
		return fmt.Errorf("%w: a breaker is forced open or closed, or released", admin.ErrRefused)
	}
	// A watch says nothing of a value that was deleted before it began: a release is a word, too.
	_, err := f.words.Put(ctx, target, []byte(how), 0)
	if err == nil {
		f.log.Warn("breaker forced", "target", target, "to", how)
	}
	return err
}

// forceOf is what a word asks for; what it does not know releases.
func forceOf(word string) (f breaker.Force, ok bool) {
	switch word {
	case "open":
		return breaker.ForcedOpen, true
	case "closed":
		return breaker.ForcedClosed, true
	}
	return breaker.Released, word == "release"
}
