package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// BucketOptions describe a bucket. Replicas with one bucket name must agree on them.
type BucketOptions struct {
	// Name is made of letters, digits, - and _.
	Name string
	// TTL is how long a value is kept, from its last write; zero keeps it for good.
	TTL time.Duration
	// MaxBytes bounds the bucket: the oldest values make room, and Watch does not hear of that. Zero is no bound.
	MaxBytes int64
	// Keep has a full bucket refuse writes with ErrFull instead: what must not be lost makes no room. Delete works all
	// the same.
	Keep bool
	// Seal encrypts the values; nil for none. Reads end with ErrSealed for a value that it does not open, and Watch takes
	// such a value for deleted.
	Seal *Sealer
}

// Entry is a value and what it is known by.
type Entry struct {
	Key   string
	Value []byte
	// Revision orders the writes of a bucket. It begins anew with a bucket that was lost.
	Revision uint64
	// Deleted says that the key is gone: deleted, expired, or lost with its bucket (then Revision is zero).
	Deleted bool
}

// Bucket is a set of keys in the store. It outlives every outage: its stream is found, or made again, in each session.
//
// Every key is allowed that is not empty and not absurdly long. Reads see every write that was acknowledged before.
// Concurrency: all methods may be called at once.
type Bucket struct {
	place
	opt BucketOptions
}

// Bucket returns the bucket of that name. It is made when the store is up; the first call for a name settles its
// options.
func (s *Store) Bucket(o BucketOptions) *Bucket {
	s.mu.Lock()
	b := s.buckets[o.Name]
	if b == nil {
		b = &Bucket{opt: o, place: place{
			store: s, kind: kindBucket, name: o.Name, prefix: bucketSubject + o.Name, want: o.config(s.opt.replicas()),
			marked: markerKept, seal: o.Seal, opening: make(chan struct{}, 1),
		}}
		s.buckets[o.Name] = b
		s.places = append(s.places, &b.place)
	}
	s.mu.Unlock()
	s.suspect()
	return b
}

// config is the stream that holds the bucket.
func (o BucketOptions) config(replicas int) jetstream.StreamConfig {
	duplicates := duplicatesKept
	if o.TTL > 0 {
		duplicates = min(duplicates, o.TTL)
	}
	discard := jetstream.DiscardOld
	if o.Keep {
		discard = jetstream.DiscardNew
	}
	return jetstream.StreamConfig{
		Name:              bucketStream + o.Name,
		Subjects:          []string{bucketSubject + o.Name + ".>"},
		MaxMsgsPerSubject: 1,
		MaxMsgs:           -1,
		MaxConsumers:      -1,
		MaxMsgSize:        -1,
		MaxBytes:          bound(o.MaxBytes),
		MaxAge:            o.TTL,
		Duplicates:        duplicates,
		Discard:           discard,
		Storage:           jetstream.FileStorage,
		Replicas:          replicas,
		DenyDelete:        true,
		AllowRollup:       true,
		// A direct read may be answered by a node that lags behind: with several, only the leader answers.
		AllowDirect:            replicas == 1,
		AllowMsgTTL:            true,
		SubjectDeleteMarkerTTL: markerKept,
	}
}

// Get returns the value under key, or ErrNotFound.
func (b *Bucket) Get(ctx context.Context, key string) (Entry, error) {
	var e Entry
	err := b.do(ctx, "get", key, func(ctx context.Context, h *handle, token string) error {
		m, err := b.value(ctx, h, token)
		if err == nil {
			e = Entry{Key: key, Value: m.Data, Revision: m.Sequence}
		}
		return err
	})
	return e, err
}

// value reads what is under a token, opened, or ErrNotFound.
func (b *Bucket) value(ctx context.Context, h *handle, token string) (*jetstream.RawStreamMsg, error) {
	m, err := b.last(ctx, h, token)
	if err != nil {
		return nil, err
	}
	if isMarker(m.Header) {
		return nil, ErrNotFound
	}
	m.Data, err = b.seal.open(b.subject(token), m.Header, m.Data)
	return m, err
}

// Put sets the value under key and returns its revision. ttl is the value's own lifetime in whole seconds, rounded up;
// with zero it is the bucket's. The bucket's TTL applies to all.
func (b *Bucket) Put(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error) {
	return b.write(ctx, "put", key, value, lifetime(ttl)...)
}

// Create sets the value of a key that has none, or fails with ErrExists. For ttl see Put.
func (b *Bucket) Create(ctx context.Context, key string, value []byte, ttl time.Duration) (rev uint64, err error) {
	err = b.do(ctx, "create", key, func(ctx context.Context, h *handle, token string) (err error) {
		rev, err = b.create(ctx, h, token, value, lifetime(ttl))
		return err
	})
	return rev, err
}

