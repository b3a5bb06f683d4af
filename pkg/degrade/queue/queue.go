// Package queue keeps requests that run later.
//
// The truth about a job is its record in a bucket: a job exists from the moment its record does, and ends by one
// compare-and-set of it, so that it has exactly one result however many workers ran it. Bodies are blobs beside the
// records, and the work queue carries ids only: what is delivered twice, or never, can neither lose nor double a job.
package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"understudy/pkg/config"
	"understudy/pkg/store"
)

// margin is how long what a job needs outlives the last moment at which it may be needed: a worker may have begun just
// before the job's time was up.
const margin = time.Hour

var (
	// ErrNotFound says that there is no such job, or none of this tenant.
	ErrNotFound = errors.New("no such job")
	// ErrKeyReused says that the idempotency key stands for another request.
	ErrKeyReused = errors.New("the idempotency key was used for another request")
	// ErrEmpty says that nothing waits.
	ErrEmpty = errors.New("nothing waits")
)

// State is what has become of a job.
type State string

// The states. Running only informs; the last three are final.
const (
	Queued  State = "queued"
	Running State = "running"
	Done    State = "done"    // a provider answered
	Failed  State = "failed"  // a provider's final complaint about the request is the result
	Expired State = "expired" // it grew too old; there is no result
)

// Final says that nothing changes any more.
func (s State) Final() bool { return s == Done || s == Failed || s == Expired }

// Job is a request that runs later.
type Job struct {
	ID      string            `json:"id"` // 130 random bits in base32
	Chain   string            `json:"chain"`
	Tenant  string            `json:"tenant,omitempty"`
	Key     string            `json:"key"`  // idempotency key
	Path    string            `json:"path"` // with the query, without credentials
	Headers map[string]string `json:"headers,omitempty"`
	Model   string            `json:"model,omitempty"`

	State    State     `json:"state"`
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires"`           // when it is too old to run
	Started  time.Time `json:"started,omitzero"`  // the last time
	Finished time.Time `json:"finished,omitzero"` // when it became final
	Attempts int       `json:"attempts,omitempty"`
}

// Location is the path at which the job is shown.
func (j Job) Location() string { return "/jobs/" + j.ID }

// Result is the answer that ended a job.
type Result struct {
	Status      int               `json:"status"`
	ContentType string            `json:"content_type,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"` // x-llm-target and its like, names in lower case
	Body        []byte            `json:"-"`
}

// record is what the bucket says of a job.
type record struct {
	Job
	Digest string  `json:"digest"`           // of path and body, as accepted
	Pushed bool    `json:"pushed,omitempty"` // known to have been in the work queue
	Result *result `json:"result,omitempty"` // of a job that is done or failed
}

type result struct {
	Result
	Blob string `json:"blob"` // key of the body
}

// Records keeps small values: *store.Bucket.
type Records interface {
	Get(ctx context.Context, key string) (store.Entry, error)
	Create(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error)
	Update(ctx context.Context, key string, value []byte, revision uint64, ttl time.Duration) (uint64, error)
	Put(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error)
}

// Blobs keeps large values: *store.Bucket.
type Blobs interface {
	PutBlob(ctx context.Context, key string, value []byte, ttl time.Duration) error
	GetBlob(ctx context.Context, key string) ([]byte, error)
	DeleteBlob(ctx context.Context, key string) error
}

// Line is a work queue: what is pushed is delivered until it is done. An id that was pushed a moment ago is not pushed
// again. Pull waits for an item until the deadline of its context, then fails with ErrEmpty.
type Line interface {
	Push(ctx context.Context, topic, id string, data []byte) error
	Pull(ctx context.Context, topic string) (Item, error)
	Stats(ctx context.Context, topic string) (Stats, error)
}

// Delivery is what can be done with an item: *store.Item.
type Delivery interface {
	Done(ctx context.Context) error
	Later(ctx context.Context, after time.Duration) error
	Hold(ctx context.Context) error // keeps it from being delivered to somebody else for another while
}

// Item is one delivery of what was pushed.
type Item struct {
	Delivery
	Data       []byte
	Deliveries int // this one counts
}

