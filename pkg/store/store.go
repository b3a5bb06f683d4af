// Package store keeps what a fleet of replicas must share: key-value buckets with lifetimes, leases, work queues, and
// lossy news. It is NATS JetStream, either inside this process on one folder or a cluster elsewhere, and after the
// connection exists there is one code path for both.
//
// Nothing here blocks for long: while the store is down every call fails at once with [ErrDown], while it is up every
// call ends within its context or [callBound], one for a blob within its context or [blobBound]. Only a queue's Pull waits
// as long as its caller likes. The store heals by itself for as long as it is open.
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// callBound ends a call whose context has no earlier deadline.
	callBound = 5 * time.Second
	// checkBound ends one look at whether JetStream answers.
	checkBound = 4 * time.Second
	// checkEvery is the pause between two looks at a store that is well; a failed call brings the next one forward.
	checkEvery = 5 * time.Second
	// recheckEvery is the pause while a bucket is unavailable.
	recheckEvery = 500 * time.Millisecond
	// checkApart is the least pause between two looks, so that many failing callers cost one look.
	checkApart = 100 * time.Millisecond
	// retryFirst and retryMost bound the pause before the next attempt to connect; it doubles, with jitter.
	retryFirst = 100 * time.Millisecond
	retryMost  = 2 * time.Second
	// newsBuffered is how many messages of at most newsMost bytes wait for the connection before news is dropped.
	newsBuffered = 1024
	newsMost     = 64 << 10
)

var (
	// ErrDown says that the store, or the bucket asked, does not answer. A write that ends with it may have been made.
	ErrDown = errors.New("the store is down")
	// ErrNotFound says that the bucket has no value under the key.
	ErrNotFound = errors.New("no such key")
	// ErrExists says that Create found a value under its key.
	ErrExists = errors.New("the key exists")
	// ErrConflict says that the key is not at the revision that the caller named.
	ErrConflict = errors.New("the key has changed")
	// ErrHeld says that somebody else holds the lease.
	ErrHeld = errors.New("the lease is held")
	// ErrFull says that the store refused a write because a storage limit is reached: the bucket's or queue's, or the
	// store's own. When the embedded store's disk itself has no room the store is down, and errors are ErrDown and ErrFull.
	ErrFull = errors.New("the store is full")
	// ErrTooLarge says that a key or a value is larger than the store takes.
	ErrTooLarge = errors.New("too large for the store")

	errClosed  = errors.New("it was closed")
	errOpening = errors.New("not connected yet")
)

// Options say where the store is. Exactly one of Dir and URLs is set.
type Options struct {
	// Dir is the folder of a store inside this process. It is made when missing and belongs to one process at a time.
	Dir string
	// URLs are the servers of a cluster, like nats://n1:4222 or tls://n1:4222. A user and password may stand in them.
	URLs []string
	// Creds is a NATS credentials file's path or its content; empty for none.
	Creds string
	// Replicas is how many nodes of a cluster keep each bucket: 1 when zero, and always 1 with Dir.
	Replicas int
	// Log hears of the store's loss and return, at a bounded rate; nil for nobody.
	Log *slog.Logger
}

func (o Options) validate() error {
	switch {
	case o.Dir == "" && len(o.URLs) == 0:
		return errors.New("store: neither a folder nor the URLs of a cluster are given")
	case o.Dir != "" && len(o.URLs) > 0:
		return errors.New("store: a folder and the URLs of a cluster are given: choose one")
	case o.Replicas < 0 || o.Replicas > 5:
		return fmt.Errorf("store: replicas must be 1 to 5, got %d", o.Replicas)
	}
	return nil
}

// Store is a connection to JetStream that comes back.
//
// Ownership: whoever calls Open calls Close. Concurrency: all methods may be called at once. One goroutine, run, makes
// and ends the sessions; everything else reads the current one from state.
type Store struct {
	opt  Options
	link linker
	log  *notices

	packer packer

	state   atomic.Pointer[state]
	dropped atomic.Uint64
	losses  atomic.Uint64
	doubts  atomic.Uint64 // grows when a write went unanswered: buckets must prove that they take writes
	room    atomic.Int64  // bytes that the embedded server may lay out; 0 for a cluster
	erred   atomic.Bool   // the embedded server that runs has complained of an error

	news  chan news
	nudge chan struct{} // asks run to look at the session now

	cancel context.CancelFunc
	done   chan struct{} // closed when run has returned

	mu      sync.Mutex // mu guards the fields below.
	buckets map[string]*Bucket
	queues  map[string]*Queue
	places  []*place // of all buckets and queues
	subs    map[*subscription]struct{}
}

