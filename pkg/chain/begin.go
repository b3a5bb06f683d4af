package chain

import (
	"errors"
	"fmt"
	"time"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/classify"
)

// Why Begin gives no Try.
var (
	// ErrSkip: this attempt's slot may not be tried, a later one may.
	ErrSkip = errors.New("this slot is skipped")
	// ErrSpent: no slot is left for this exchange.
	ErrSpent = errors.New("no target of the chain may be tried")

	errNotAgain = errors.New("nothing is known of an attempt that could be repeated")
	errNoFit    = errors.New("the earlier answer says that this target cannot do better")
)

// Exchange is what every attempt at one client request knows of it, from headers that the front sets once.
type Exchange struct {
	ID      string
	Attempt int // Envoy's attempt number, from 1; 0 where no front retries
	Start   time.Time
}

// Try is the right to make one attempt at one target.
//
// Ownership: the attempt, which defers Release and reports once.
type Try struct {
	Slot
	Index int           // of the slot, from 0
	Wait  time.Duration // more than 0: no permit yet; wait this long and Begin again

	plan   *Plan
	x      Exchange
	permit *breaker.Permit
}

// Begin gives attempt x.Attempt its slot and a permit for it, or ErrSkip or ErrSpent with the reason.
// past is what this replica remembers of the exchange; it may be empty or incomplete.
func (p *Plan) Begin(x Exchange, past []Past) (*Try, error) {
	n := len(p.slots)
	switch {
	case x.Attempt <= 0:
		return p.firstAllowed(x)
	case x.Attempt <= n:
		return p.at(x, x.Attempt-1, past)
	case len(past) > 0:
		return nil, fmt.Errorf("%w: all of its targets have been tried", ErrSpent)
	}
	// A fault of the service consumes an attempt number, so a number beyond the last slot does not prove that
	// the chain is spent: walk what may be tried once more.
	open := p.allowed(0)
	if i := x.Attempt - n - 1; i < len(open) {
		return p.at(x, open[i], past)
	}
	return nil, ErrSpent
}

func (p *Plan) firstAllowed(x Exchange) (*Try, error) {
	err := ErrSpent
	for i := range p.slots {
		if p.slots[i].Again {
			continue
		}
		t, why := p.take(x, i)
		if why == nil {
			return t, nil
		}
		err = fmt.Errorf("%w: %s: %w", ErrSpent, p.slots[i].Target.Name, why)
	}
	return nil, err
}

func (p *Plan) at(x Exchange, i int, past []Past) (*Try, error) {
	why := p.fits(i, past)
	if why == nil {
		if wait := p.wait(i, past); wait > 0 {
			return &Try{Slot: p.slots[i], Index: i, Wait: wait, plan: p, x: x}, nil
		}
		var t *Try
		if t, why = p.take(x, i); why == nil {
			return t, nil
		}
	}
	umbrella := ErrSpent
	if p.more(x, i, past) {
		umbrella = ErrSkip
	}
	return nil, fmt.Errorf("%w: %s: %w", umbrella, p.slots[i].Target.Name, why)
}

func (p *Plan) take(x Exchange, i int) (*Try, error) {
	s := p.slots[i]
	if _, err := s.Target.Provider.Auth.Secret.Value(); err != nil && !s.Target.Provider.Auth.FromClient {
		return nil, err
	}
	permit, err := s.breaker.Allow()
	if err != nil {
		return nil, err
	}
	return &Try{Slot: s, Index: i, plan: p, x: x, permit: permit}, nil
}

// fits says whether what is remembered of the exchange speaks against slot i.
func (p *Plan) fits(i int, past []Past) error {
	s := p.slots[i]
	if len(past) == 0 {
		if s.Again {
			return errNotAgain
		}
		return nil
	}
	last := past[len(past)-1]
	switch {
	case s.Again && (last.Slot != i-1 || !p.repeats(i, last.Verdict)):
		return errNotAgain
	case last.Verdict.Class == classify.ContextLength && p.Chain.On.ContextLength == "larger" && !s.Larger,
		// A refusal is deterministic: the same model says it again.
		last.Verdict.Class == classify.Refusal && s.Target.Family == p.slots[last.Slot].Target.Family:
		return errNoFit
	}
	return nil
}

// repeats says whether the answer v of slot i's target allows one more try of it.
func (p *Plan) repeats(i int, v classify.Verdict) bool {
	if v.Class == classify.RateLimited {
		return p.Chain.On.RateLimited == "wait" && time.Until(p.slots[i].breaker.Cooling()) <= p.Chain.On.MaxWait
	}
	return p.Chain.Retry.SameTarget > 0 && p.retryOn[v.Class.String()]
}

// wait is how long slot i waits for its target's cooldown: only once more after a short rate limit.
func (p *Plan) wait(i int, past []Past) time.Duration {
	if !p.slots[i].Again || past[len(past)-1].Verdict.Class != classify.RateLimited {
		return 0
	}
	return time.Until(p.slots[i].breaker.Cooling())
}

// allowed lists the slots from index i on that may be tried now, none twice.
func (p *Plan) allowed(i int) []int {
	var open []int
	for ; i < len(p.slots); i++ {
		if s := p.slots[i]; !s.Again && s.breaker.Check() == nil {
			open = append(open, i)
		}
	}
	return open
}

// more says whether an attempt after this one, at slot i, has a slot that it may try.
func (p *Plan) more(x Exchange, i int, past []Past) bool {
	if x.Attempt <= 0 || x.Attempt >= p.attempts {
		return false
	}
	if n := len(p.slots); x.Attempt > n {
		return x.Attempt-n < len(p.allowed(0))
	}
	for j := i + 1; j < len(p.slots); j++ {
		s := p.slots[j]
		if p.fits(j, past) != nil {
			continue
		}
		if s.Again && past[len(past)-1].Verdict.Class == classify.RateLimited || s.breaker.Check() == nil {
			return true
		}
	}
	return false
}

// More says whether the exchange may go on after this attempt failed with v: the policy lets the chain advance
// and a later slot may be tried now.
func (t *Try) More(v classify.Verdict) bool {
	return t.plan.Advances(v, t.Index) && t.plan.more(t.x, t.Index, []Past{{Slot: t.Index, Rung: t.Rung, Verdict: v}})
}

// Report tells the target's breaker, once, what the attempt came to. A rate limit becomes a cooldown of
// retry_after, or of DefaultPause without one; it never trips.
func (t *Try) Report(v classify.Verdict) {
	if v.Class.Trips() || v.Class == classify.RateLimited {
		t.breaker.Blame(v.Class.String())
	}
	switch {
	case v.Class == classify.RateLimited:
		t.breaker.Cool(time.Now().Add(pause(v)))
		t.permit.Release()
	case v.Class == classify.OK:
		t.permit.Done(breaker.Success)
	case v.Class.Trips():
		t.permit.Done(breaker.Failure)
	default:
		t.permit.Release()
	}
}

// Release gives the permit back uncounted unless Report came first.
func (t *Try) Release() {
	if t.permit != nil {
		t.permit.Release()
	}
}

// DefaultPause is the cooldown after a rate limit that names none.
const DefaultPause = 5 * time.Second

func pause(v classify.Verdict) time.Duration {
	if v.RetryAfterMS > 0 {
		return time.Duration(v.RetryAfterMS) * time.Millisecond
	}
	return DefaultPause
}
