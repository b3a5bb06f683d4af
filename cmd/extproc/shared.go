package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/config"
	"understudy/pkg/fleet"
	"understudy/pkg/processor"
	"understudy/pkg/store"
)

const (
	// storePatience is how long the start waits for the store: an embedded one must be there by then, without a cluster
	// the replica starts on its own.
	storePatience = 10 * time.Second
	// learnPatience is the part of it in which a cluster can tell what the fleet knows.
	learnPatience = 2 * time.Second
	// readyAnyway is when a replica is ready although it has never reached the store: that a store is lost must not
	// become an outage of what it serves.
	readyAnyway = 30 * time.Second
	// keyLength is that of the key for x-llm-internal, in bytes.
	keyLength = 32
	keyName   = "internal"
	// conversations is how many of them a replica remembers the target of.
	conversations = 100_000
	// conversationsKept is the longest that a conversation can be sticky for without a turn.
	conversationsKept = 24 * time.Hour
	// responsesKept is how long it is known where a response was made: as long as OpenAI keeps it.
	responsesKept = 30 * 24 * time.Hour
)

// shared is what this replica has in common with the others: breakers, cooldowns, trials and a key, through the store.
// Without the store it goes on with its own.
//
// Ownership: the app makes it with join, start runs it, stop waits for all that start began.
type shared struct {
	processor *processor.Processor
	log       *slog.Logger
	opened    time.Time
	store     *store.Store
	fleet     *fleet.Fleet
	alone     bool // the store is in this process

	truths, cooldowns, trials, keys *store.Bucket

	hints *fleet.Hints // which target a conversation is with
	homes *fleet.Homes // which provider made a response

	wasUp  atomic.Bool            // the store, at least once
	roster atomic.Pointer[roster] // the latest
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// roster is the fleet's view of a config's targets.
type roster struct {
	cfg     *config.Config
	targets []fleet.Target
}

// join opens the store and takes over what the fleet knows: a replica that starts while a breaker is open must not ask
// that target first.
func join(cfg *config.Config, p *processor.Processor, log *slog.Logger) (*shared, error) {
	ctx, cancel := context.WithTimeout(context.Background(), storePatience)
	defer cancel()
	s, err := store.Open(ctx, store.Options{
		Dir: cfg.Store.Dir, URLs: cfg.Store.URLs, Creds: cfg.Store.Creds, Replicas: cfg.Store.Replicas, Log: log,
	})
	if err != nil {
		return nil, err
	}
	sh := &shared{
		processor: p, log: log, opened: time.Now(), store: s, alone: cfg.Store.Dir != "",
		truths: s.Bucket(store.BucketOptions{Name: "breakers"}), cooldowns: s.Bucket(store.BucketOptions{Name: "cooldowns"}),
		trials: s.Bucket(store.BucketOptions{Name: "trials"}), keys: s.Bucket(store.BucketOptions{Name: "keys"}),
	}
	sh.hints = fleet.NewHints(s.Bucket(store.BucketOptions{Name: "conversations", TTL: conversationsKept, MaxBytes: 64 << 20}), conversations)
	sh.homes = fleet.NewHomes(s.Bucket(store.BucketOptions{Name: "responses", TTL: responsesKept, MaxBytes: 256 << 20}))
	p.Remember(sh.hints, sh.homes)
	key := make([]byte, keyLength)
	_, _ = rand.Read(key) // never fails
	p.SetKey(key)
	sh.learn(ctx)
	return sh, nil
}

// takeOver hears what bucket says of names, if the store is there, before a watch has begun to tell it.
func takeOver(s *store.Store, bucket *store.Bucket, names []string, turn func(store.Entry)) error {
	ctx, cancel := context.WithTimeout(context.Background(), learnPatience)
	defer cancel()
	for _, name := range names {
		if s.Ready() != nil {
			return nil
		}
		switch e, err := bucket.Get(ctx, name); {
		case err == nil:
			turn(e)
		case !errors.Is(err, store.ErrNotFound):
			return err
		}
	}
	return nil
}

// learn follows what the store says of every target's breaker, if the store is there soon.
func (s *shared) learn(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, learnPatience)
	defer cancel()
	if poll(ctx, func(context.Context) error { return s.ready() }) != nil {
		return
	}
	for _, t := range s.targets() {
		e, err := s.truths.Get(ctx, t.Key)
		var truth breaker.Truth
		switch {
		case err == nil && json.Unmarshal(e.Value, &truth) == nil:
			t.Breaker.Follow(truth)
		case err != nil && !errors.Is(err, store.ErrNotFound):
			s.log.Warn("the state of the breakers is not known at the start", "error", err.Error())
			return
		}
	}
}

