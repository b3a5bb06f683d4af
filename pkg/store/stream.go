package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// A bucket is laid out as NATS key-value buckets are (ADR-8), so that the nats command line reads it: a stream
	// KV_<name> with a subject $KV.<name>.<key>, and headers on the messages that mean a deletion.
	streamPrefix  = "KV_"
	subjectPrefix = "$KV."
	kvOperation   = "KV-Operation"
	kvPurge       = "PURGE"

	// markerKept is how long the marker of a deleted or expired key is kept. A watch that was away for longer learns of
	// the deletion from the key's absence.
	markerKept = time.Minute

	// proofToken is the key of a write that proves that the bucket takes writes, or that a reader is up to date. No
	// encoded key is like it.
	proofToken = "="

	// askAgain is how long a request waits for its answer before it is made again; then twice as long, and so on.
	askAgain = 250 * time.Millisecond

	// Error codes that the client does not name, from the server's errors.json: JSClusterNotAvailErr,
	// JSStreamStoreFailedF ("maximum bytes exceeded"), JSInsufficientResourcesErr, JSStorageResourcesExceededErr,
	// JSAccountResourcesExceededErr.
	codeNoLeader    jetstream.ErrorCode = 10008
	codeStoreFailed jetstream.ErrorCode = 10077
	codeNoResources jetstream.ErrorCode = 10023
	codeNoStorage   jetstream.ErrorCode = 10047
	codeNoQuota     jetstream.ErrorCode = 10002
)

func (b *Bucket) subject(token string) string { return subjectPrefix + b.opt.Name + "." + token }

// config is the stream that holds the bucket.
func (b *Bucket) config() jetstream.StreamConfig {
	duplicates := 2 * time.Minute
	if b.opt.TTL > 0 {
		duplicates = min(duplicates, b.opt.TTL)
	}
	maxBytes := b.opt.MaxBytes
	if maxBytes == 0 {
		maxBytes = -1
	}
	replicas := max(b.store.opt.Replicas, 1)
	if b.store.opt.Dir != "" {
		replicas = 1
	}
	return jetstream.StreamConfig{
		Name:              streamPrefix + b.opt.Name,
		Subjects:          []string{b.subject(">")},
		MaxMsgsPerSubject: 1,
		MaxMsgs:           -1,
		MaxConsumers:      -1,
		MaxMsgSize:        -1,
		MaxBytes:          maxBytes,
		MaxAge:            b.opt.TTL,
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

// open returns the bucket's stream in ses. Only the first call in a session has to look for it.
func (b *Bucket) open(ctx context.Context, ses *session) (*handle, error) {
	if h := b.handle.Load(); h != nil && h.ses == ses {
		if h.err != nil {
			return nil, down(h.err)
		}
		return h, nil
	}
	return b.look(ctx, ses, false)
}

// look finds the stream, or makes it, and proves that it takes writes when that is in doubt. An outcome that only says
// that ctx ended is kept for the other callers when verdict is set.
func (b *Bucket) look(ctx context.Context, ses *session, verdict bool) (*handle, error) {
	select {
	case b.opening <- struct{}{}:
		defer func() { <-b.opening }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	was := b.handle.Load()
	h := &handle{ses: ses}
	if was != nil && was.ses == ses {
		h.proved = was.proved
	}
	doubts := b.store.doubts.Load()
	settled := was != nil && was.ses == ses && was.err == nil
	h.stream, h.err = b.find(ctx, ses, settled)
	if h.err == nil && h.proved != doubts {
		if _, err := b.mark(ctx, h, proofToken, 0); !isFull(err) { // A refusal is an answer too.
			h.err = err
		}
	}
	if h.err == nil {
		h.proved = doubts
	}
	if verdict || ctx.Err() == nil {
		b.handle.Store(h)
		b.tell(was, h)
	}
	return h, h.err
}

// find returns the stream with its configuration as wanted. In a session it is compared once: replicas of another
// version, with other options, must not undo each other's for ever.
func (b *Bucket) find(ctx context.Context, ses *session, settled bool) (jetstream.Stream, error) {
	want := b.config()
	stream, err := ask(ctx, func(ctx context.Context) (jetstream.Stream, error) { return ses.js.Stream(ctx, want.Name) })
	if errors.Is(err, jetstream.ErrStreamNotFound) || err == nil && !settled && !same(stream.CachedInfo().Config, want) {
		return ask(ctx, func(ctx context.Context) (jetstream.Stream, error) { return ses.js.CreateOrUpdateStream(ctx, want) })
	}
	return stream, err
}

// ask repeats a request that may be made twice until it is answered or ctx ends. While a leader is being chosen, NATS
// servers leave requests without an answer, also those that they could answer a moment later, or say that it is so.
func ask[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	for wait := askAgain; ; wait *= 2 {
		attempt, cancel := context.WithTimeout(ctx, wait)
		v, err := request(attempt)
		leaderless := errors.Is(err, context.DeadlineExceeded) || hasCode(err, codeNoLeader) && pause(ctx, askAgain)
		cancel()
		if !leaderless || ctx.Err() != nil {
			return v, err
		}
	}
}

func hasCode(err error, codes ...jetstream.ErrorCode) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && slices.Contains(codes, api.ErrorCode)
}

func same(a, b jetstream.StreamConfig) bool {
	return a.MaxBytes == b.MaxBytes && a.MaxAge == b.MaxAge && a.Replicas == b.Replicas && a.Discard == b.Discard &&
		a.AllowDirect == b.AllowDirect && a.AllowMsgTTL == b.AllowMsgTTL && a.SubjectDeleteMarkerTTL == b.SubjectDeleteMarkerTTL
}

// tell logs a bucket's loss and return within a session.
func (b *Bucket) tell(was, is *handle) {
	wasBad := was != nil && was.ses == is.ses && was.err != nil
	switch {
	case is.err != nil && !wasBad:
		b.store.log.note("store bucket is unavailable", "bucket", b.opt.Name, "err", is.err)
	case is.err == nil && wasBad:
		b.store.log.note("store bucket is back", "bucket", b.opt.Name)
	}
}

// isMarker says that a message means a deletion: by a client, or by the server at the end of a value's lifetime.
func isMarker(h nats.Header) bool {
	return h.Get(kvOperation) != "" || h.Get(jetstream.MarkerReasonHeader) != ""
}

// wrongRevision says that a write named a revision that the key is not at; replicated streams use the second code.
func wrongRevision(err error) bool {
	return hasCode(err, jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// outage says that nobody answered, as opposed to an answer that one does not like.
func outage(err error) bool {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return api.Code == 503 && !isFull(err)
	}
	return err != nil
}
