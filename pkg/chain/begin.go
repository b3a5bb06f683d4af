package chain

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// Why Begin gives no Try.
var (
	// ErrSkip: this attempt's slot may not be tried, a later one may.
	ErrSkip = errors.New("this slot is skipped")
	// ErrSpent: no slot is left for this exchange.
	ErrSpent = errors.New("no target of the chain may be tried")

	errNotAgain = errors.New("nothing is known of an attempt that could be repeated")
	errNoFit    = errors.New("an earlier answer says that this target cannot do better")
	errNoBudget = errors.New("more than one of its targets fails and the retry budget is spent")
	errRetry    = errors.New("it is in trouble, and the client's retry has failed already")
	errNoSlot   = errors.New("every slot has had its attempt")
	errUnwanted = errors.New("the caller does not accept a downshift")
	errTried    = errors.New("this exchange has tried it")
)

// Exchange is what every attempt at one client request knows of it: from headers that the front sets once, and from
// the request, which all attempts are given alike. Prefer alone is this replica's own.
type Exchange struct {
	ID          string
	Attempt     int // Envoy's attempt number, from 1; 0 where no front retries
	Start       time.Time
	NoDownshift bool // the caller does not accept the chain's downshift rungs
	Own         bool // a call of ours, not of a client: no live traffic, and paced by Pace
	Drill       bool // a rehearsal: it goes by what breakers and retry budget say, and neither hears of it
	Flex        bool // the client itself asks for a discounted tier (config.Discounted)
	Retry       bool // the client retries on its own account: where it fails, no target in trouble is tried after it

	// Fits says why the exchange cannot go to a target: what the request needs, or state that lives at one provider.
	// nil: everything fits. It is asked several times in an attempt and must answer alike until the exchange's end.
	Fits func(*config.Target) error
	// Prefer names the target that served the conversation last, for a sticky chain to try it first; "": none. A
	// replica that prefers another one, or none, reaches the same targets in another order.
	Prefer string
}

// Try is the right to make one attempt at one target.
//
// Ownership: the attempt, which sees to it that Report or Release comes last.
type Try struct {
	Slot
	Index int           // of the slot in the exchange's order, from 0
	Wait  time.Duration // more than 0: no permit yet; wait this long and Begin again

	course  course
	permit  *breaker.Permit
	bounded bool // the retry budget counts it
}

// Begin gives attempt x.Attempt its slot and a permit for it, or ErrSkip or ErrSpent with the reason, for ErrSpent
// that of every target. past is what this replica remembers of the exchange; it may be empty or incomplete.
func (p *Plan) Begin(x Exchange, past []Past) (*Try, error) {
	c := p.course(x, past)
	if x.Attempt <= 0 {
		return c.firstAllowed()
	}
	if x.Attempt == 1 && !x.Own && !x.Drill {
		p.budget.request()
	}
	i, ok := c.place(x.Attempt)
	if !ok {
		return nil, c.spent("", errNoSlot)
	}
	bounded := c.bounded(i) && !x.Drill
	if bounded && !p.budget.take() || x.Drill && !c.affordable(i) {
		return nil, fmt.Errorf("%w: %w", ErrSpent, errNoBudget)
	}
	t, why := c.at(i)
	if bounded && (why != nil || t.Wait > 0) {
		p.budget.back()
	}
	name := c.slot(i).Target.Name
	switch {
	case why == nil:
		t.bounded = bounded && t.Wait <= 0
		return t, nil
	case c.more(i):
		return nil, fmt.Errorf("%w: %s: %w", ErrSkip, name, why)
	}
	return nil, c.spent(name, why)
}

// Observe gives the primary, whatever speaks against it; the error says what does. Without a permit the attempt does
// not count.
func (p *Plan) Observe(x Exchange) (*Try, error) {
	x.Prefer = ""
	c := p.course(x, nil)
	t := &Try{Slot: *c.slot(0), course: c}
	err := p.book.credential(t.Target.Provider)
	if err == nil {
		t.permit, err = t.breaker.Allow()
	}
	return t, err
}

// Advances says whether the policy lets the chain go on after the attempt was answered with v, before commit.
func (t *Try) Advances(v classify.Verdict) bool { return t.course.advances(v, &t.Slot) }

// More says whether the exchange may go on after this attempt failed with v: the policy lets the chain advance
// and a later slot may be tried now.
func (t *Try) More(v classify.Verdict) bool {
	c := t.course
	c.past = t.after(v)
	return t.Advances(v) && c.more(t.Index)
}

// Downshifts says whether an exchange that a rate limit has led to the queue (on.rate_limited: queue), which did not take
// it, has a downshift rung that may be tried now.
func (t *Try) Downshifts(v classify.Verdict) bool {
	c := t.course
	c.past = t.after(v)
	return c.more(t.Index)
}

// after is what will be remembered of the exchange once this attempt has ended with v.
func (t *Try) after(v classify.Verdict) []Past {
	x := t.course.x
	this := Past{Attempt: x.Attempt, At: time.Now(), Slot: t.Index, Rung: t.Rung, Target: t.Target.Name, Verdict: v}
	return append(slices.Clip(t.course.past), this)
}

// Report tells the target's breaker, once, what the attempt came to. A rate limit becomes a cooldown of
// retry_after, or of DefaultPause without one; it never trips.
func (t *Try) Report(v classify.Verdict) {
	t.bounded = false
	if v.Class.Trips() || v.Class == classify.RateLimited {
		t.breaker.Blame(v.Class.String())
	}
	switch {
	case v.Class == classify.RateLimited:
		for _, b := range t.account {
			b.Cool(time.Now().Add(pause(v)))
		}
		t.done(breaker.Excluded)
	case v.Class == classify.OK:
		t.done(breaker.Success)
	case v.Class.Trips():
		t.done(breaker.Failure)
	default:
		t.done(breaker.Excluded)
	}
}

// done gives the permit back, if there is one.
func (t *Try) done(o breaker.Outcome) {
	if t.permit != nil {
		t.permit.Done(o)
	}
}

// Release gives back, unless Report came first, the permit uncounted and what the retry budget has counted.
func (t *Try) Release() {
	t.done(breaker.Excluded)
	if t.bounded {
		t.bounded = false
		t.course.budget.back()
	}
}

// The bounds of a cooldown.
const (
	// DefaultPause is the cooldown after a rate limit that names none.
	DefaultPause = 5 * time.Second
	// maxPause is the longest that one answer may take its target away for.
	maxPause = 24 * time.Hour
)

func pause(v classify.Verdict) time.Duration {
	switch {
	case v.RetryAfterMS <= 0:
		return DefaultPause
	case v.RetryAfterMS > maxPause.Milliseconds():
		return maxPause
	}
	return time.Duration(v.RetryAfterMS) * time.Millisecond
}
