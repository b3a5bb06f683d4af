package queue

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"understudy/pkg/store"
)

const (
	// acceptBound ends Accept.
	acceptBound = 15 * time.Second
	// reserved is how long a key stands for an id that has no record: much longer than Accept can take, clocks that
	// differ included. After it whoever reserved it has died, or the job was forgotten.
	reserved = 5 * time.Minute
)

// Request is what to run later.
type Request struct {
	Chain, Tenant string
	Key           string // idempotency key; never empty
	Path          string // with the query, without credentials
	Model         string
	Headers       map[string]string // names in lower case; only those of a fixed list are kept
	Body          []byte            // JSON of the client, not streamed
	MaxAge        time.Duration
}

// entry is what an idempotency key stands for.
type entry struct {
	ID string    `json:"id"`
	At time.Time `json:"at"`
}

// Accept keeps a request and returns its job: a new one, or the one that its key stands for already. When it returns
// one, the job is durable and in the work queue; after an error the same call may be made again. The error wraps
// store.ErrDown, store.ErrFull, store.ErrTooLarge or ErrKeyReused.
func (q *Queue) Accept(ctx context.Context, r Request) (Job, error) {
	if r.Key == "" || r.MaxAge <= 0 {
		return Job{}, fmt.Errorf("queue: a request needs an idempotency key and a max_age, got %q and %s", r.Key, r.MaxAge)
	}
	ctx, cancel := context.WithTimeout(ctx, acceptBound)
	defer cancel()
	rec, isNew, err := q.keep(ctx, r)
	if err != nil {
		return Job{}, fmt.Errorf("queue: accept: %w", err)
	}
	if !isNew {
		return q.again(ctx, rec, r)
	}
	// The record is the job. Should the push fail, the client hears so, and its next try pushes.
	if err := q.Jobs.Push(ctx, r.Chain, rec.ID, []byte(rec.ID)); err != nil {
		return Job{}, fmt.Errorf("queue: accept: %w", err)
	}
	q.Count(r.Chain, "accepted")
	return rec.Job, nil
}

// keep makes the record of a request, or finds the one that its key has.
func (q *Queue) keep(ctx context.Context, r Request) (rec record, isNew bool, err error) {
	id, err := q.reserve(ctx, r)
	if err != nil {
		return rec, false, err
	}
	if rec, _, err = q.read(ctx, id); !errors.Is(err, ErrNotFound) {
		return rec, false, err
	}
	rec = newRecord(id, r)
	// Before the record, which says that the body is there. Another request under the same key has another digest.
	if err := q.Bodies.PutBlob(ctx, rec.bodyKey(), r.Body, q.life(rec.Job)); err != nil {
		return rec, false, err
	}
	_, err = q.Records.Create(ctx, recordKey(id), encode(rec), q.life(rec.Job))
	if errors.Is(err, store.ErrExists) {
		rec, _, err = q.read(ctx, id)
		return rec, false, err
	}
	return rec, true, err
}

func newRecord(id string, r Request) record {
	now := time.Now().UTC()
	return record{Digest: digest(r.Path, string(r.Body)), Job: Job{
		ID: id, Chain: r.Chain, Tenant: r.Tenant, Key: r.Key, Path: r.Path, Model: r.Model, Headers: kept(r.Headers),
		State: Queued, Created: now, Expires: now.Add(r.MaxAge),
	}}
}

func (r record) bodyKey() string { return r.ID + "/" + r.Digest }

// reserve returns the id that a request's key stands for.
func (q *Queue) reserve(ctx context.Context, r Request) (string, error) {
	key := "key/" + digest(r.Tenant, r.Chain, r.Key)
	fresh := entry{ID: rand.Text(), At: time.Now().UTC()}
	life := r.MaxAge + q.Config().Jobs.Keep + margin + reserved // no shorter than its record's
	for {
		_, err := q.Records.Create(ctx, key, encode(fresh), life)
		if !errors.Is(err, store.ErrExists) {
			return fresh.ID, err
		}
		e, err := q.Records.Get(ctx, key)
		if errors.Is(err, store.ErrNotFound) {
			continue // It expired meanwhile.
		}
		if err != nil {
			return "", err
		}
		var known entry
		if err := json.Unmarshal(e.Value, &known); err != nil {
			return "", fmt.Errorf("idempotency key of chain %s: %w", r.Chain, err)
		}
		if _, _, err = q.read(ctx, known.ID); !errors.Is(err, ErrNotFound) || time.Since(known.At) < reserved {
			return known.ID, nil // The caller reads the record, too.
		}
		// A new id: receivers of webhooks take a second notice of the old one for a repetition.
		if _, err = q.Records.Update(ctx, key, encode(fresh), e.Revision, life); !errors.Is(err, store.ErrConflict) {
			return fresh.ID, err
		}
	}
}

// again answers a request whose key has a job. Whoever made that job may have died before its push.
func (q *Queue) again(ctx context.Context, rec record, r Request) (Job, error) {
	if rec.Digest != digest(r.Path, string(r.Body)) {
		return Job{}, fmt.Errorf("queue: accept: %w", ErrKeyReused)
	}
	if rec.State == Queued && !rec.Pushed {
		if err := q.Jobs.Push(ctx, r.Chain, rec.ID, []byte(rec.ID)); err != nil {
			return Job{}, fmt.Errorf("queue: accept: %w", err)
		}
		// Best effort, so that a client who asks again and again does not push again and again.
		_, _, _ = q.update(ctx, rec.ID, func(rec *record) bool {
			was := rec.Pushed
			rec.Pushed = true
			return !was && !rec.State.Final()
		})
	}
	q.Count(r.Chain, "duplicate")
	return rec.Job, nil
}

// digest tells lists of strings apart.
func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// keptHeaders change what an answer is, and carry no credential.
func keptHeaders() []string {
	return []string{"content-type", "anthropic-version", "anthropic-beta", "openai-beta"}
}

func kept(headers map[string]string) map[string]string {
	m := map[string]string{}
	for name, value := range headers {
		if name = strings.ToLower(name); slices.Contains(keptHeaders(), name) {
			m[name] = value
		}
	}
	return m
}