// Stats is how much is in a line.
type Stats struct {
	Waiting uint64    // never delivered
	Running uint64    // delivered and not done: with a worker, or put off
	Oldest  time.Time // when the oldest that is not done was pushed; zero: there is none
}

// Parts are the places in the store.
type Parts struct {
	Records Records // jobs, and which key stands for which
	Dead    Records // notices that nobody took
	Bodies  Blobs
	Results Blobs
	Jobs    Line // one topic a chain, as in Outbox
	Outbox  Line // notices
}

// Queue holds the jobs of all chains.
//
// Ownership: whoever makes it fills the fields; it holds nothing that must be closed. Concurrency: all methods may be
// called at once, by all replicas.
type Queue struct {
	Parts
	Config func() *config.Config
	// Count hears of every outcome: accepted, duplicate, done, failed, expired, dead (a notice).
	Count func(chain, outcome string)
}

// Get returns a tenant's job and, if it has one, its result.
func (q *Queue) Get(ctx context.Context, id, tenant string) (Job, *Result, error) {
	rec, _, err := q.read(ctx, id)
	if err == nil && rec.Tenant != tenant {
		err = ErrNotFound
	}
	if err != nil {
		return Job{}, nil, err
	}
	return q.withResult(ctx, rec)
}

// Show is Get for the operator, who may see every tenant's.
func (q *Queue) Show(ctx context.Context, id string) (Job, *Result, error) {
	rec, _, err := q.read(ctx, id)
	if err != nil {
		return Job{}, nil, err
	}
	return q.withResult(ctx, rec)
}

func (q *Queue) withResult(ctx context.Context, rec record) (Job, *Result, error) {
	if rec.Result == nil {
		return rec.Job, nil, nil
	}
	body, err := q.Results.GetBlob(ctx, rec.Result.Blob)
	if err != nil {
		return Job{}, nil, fmt.Errorf("result of job %s: %w", rec.ID, err)
	}
	r := rec.Result.Result
	r.Body = body
	return rec.Job, &r, nil
}

// Stats is how much of a chain waits and runs.
func (q *Queue) Stats(ctx context.Context, chain string) (Stats, error) {
	return q.Jobs.Stats(ctx, chain)
}

func recordKey(id string) string { return "job/" + id }

// read returns a job's record and its revision, or ErrNotFound.
func (q *Queue) read(ctx context.Context, id string) (record, uint64, error) {
	e, err := q.Records.Get(ctx, recordKey(id))
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrTooLarge) { // ids come from strangers, too
		return record{}, 0, ErrNotFound
	}
	if err != nil {
		return record{}, 0, err
	}
	var rec record
	if err := json.Unmarshal(e.Value, &rec); err != nil {
		return record{}, 0, fmt.Errorf("record of job %s: %w", id, err)
	}
	return rec, e.Revision, nil
}

// update changes a job's record as change says, unless that returns false; changed says whether it did. Every change
// starts from what the record says now: whoever makes a job final first has made it final.
func (q *Queue) update(ctx context.Context, id string, change func(*record) bool) (rec record, changed bool, err error) {
	for {
		rec, rev, err := q.read(ctx, id)
		if err != nil || !change(&rec) {
			return rec, false, err
		}
		_, err = q.Records.Update(ctx, recordKey(id), encode(rec), rev, q.life(rec.Job))
		if errors.Is(err, store.ErrConflict) && ctx.Err() == nil {
			continue
		}
		return rec, err == nil, err
	}
}

// life is how long a job's record is kept from now on.
func (q *Queue) life(j Job) time.Duration {
	keep := q.Config().Jobs.Keep
	if j.State.Final() {
		return keep
	}
	return max(0, time.Until(j.Expires)) + keep + margin
}

// webhook says whether somebody wants to know of a chain's jobs.
func (q *Queue) webhook(chain string) bool {
	ch := q.Config().ChainNamed(chain)
	return ch != nil && ch.Queue.Notify != nil
}

// encode marshals our own structs of strings and times, which cannot fail.
func encode[T record | entry | dead](v T) []byte {
	b, _ := json.Marshal(v)
	return b
}
