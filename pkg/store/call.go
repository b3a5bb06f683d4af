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

// mark writes a deletion, or a proof, which itself goes after a while.
func (p *place) mark(ctx context.Context, h *handle, token string, rev uint64) (uint64, error) {
	m := nats.NewMsg(p.subject(token))
	m.Header.Set(kvOperation, kvPurge)
	o := lifetime(p.marked)
	if rev > 0 {
		o = append(o, jetstream.WithExpectLastSequencePerSubject(rev))
	}
	return h.publish(ctx, m, nil, o...)
}

func (h *handle) publish(ctx context.Context, m *nats.Msg, value []byte, o ...jetstream.PublishOpt) (uint64, error) {
	m.Data = value
	ack, err := h.ses.js.PublishMsg(ctx, m, o...)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// lifetime rounds up to whole seconds: JetStream takes no less and drops fractions.
func lifetime(ttl time.Duration) []jetstream.PublishOpt {
	if ttl <= 0 {
		return nil
	}
	return []jetstream.PublishOpt{jetstream.WithMsgTTL((ttl + time.Second - 1).Truncate(time.Second))}
}

// run makes one bounded call in the current session, and tells its failure in this package's words.
func (p *place) run(ctx context.Context, op string, f func(ctx context.Context, h *handle) error) error {
	return p.runFor(ctx, callBound, op, f)
}

// runFor is run with a bound of its own.
func (p *place) runFor(ctx context.Context, most time.Duration, op string, f func(ctx context.Context, h *handle) error) error {
	err := p.try(ctx, most, f)
	if err != nil {
		return fmt.Errorf("store: %s in %s: %w", op, p.name, err)
	}
	return nil
}

func (p *place) try(caller context.Context, most time.Duration, f func(ctx context.Context, h *handle) error) error {
	st := p.store.state.Load()
	if st.ses == nil {
		return down(st.why)
	}
	ctx, cancel := context.WithTimeout(caller, most)
	defer cancel()
	// A call in flight ends with its session.
	defer context.AfterFunc(st.ses.ctx, cancel)()
	h, err := p.open(ctx, st.ses)
	if err == nil {
		err = f(ctx, h)
	}
	return p.judge(err, caller, st.ses)
}

// judge turns a failure of NATS into one of ours. Whatever is no clear answer puts the store in doubt.
func (p *place) judge(err error, caller context.Context, ses *session) error {
	switch {
	case err == nil, isOurs(err):
		return err
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return ErrNotFound
	case wrongRevision(err):
		return ErrConflict
	case errors.Is(err, nats.ErrMaxPayload), hasCode(err, jetstream.JSErrCodeStreamMessageExceedsMaximum):
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	case isFull(err):
		return fmt.Errorf("%w: %w", ErrFull, err)
	case errors.Is(caller.Err(), context.Canceled):
		return caller.Err()
	case ses.ctx.Err() != nil:
		return down(context.Cause(ses.ctx))
	}
	p.store.doubt()
	return down(err)
}

func isFull(err error) bool {
	return hasCode(err, codeStoreFailed, codeNoResources, codeNoStorage, codeNoQuota)
}

// isOurs says that err needs no translation.
func isOurs(err error) bool {
	return slices.ContainsFunc([]error{ErrDown, ErrNotFound, ErrExists, ErrTooLarge, ErrHeld}, func(e error) bool { return errors.Is(err, e) })
}