// state is what calls go by: the session, or why there is none.
type state struct {
	ses *session
	why error
}

// Open opens the store. With a folder the server inside is up when Open returns, or its error tells what to do. With
// URLs Open returns at once, whether a server is reachable or not. ctx bounds Open, not the store's life.
func Open(ctx context.Context, o Options) (*Store, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{
		opt: o, log: &notices{log: o.Log},
		news: make(chan news, newsBuffered), nudge: make(chan struct{}, 1), done: make(chan struct{}),
		buckets: map[string]*Bucket{}, queues: map[string]*Queue{}, subs: map[*subscription]struct{}{},
	}
	var err error
	if s.packer, err = newPacker(); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	s.state.Store(&state{why: errOpening})
	s.link = s.dialCluster
	var lock *os.File
	if o.Dir != "" {
		if lock, err = lockDir(o.Dir); err != nil {
			return nil, err
		}
		s.link = s.startEmbedded
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	first := make(chan error, 1)
	go s.run(life, first, lock)
	if o.Dir == "" {
		return s, nil
	}
	return s.awaitFirst(ctx, first)
}

// awaitFirst waits for the first session's outcome; its failure is Open's.
func (s *Store) awaitFirst(ctx context.Context, first <-chan error) (*Store, error) {
	var err error
	select {
	case err = <-first:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("store: %s: %w", s.opt.Dir, err), s.Close(ctx))
	}
	return s, nil
}

// Close ends the store and waits for its goroutines as long as ctx lasts. It may be called again. Calls in flight and
// later ones fail with ErrDown. It must not be called from a callback of the store.
func (s *Store) Close(ctx context.Context) error {
	s.cancel()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("store: closing: %w", ctx.Err())
	}
}

