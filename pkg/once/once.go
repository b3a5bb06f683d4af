// Package once has one exchange at a time do what an idempotency key stands for, and gives the others its answer.
//
// The truth about a key is its record in a bucket: which exchange runs, or which answer it has. A record changes by
// compare-and-set only, and each claim writes a pen of its own into it: whoever has lost the pen, because its claim ran
// out or a later attempt of its exchange has taken it, can change nothing any more. Answers lie in another bucket, each
// under a name of its own that the record tells, so that no late writer replaces another's.
//
// How long a claim stands is for the store's clock alone to say. What the store loses, or makes room with, is forgotten
// here too: then the key is free.
package once

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"understudy/pkg/store"
)

var (
	// ErrFreed says that the exchange that was waited for ended without an answer: claim the key again.
	ErrFreed = errors.New("the idempotency key is free again")
	// ErrLost says that a claim is not its holder's any more: it ran out, was abandoned, or a later attempt of the same
	// exchange has it. What has become of the key stays as it is.
	ErrLost = errors.New("the claim of the idempotency key is lost")
	// ErrTooLarge says that the key's exchange has ended and that its answer was larger than AnswerMost: nobody has it.
	ErrTooLarge = errors.New("the answer under the idempotency key was too large to keep")
	// ErrBusy says that too many wait in this process already.
	ErrBusy = errors.New("too many requests wait for another with their idempotency key")
)

// Claims keeps small values, some 300 bytes for each key until its window is over: *store.Bucket. All of them are watched,
// so that answers lie elsewhere, and every watch has the hashes of all keys in memory. A bucket with a bound must refuse
// what is too much (store.BucketOptions.Keep): a claim that made room for another would be run twice.
type Claims interface {
	Get(ctx context.Context, key string) (store.Entry, error)
	Create(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error)
	Update(ctx context.Context, key string, value []byte, revision uint64, ttl time.Duration) (uint64, error)
	Delete(ctx context.Context, key string, revision uint64) error
	Watch(ctx context.Context, f func(store.Entry))
}

// Answers keeps large values: *store.Bucket. One that made room for others is as good as expired.
type Answers interface {
	PutBlob(ctx context.Context, key string, value []byte, ttl time.Duration) error
	GetBlob(ctx context.Context, key string) ([]byte, error)
}

// Keys says who runs what an idempotency key stands for. All replicas share its buckets.
//
// Ownership: who made it calls Run once. Concurrency: all other methods may be called at once, also without Run: then
// waiters hear of each other's ends late.
type Keys struct {
	claims  Claims
	answers Answers
	most    int           // of waiters
	reads   chan struct{} // held, by a send, while an answer is read

	mu      sync.Mutex // mu guards the fields below.
	rooms   map[string][]*room
	waiters int
}

// New returns the keys that are kept in two different buckets.
func New(claims Claims, answers Answers) *Keys {
	return &Keys{
		claims: claims, answers: answers, most: waitersMost,
		reads: make(chan struct{}, readsMost), rooms: map[string][]*room{},
	}
}

// Run hears of changes, for all who wait in this process, until ctx ends.
func (k *Keys) Run(ctx context.Context) { k.claims.Watch(ctx, k.hear) }

// Request is what claims a key. Its strings may hold any bytes; only hashes of them are stored.
type Request struct {
	Tenant, Chain, Key string
	// Digest is the same for the same request only.
	Digest string
	// Exchange is the same for all attempts of one exchange only.
	Exchange string
	// Life is how long the claim stands if nobody ends it, as after a kill: what is left to the exchange, and a margin for
	// what comes after its last answer. It is rounded up to whole seconds. Each attempt begins it anew.
	Life time.Duration
}

// Outcome is what has become of a claim.
type Outcome int

// The outcomes. Unknown comes with an error only.
const (
	Unknown  Outcome = iota
	Mine             // run the request, and end the claim
	Finished         // here is the answer
	Running          // another exchange runs the same request: wait
	Conflict         // the key stands for another request
)

func (o Outcome) String() string {
	return [...]string{"unknown", "mine", "finished", "running", "conflict"}[o]
}

// Claim claims the key of a request, and is never nil. An error is the store's: the request may go on without the
// guarantee, and its claim is to be ended like one that is Mine, for it may stand all the same. Two errors are about
// an answer that is there: ErrTooLarge, and ErrBusy when too many fetch theirs.
//
// Of the attempts of one exchange, the latest to claim has the claim; the others' is lost.
func (k *Keys) Claim(ctx context.Context, r Request) (*Claim, error) {
	c := &Claim{keys: k, key: r.key(), rec: r.record(), until: time.Now().Add(r.Life)}
	if r.Life <= 0 {
		return c, fmt.Errorf("idempotency: a claim's life must be more than 0, got %s", r.Life)
	}
	for {
		done, err := c.claim(ctx, r.Life)
		if err != nil && !errors.Is(err, ErrTooLarge) {
			c.Outcome = Unknown
		}
		if err != nil {
			return c, fmt.Errorf("idempotency: claim: %w", err)
		}
		if done {
			return c, nil
		}
	}
}

// claim goes by what the record says now; done is false when it has changed meanwhile.
func (c *Claim) claim(ctx context.Context, life time.Duration) (done bool, err error) {
	rec, rev, err := c.keys.read(ctx, c.key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return c.create(ctx, life)
	case err != nil:
		return false, err
	case rec.State == failed:
		return c.replace(ctx, rec, rev, life)
	case rec.Digest != c.rec.Digest:
		c.Outcome = Conflict
		return true, nil
	case rec.State == kept:
		return c.fetch(ctx, rec, rev, life)
	case rec.Exchange != c.rec.Exchange:
		c.Outcome, c.rec.Run = Running, rec.Run
		return true, nil
	}
	// An earlier attempt of the same exchange: whoever waits for that, waits on.
	c.rec.run, c.rec.Before = rec.run, rec.Before
	return c.update(ctx, rev, life)
}

func (c *Claim) create(ctx context.Context, life time.Duration) (done bool, err error) {
	c.rec.run, c.rec.Before = run{Run: rand.Text()}, run{}
	return c.write(func(value []byte) (uint64, error) { return c.keys.claims.Create(ctx, c.key, value, life) })
}

// fetch takes the kept answer, or the key if the answer is not there any more.
func (c *Claim) fetch(ctx context.Context, rec record, rev uint64, life time.Duration) (done bool, err error) {
	a, err := c.keys.fetch(ctx, c.key, rec.Run)
	if errors.Is(err, ErrFreed) {
		return c.replace(ctx, rec, rev, life)
	}
	c.Outcome, c.Answer = Finished, a
	return err == nil, err
}

// replace takes the key from an exchange that has ended, whose waiters may not all have heard of it.
func (c *Claim) replace(ctx context.Context, rec record, rev uint64, life time.Duration) (done bool, err error) {
	c.rec.run, c.rec.Before = run{Run: rand.Text()}, rec.run
	return c.update(ctx, rev, life)
}

func (c *Claim) update(ctx context.Context, rev uint64, life time.Duration) (done bool, err error) {
	return c.write(func(value []byte) (uint64, error) { return c.keys.claims.Update(ctx, c.key, value, rev, life) })
}

// write makes the claim the caller's.
func (c *Claim) write(f func(value []byte) (uint64, error)) (done bool, err error) {
	c.rev, err = f(encode(c.rec))
	if errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrConflict) {
		return false, nil
	}
	c.Outcome = Mine
	return err == nil, err
}
