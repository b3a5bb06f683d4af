// Package cache keeps good answers for when nothing answers: under what was asked, and, where the owner wants it, under
// what was asked in nearly the same words.
package cache

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"understudy/pkg/classify"
	"understudy/pkg/config"
	"understudy/pkg/store"
)

// AnswerMost is the largest body of an answer that is kept, in bytes.
const AnswerMost = 4 << 20

// ErrAnswer says that an answer is none to keep.
var ErrAnswer = errors.New("the answer cannot be kept")

// Bucket is where answers are kept; a *store.Bucket is one. Its bound on bytes makes the oldest go.
type Bucket interface {
	PutBlob(ctx context.Context, key string, value []byte, ttl time.Duration) error
	GetBlob(ctx context.Context, key string) ([]byte, error)
	Get(ctx context.Context, key string) (store.Entry, error)
	Create(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error)
	Update(ctx context.Context, key string, value []byte, rev uint64, ttl time.Duration) (uint64, error)
}

// Entry is an answer as a client got it.
type Entry struct {
	Status      int
	ContentType string // application/json or text/event-stream
	Body        []byte `json:"-"` // without content encoding
	Target      string // who gave it
	Model       string
	At          time.Time

	// Tools says that the answer calls tools. Keep sets it.
	Tools bool
	// Near says that what is asked is not quite what was asked, and Similarity how nearly it is: above 0, to 1. Find sets
	// both; Similarity is 1 for the same request too.
	Near       bool    `json:"-"`
	Similarity float64 `json:"-"`
}

// Cache keeps answers in a bucket and holds nothing itself. All methods may be called at once.
type Cache struct{ bucket Bucket }

// New returns the cache that is kept in b.
func New(b Bucket) *Cache { return &Cache{bucket: b} }

// Keep keeps a good and complete answer to the request of k, over an older one. That the answer is good is for the caller
// to know; what is no answer in the dialect of api at all is refused with [ErrAnswer].
func (c *Cache) Keep(ctx context.Context, k Key, api classify.API, e Entry, o config.Cache) error {
	if err := e.check(); err != nil {
		return err
	}
	var err error
	if e.Tools, err = callsTools(api, e.ContentType, e.Body); err != nil {
		return fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	value, err := e.encode(k.exact)
	if err != nil {
		return err
	}
	if err := c.bucket.PutBlob(ctx, answerKey(k.exact), value, o.TTL); err != nil {
		return fmt.Errorf("keep an answer: %w", err)
	}
	if k.near == nil || o.Near == 0 {
		return nil
	}
	return c.list(ctx, k, e.At, o.TTL)
}

func (e *Entry) check() error {
	switch {
	case e.Status != http.StatusOK:
		return fmt.Errorf("%w: its status is %d", ErrAnswer, e.Status)
	case len(e.Body) == 0:
		return fmt.Errorf("%w: it is empty", ErrAnswer)
	case len(e.Body) > AnswerMost:
		return fmt.Errorf("%w: it has %d bytes, %d is the most", ErrAnswer, len(e.Body), AnswerMost)
	}
	return nil
}

// Find returns the answer to the request of k, or to one nearly the same, that is younger than o.TTL and, unless
// o.ToolCalls is set, calls no tools.
func (c *Cache) Find(ctx context.Context, k Key, o config.Cache) (Entry, bool, error) {
	e, err := c.answer(ctx, k.exact)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return Entry{}, false, err
	}
	if err == nil && e.serves(o) {
		e.Similarity = 1
		return e, true, nil
	}
	if k.near == nil || o.Near == 0 {
		return Entry{}, false, nil
	}
	return c.findNear(ctx, k, o)
}

func (e *Entry) serves(o config.Cache) bool {
	return time.Since(e.At) <= o.TTL && (o.ToolCalls || !e.Tools)
}

func answerKey(d digest) string { return "answer/" + d.String() }

// answer reads the answer that is kept under d.
func (c *Cache) answer(ctx context.Context, d digest) (Entry, error) {
	value, err := c.bucket.GetBlob(ctx, answerKey(d))
	if err != nil {
		return Entry{}, fmt.Errorf("find an answer: %w", err)
	}
	e, err := decode(value, d)
	if err != nil {
		return Entry{}, fmt.Errorf("find an answer: %s is damaged: %w", answerKey(d), err)
	}
	return e, nil
}

// record is what stands in the store before an answer's body, on a line of its own.
type record struct {
	Key   string // what the answer is kept under, so that no other is taken for it
	Bytes int    // of the body
	Entry
}

func (e *Entry) encode(d digest) ([]byte, error) {
	head, err := json.Marshal(record{Key: d.String(), Bytes: len(e.Body), Entry: *e})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return append(append(head, '\n'), e.Body...), nil
}

func decode(value []byte, d digest) (Entry, error) {
	head, body, _ := bytes.Cut(value, []byte("\n"))
	var r record
	if err := json.Unmarshal(head, &r); err != nil {
		return Entry{}, err
	}
	if r.Key != d.String() || r.Bytes != len(body) {
		return Entry{}, fmt.Errorf("it is of %q with %d bytes, and has %d", r.Key, r.Bytes, len(body))
	}
	r.Body = body
	return r.Entry, nil
}
