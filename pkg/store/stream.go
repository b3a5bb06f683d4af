package store

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	kindBucket = "bucket"
	kindQueue  = "queue"

	// A bucket is laid out as NATS key-value buckets are (ADR-8), so that the nats command line reads it: a stream
	// KV_<name> with a subject $KV.<name>.<key>, and headers on the messages that mean a deletion.
	bucketStream  = "KV_"
	bucketSubject = "$KV."
	kvOperation   = "KV-Operation"
	kvPurge       = "PURGE"

	// A queue is a stream QUEUE_<name> with a subject $QUEUE.<name>.<topic>.
	queueStream  = "QUEUE_"
	queueSubject = "$QUEUE."

	// markerKept is how long the marker of a deleted or expired key is kept. A watch that was away for longer learns of
	// the deletion from the key's absence.
	markerKept = time.Minute

	// proofToken is the key of a write that proves that the bucket takes writes, or that a reader is up to date. No
	// encoded key is like it.
	proofToken = "="

	// proofKept is how long a proof is kept in a queue, where nothing replaces it.
	proofKept = time.Second

	// duplicatesKept is how long a message's id is remembered.
	duplicatesKept = 2 * time.Minute

	// askAgain is how long a request waits for its answer before it is made again; then twice as long, and so on.
	askAgain = 250 * time.Millisecond

	// Error codes that the client does not name, from the server's errors.json: JSClusterNotAvailErr,
	// JSStreamStoreFailedF ("maximum bytes exceeded"), JSInsufficientResourcesErr, JSStorageResourcesExceededErr,
	// JSAccountResourcesExceededErr, JSStreamDuplicateMessageConflict ("duplicate message id is in process").
	codeNoLeader    jetstream.ErrorCode = 10008
	codeInProcess   jetstream.ErrorCode = 10158
	codeStoreFailed jetstream.ErrorCode = 10077
	codeNoResources jetstream.ErrorCode = 10023
	codeNoStorage   jetstream.ErrorCode = 10047
	codeNoQuota     jetstream.ErrorCode = 10002
)

// place is a stream of the store under a name of ours: what buckets and queues have in common. It outlives every outage:
// the stream is found, or made again, in each session.
type place struct {
	store  *Store
	kind   string // kindBucket or kindQueue
	name   string
	prefix string // of its subjects, with the name
	want   jetstream.StreamConfig
	marked time.Duration // how long a marker is kept
	seal   *Sealer       // of its values; nil for none

	handle atomic.Pointer[handle]
	// opening is held, by a send, by whoever looks for the stream.
	opening chan struct{}
}

// handle is a place's stream in one session, or why there is none.
type handle struct {
	ses    *session
	stream jetstream.Stream
	proved uint64 // the store's doubts that a write has dispelled
	err    error
}

// replicas is how many nodes keep each stream.
func (o Options) replicas() int {
	if o.Dir != "" {
		return 1
	}
	return max(o.Replicas, 1)
}

// bound is a limit in bytes as JetStream knows it.
func bound(most int64) int64 {
	if most <= 0 {
		return -1
	}
	return most
}

func (p *place) subject(token string) string { return p.prefix + "." + token }

// open returns the place's stream in ses. Only the first call in a session has to look for it.
func (p *place) open(ctx context.Context, ses *session) (*handle, error) {
	if h := p.handle.Load(); h != nil && h.ses == ses {
		if h.err != nil {
			return nil, down(h.err)
		}
		return h, nil
	}
	return p.look(ctx, ses, false)
}

// look finds the stream, or makes it, and proves that it takes writes when that is in doubt. An outcome that only says
// that ctx ended is kept for the other callers when verdict is set.
func (p *place) look(ctx context.Context, ses *session, verdict bool) (*handle, error) {
	select {
	case p.opening <- struct{}{}:
		defer func() { <-p.opening }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	was := p.handle.Load()
	h := &handle{ses: ses}
	if was != nil && was.ses == ses {
		h.proved = was.proved
	}
	doubts := p.store.doubts.Load()
	settled := was != nil && was.ses == ses && was.err == nil
	h.stream, h.err = p.find(ctx, ses, settled)
	if h.err == nil && h.proved != doubts {
		if _, err := p.mark(ctx, h, proofToken); !isFull(err) { // A refusal is an answer too.
			h.err = err
		}
	}
	if h.err == nil {
		h.proved = doubts
	}
	if verdict || ctx.Err() == nil {
		p.handle.Store(h)
		p.tell(was, h)
	}
	return h, h.err
}

// find returns the stream with its configuration as wanted. In a session it is compared once: replicas of another
// version, with other options, must not undo each other's for ever.
func (p *place) find(ctx context.Context, ses *session, settled bool) (jetstream.Stream, error) {
	stream, err := ask(ctx, func(ctx context.Context) (jetstream.Stream, error) { return ses.js.Stream(ctx, p.want.Name) })
	want, has := p.want, int64(0)
	if err == nil {
		has = stream.CachedInfo().Config.MaxBytes
	}
	want.MaxBytes = p.store.fitting(want.MaxBytes, has)
	if errors.Is(err, jetstream.ErrStreamNotFound) || err == nil && !settled && !same(stream.CachedInfo().Config, want) {
		if want.MaxBytes != p.want.MaxBytes {
			p.store.opt.Log.Warn("the disk has less room than configured", p.kind, p.name, "bytes", want.MaxBytes, "configured", p.want.MaxBytes)
		}
		return ask(ctx, func(ctx context.Context) (jetstream.Stream, error) { return ses.js.CreateOrUpdateStream(ctx, want) })
	}
	return stream, err
}

// parts is the share of the disk that one bounded place may take for itself: the server sets a bound aside in full, and
// refuses one that is larger than what is left.
const parts = 10

// fitting is a bound of want bytes as far as the embedded server's disk allows; has is what it is now. What is laid out
// is never made smaller for the disk's sake: that would drop what must be kept.
func (s *Store) fitting(want, has int64) int64 {
	if room := s.room.Load() / parts; room > 0 && want > room {
		return min(want, max(room, has))
	}
	return want
}

// ask repeats a request that may be made twice until it is answered or ctx ends. While a leader is being chosen, NATS
// servers leave requests without an answer, also those that they could answer a moment later, or say that it is so.
func ask[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	return askSlowly(ctx, askAgain, request)
}

// askSlowly is ask with another first wait, for what takes longer.
func askSlowly[T any](ctx context.Context, wait time.Duration, request func(context.Context) (T, error)) (T, error) {
	for ; ; wait *= 2 {
		attempt, cancel := context.WithTimeout(ctx, wait)
		v, err := request(attempt)
		leaderless := errors.Is(err, context.DeadlineExceeded) || hasCode(err, codeNoLeader, codeInProcess) && pause(ctx, askAgain)
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

// tell logs a place's loss and return within a session.
func (p *place) tell(was, is *handle) {
	wasBad := was != nil && was.ses == is.ses && was.err != nil
	switch {
	case is.err != nil && !wasBad:
		p.store.log.note("store "+p.kind+" is unavailable", p.kind, p.name, "err", is.err)
	case is.err == nil && wasBad:
		p.store.log.note("store "+p.kind+" is back", p.kind, p.name)
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