// run begins to share. probe makes a deliberate trial.
func (s *shared) run(probe func(ctx context.Context, target string)) {
	s.fleet = fleet.New(fleet.Options{
		Replica: rand.Text(), Alone: s.alone, Targets: s.targets, Probe: probe, News: s.store,
		Truths: s.truths, Cooldowns: s.cooldowns, Trials: s.trials,
	})
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.fleet.Start(ctx)
	offer := make(chan struct{}, 1)
	offer <- struct{}{}
	s.wg.Go(func() { s.keys.Watch(ctx, func(e store.Entry) { s.takeKey(e, offer) }) })
	s.wg.Go(func() { s.offerKey(ctx, offer) })
	s.wg.Go(func() { s.hints.Run(ctx) })
	s.wg.Go(func() { s.homes.Run(ctx) })
}

// stop leaves the fleet.
func (s *shared) stop() {
	s.fleet.Stop()
	s.cancel()
	s.wg.Wait()
}

// close closes the store, after which nothing here may be used.
func (s *shared) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), settle)
	defer cancel()
	return s.store.Close(ctx)
}

// ready is nil when the store is up.
func (s *shared) ready() error {
	err := s.store.Ready()
	if err == nil {
		s.wasUp.Store(true)
	}
	return err
}

// started is nil once the store has been up, or has been waited for long enough. A store that is lost later changes
// nothing: the replica serves on what it knows itself.
func (s *shared) started() error {
	if s.wasUp.Load() || time.Since(s.opened) > readyAnyway {
		return nil
	}
	return s.ready()
}

func (s *shared) targets() []fleet.Target {
	book := s.processor.Book()
	r := s.roster.Load()
	if r != nil && r.cfg == book.Config {
		return r.targets
	}
	r = &roster{cfg: book.Config}
	for name, t := range book.Config.Targets {
		r.targets = append(r.targets, fleet.Target{
			Name: name, Key: fleetKey(t), Breaker: book.Breaker(name), Probe: t.Breaker.Probe, Ratio: t.Breaker.Ratio.Share > 0,
		})
	}
	s.roster.Store(r)
	return r.targets
}

// fleetKey names a target among replicas whose configs may differ for a while: as in a reload, another model or
// endpoint makes another target.
func fleetKey(t *config.Target) string {
	sum := sha256.Sum256([]byte(t.Model + "\n" + t.Provider.Place()))
	return t.Name + "#" + hex.EncodeToString(sum[:8]) // a store's keys are short
}

// offerKey writes this replica's key where none is, whenever it is asked to. The first of all replicas wins.
func (s *shared) offerKey(ctx context.Context, offer chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-offer:
		}
		_, err := s.keys.Create(ctx, keyName, s.processor.Key(), 0)
		if err == nil || errors.Is(err, store.ErrExists) {
			continue
		}
		again := time.NewTimer(time.Second)
		select {
		case <-ctx.Done():
		case <-again.C:
			ask(offer)
		}
		again.Stop()
	}
}

// takeKey takes the key that the store has.
func (s *shared) takeKey(e store.Entry, offer chan struct{}) {
	switch {
	case e.Key != keyName:
	case e.Deleted:
		ask(offer)
	case len(e.Value) != keyLength:
		s.log.Warn("the store's key for our own calls is none; this replica keeps its own")
	default:
		s.processor.SetKey(bytes.Clone(e.Value))
	}
}

func ask(offer chan<- struct{}) {
	select {
	case offer <- struct{}{}:
	default:
	}
}