// create expects no message under the subject, and after that the marker that a deletion or expiry left.
func (b *Bucket) create(ctx context.Context, h *handle, token string, value []byte, o []jetstream.PublishOpt) (uint64, error) {
	rev, err := b.publish(ctx, h, token, value, append(o, jetstream.WithExpectLastSequencePerSubject(0)))
	if !wrongRevision(err) {
		return rev, err
	}
	var marker uint64
	m, err := b.last(ctx, h, token)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound): // It expired meanwhile.
	case err != nil:
		return 0, err
	case !isMarker(m.Header):
		return 0, ErrExists
	default:
		marker = m.Sequence
	}
	rev, err = b.publish(ctx, h, token, value, append(o, jetstream.WithExpectLastSequencePerSubject(marker)))
	if wrongRevision(err) {
		return 0, ErrExists
	}
	return rev, err
}

// Update sets the value of a key that is at revision rev, or fails with ErrConflict. For ttl see Put.
func (b *Bucket) Update(ctx context.Context, key string, value []byte, rev uint64, ttl time.Duration) (uint64, error) {
	return b.write(ctx, "update", key, value, append(lifetime(ttl), jetstream.WithExpectLastSequencePerSubject(rev))...)
}

// Delete removes the key if it is at revision rev, or fails with ErrConflict; with zero, whatever is there. It works in a
// store that is full too, where a watch may hear of it only when it begins anew.
func (b *Bucket) Delete(ctx context.Context, key string, rev uint64) error {
	return b.do(ctx, "delete", key, func(ctx context.Context, h *handle, token string) error {
		return b.remove(ctx, h, token, rev)
	})
}

// remove marks a token as deleted. What is full may refuse even the marker: then the message goes first.
func (b *Bucket) remove(ctx context.Context, h *handle, token string, rev uint64) error {
	_, err := b.mark(ctx, h, token, at(rev)...)
	if !isFull(err) {
		return err
	}
	if err = b.purge(ctx, h, token, rev); err != nil {
		return err
	}
	_, err = b.mark(ctx, h, token, jetstream.WithExpectLastSequencePerSubject(0))
	if isFull(err) || wrongRevision(err) {
		return nil // There is no room for the marker either, or a new value already.
	}
	return err
}

// at expects a token to be at revision rev; with zero, at any.
func at(rev uint64) []jetstream.PublishOpt {
	if rev == 0 {
		return nil
	}
	return []jetstream.PublishOpt{jetstream.WithExpectLastSequencePerSubject(rev)}
}

// purge removes the message under a token that is at revision rev, or whichever there is.
func (b *Bucket) purge(ctx context.Context, h *handle, token string, rev uint64) error {
	o := []jetstream.StreamPurgeOpt{jetstream.WithPurgeSubject(b.subject(token))}
	if rev > 0 {
		m, err := b.last(ctx, h, token)
		if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && m.Sequence != rev {
			return ErrConflict
		}
		if err != nil {
			return err
		}
		o = append(o, jetstream.WithPurgeSequence(rev+1)) // A newer one stays.
	}
	return h.stream.Purge(ctx, o...)
}

// Keys returns the keys that have values, sorted.
func (b *Bucket) Keys(ctx context.Context) ([]string, error) {
	var keys []string
	err := b.run(ctx, "list keys", func(ctx context.Context, h *handle) error {
		c, err := ask(ctx, func(ctx context.Context) (*cursor, error) {
			return b.follow(ctx, h, jetstream.ConsumerConfig{HeadersOnly: true})
		})
		if err != nil {
			return err
		}
		defer c.stop()
		for !c.current() {
			e, ok, err := c.next(ctx)
			if err != nil {
				return err
			}
			if ok && !e.Deleted {
				keys = append(keys, e.Key)
			}
		}
		return nil
	})
	slices.Sort(keys)
	return slices.Compact(keys), err
}

func (b *Bucket) write(ctx context.Context, op, key string, value []byte, o ...jetstream.PublishOpt) (rev uint64, err error) {
	err = b.do(ctx, op, key, func(ctx context.Context, h *handle, token string) (err error) {
		rev, err = b.publish(ctx, h, token, value, o)
		return err
	})
	return rev, err
}

// last reads the newest message under a token as it is: a value or a marker.
func (b *Bucket) last(ctx context.Context, h *handle, token string) (*jetstream.RawStreamMsg, error) {
	return ask(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return h.stream.GetLastMsgForSubject(ctx, b.subject(token))
	})
}

func (b *Bucket) publish(ctx context.Context, h *handle, token string, value []byte, o []jetstream.PublishOpt) (uint64, error) {
	m := nats.NewMsg(b.subject(token))
	b.seal.put(m, value)
	return h.publish(ctx, m, o...)
}

// do is run for one key.
func (b *Bucket) do(ctx context.Context, op, key string, f func(ctx context.Context, h *handle, token string) error) error {
	return b.doFor(ctx, callBound, op, key, f)
}

// doFor is do with a bound of its own.
func (b *Bucket) doFor(ctx context.Context, most time.Duration, op, key string, f func(ctx context.Context, h *handle, token string) error) error {
	token, err := encodeKey(key)
	if err != nil {
		return fmt.Errorf("store: %s in %s: %w", op, b.name, err)
	}
	op = fmt.Sprintf("%s %q", op, key)
	return b.runFor(ctx, most, op, func(ctx context.Context, h *handle) error { return f(ctx, h, token) })
}