// Ready is nil when JetStream answers and every bucket and queue is there.
func (s *Store) Ready() error {
	st := s.state.Load()
	if st.ses == nil {
		return down(st.why)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.places {
		if h := p.handle.Load(); h != nil && h.ses == st.ses && h.err != nil {
			return fmt.Errorf("store: %s %s: %w", p.kind, p.name, down(h.err))
		}
	}
	return nil
}

// Stats are counts since Open.
type Stats struct {
	// Dropped is how many pieces of news were not sent or not heard.
	Dropped uint64
	// Losses is how often a store that was up went down.
	Losses uint64
}

// Stats returns the counts so far.
func (s *Store) Stats() Stats { return Stats{Dropped: s.dropped.Load(), Losses: s.losses.Load()} }

// down is ErrDown for a reason. A disk without room is ErrFull besides: the one who asks can tell what to do about it.
func down(why error) error {
	if errors.Is(why, syscall.ENOSPC) || errors.Is(why, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w: %w", ErrDown, ErrFull, why)
	}
	return fmt.Errorf("%w: %w", ErrDown, why)
}

// run makes one session after the other until life ends. The first outcome is told to first.
func (s *Store) run(life context.Context, first chan<- error, lock *os.File) {
	defer close(s.done)
	defer lock.Close() // A nil file only says that it is nil.
	retry := retryFirst
	for life.Err() == nil {
		ses, err := s.connect(life)
		select {
		case first <- err:
		default:
		}
		if err != nil {
			s.stillDown(err)
			pause(life, retry/2+rand.N(retry))
			retry = min(2*retry, retryMost)
			continue
		}
		retry = retryFirst
		s.tend(ses)
		s.lost(context.Cause(ses.ctx), life.Err() != nil)
		ses.close()
	}
	s.state.Store(&state{why: errClosed})
}

// connect makes a session in which JetStream answers, and shows it to the callers.
func (s *Store) connect(life context.Context) (*session, error) {
	ses, err := s.newSession(life)
	if err != nil {
		return nil, err
	}
	if _, err = s.check(ses); err == nil {
		err = s.found(ses)
	}
	if err != nil {
		ses.end(err)
		ses.close()
		return nil, err
	}
	return ses, nil
}

// found begins a session's goroutines and lets calls through.
func (s *Store) found(ses *session) error {
	s.mu.Lock()
	for sub := range s.subs {
		if err := sub.begin(ses); err != nil {
			s.mu.Unlock()
			return err
		}
	}
	s.dropNews()
	ses.wg.Go(func() { s.sendNews(ses) })
	s.state.Store(&state{ses: ses})
	s.mu.Unlock()
	s.log.change(slog.LevelInfo, "store is up")
	return nil
}

// lost takes the session away from the callers.
func (s *Store) lost(why error, closing bool) {
	if closing {
		why = errClosed
	}
	s.mu.Lock() // From here on no subscription begins in the session.
	s.state.Store(&state{why: why})
	s.mu.Unlock()
	if closing {
		return
	}
	s.losses.Add(1)
	s.log.change(slog.LevelWarn, "store is down, running on local state", "err", why)
}

// stillDown keeps the latest reason, and says it once and then every minute.
func (s *Store) stillDown(why error) {
	was := s.state.Swap(&state{why: why})
	if errors.Is(was.why, errOpening) {
		s.log.change(slog.LevelWarn, "store is not reachable, running on local state", "err", why)
		return
	}
	s.log.remind(slog.LevelWarn, "store is still down", "err", why)
}

// tend looks after a session until it ends.
func (s *Store) tend(ses *session) {
	every := checkEvery
	for pause(ses.ctx, checkApart) {
		timer := time.NewTimer(every)
		select {
		case <-ses.ctx.Done():
		case <-s.nudge:
		case <-timer.C:
		}
		timer.Stop()
		well, err := s.check(ses)
		if err != nil {
			ses.end(err)
		}
		every = checkEvery
		if !well {
			every = recheckEvery
		}
	}
}

// doubt makes every bucket prove by a write that it takes writes. The embedded server calls it with its locks held: it
// must not wait.
func (s *Store) doubt() {
	s.doubts.Add(1)
	s.suspect()
}

// suspect asks for a look at the session soon.
func (s *Store) suspect() {
	select {
	case s.nudge <- struct{}{}:
	default:
	}
}

// check looks at JetStream and at every bucket. well says that all of it answers; an error, that another server may do
// better: none of it answers, or a part does not although its disk has room again.
func (s *Store) check(ses *session) (well bool, err error) {
	ctx, cancel := context.WithTimeout(ses.ctx, checkBound)
	defer cancel()
	errs := s.ensureAll(ctx, ses)
	var outages []error
	for _, err := range errs {
		if outage(err) {
			outages = append(outages, err)
		}
	}
	if len(errs) > 0 && len(outages) < len(errs) && !(len(outages) > 0 && s.healed()) {
		return errors.Join(errs...) == nil, nil
	}
	if len(outages) > 0 {
		return false, errors.Join(outages...)
	}
	if _, err := ses.js.AccountInfo(ctx); err != nil {
		return false, fmt.Errorf("JetStream does not answer: %w", err)
	}
	return true, nil
}

// healed says that an embedded server which had an error could do better as a new one. A stream of which one write
// failed refuses all that follow for as long as its server lives, beside others that had no write at the time.
func (s *Store) healed() bool {
	return s.opt.Dir != "" && s.erred.Load() && probeDir(s.opt.Dir) == nil
}

// ensureAll looks at all buckets and queues at once and returns an outcome for each.
func (s *Store) ensureAll(ctx context.Context, ses *session) []error {
	s.mu.Lock()
	places := slices.Clone(s.places)
	s.mu.Unlock()
	errs := make([]error, len(places))
	var wg sync.WaitGroup
	for i, p := range places {
		wg.Go(func() { _, errs[i] = p.look(ctx, ses, true) })
	}
	wg.Wait()
	return errs
}

// pause waits for d, or less when ctx ends: then it is false.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
