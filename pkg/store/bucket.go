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
	// MaxBytes bounds the bucket: the oldest values make room, and Watch does not hear of that. Zero is no bound. What
	// must not be lost gets no bound.
	MaxBytes int64
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
			marked: markerKept, opening: make(chan struct{}, 1),
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
		Discard:           jetstream.DiscardOld,
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
	err := b.do(ctx, "get", key, func(ctx context.Context, h *handle, token string) (err error) {
		e, err = b.last(ctx, h, token)
		if err == nil && e.Deleted {
			return ErrNotFound
		}
		return err
	})
	if err != nil {
		return Entry{}, err
	}
	e.Key = key
	return e, nil
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
	e, err := b.last(ctx, h, token)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound): // It expired meanwhile.
	case err != nil:
		return 0, err
	case !e.Deleted:
		return 0, ErrExists
	}
	rev, err = b.publish(ctx, h, token, value, append(o, jetstream.WithExpectLastSequencePerSubject(e.Revision)))
	if wrongRevision(err) {
		return 0, ErrExists
	}
	return rev, err
}

// Update sets the value of a key that is at revision rev, or fails with ErrConflict. For ttl see Put.
func (b *Bucket) Update(ctx context.Context, key string, value []byte, rev uint64, ttl time.Duration) (uint64, error) {
	return b.write(ctx, "update", key, value, append(lifetime(ttl), jetstream.WithExpectLastSequencePerSubject(rev))...)
}

// Delete removes the key if it is at revision rev, or fails with ErrConflict; with zero, whatever is there, also in a
// store that is full.
func (b *Bucket) Delete(ctx context.Context, key string, rev uint64) error {
	return b.do(ctx, "delete", key, func(ctx context.Context, h *handle, token string) error {
		_, err := b.mark(ctx, h, token, rev)
		if rev == 0 && isFull(err) {
			// A full store refuses even the marker, which a watch needs.
			if err = h.stream.Purge(ctx, jetstream.WithPurgeSubject(b.subject(token))); err == nil {
				_, err = b.mark(ctx, h, token, 0)
			}
		}
		return err
	})
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

// last reads the newest message under a token: a value or a marker.
func (b *Bucket) last(ctx context.Context, h *handle, token string) (Entry, error) {
	m, err := ask(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return h.stream.GetLastMsgForSubject(ctx, b.subject(token))
	})
	if err != nil {
		return Entry{}, err
	}
	return Entry{Value: m.Data, Revision: m.Sequence, Deleted: isMarker(m.Header)}, nil
}

func (b *Bucket) publish(ctx context.Context, h *handle, token string, value []byte, o []jetstream.PublishOpt) (uint64, error) {
	return h.publish(ctx, nats.NewMsg(b.subject(token)), value, o...)
}

// do is run for one key.
func (b *Bucket) do(ctx context.Context, op, key string, f func(ctx context.Context, h *handle, token string) error) error {
	token, err := encodeKey(key)
	if err != nil {
		return fmt.Errorf("store: %s in %s: %w", op, b.name, err)
	}
	return b.run(ctx, fmt.Sprintf("%s %q", op, key), func(ctx context.Context, h *handle) error { return f(ctx, h, token) })
}
