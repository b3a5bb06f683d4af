package chain

import (
	"errors"
	"fmt"
	"slices"
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
	errNoFit    = errors.New("an earlier answer says that this target cannot do better")
	errNoBudget = errors.New("more than one of its targets fails and the retry budget is spent")
	errNoSlot   = errors.New("every slot has had its attempt")
	errUnwanted = errors.New("the caller does not accept a downshift")
)

// Exchange is what every attempt at one client request knows of it, from headers that the front sets once.
type Exchange struct {
	ID          string
	Attempt     int // Envoy's attempt number, from 1; 0 where no front retries
	Start       time.Time
	NoDownshift bool // the caller does not accept the chain's downshift rungs
	Own         bool // a call of ours, not of a client: no live traffic, and paced by Pace
}

// Try is the right to make one attempt at one target.
//
// Ownership: the attempt, which sees to it that Report or Release comes last.
type Try struct {
	Slot
	Index int           // of the slot, from 0
	Wait  time.Duration // more than 0: no permit yet; wait this long and Begin again

	plan   *Plan
	x      Exchange
	past   []Past
	permit *breaker.Permit
}

// Begin gives attempt x.Attempt its slot and a permit for it, or ErrSkip or ErrSpent with the reason.
// past is what this replica remembers of the exchange; it may be empty or incomplete.
func (p *Plan) Begin(x Exchange, past []Past) (*Try, error) {
	if x.Attempt <= 0 {
		return p.firstAllowed(x)
	}
	if x.Attempt == 1 && !x.Own {
		p.budget.request()
	}
	i, ok := p.slot(x, x.Attempt, past)
	if !ok {
		return nil, fmt.Errorf("%w: %w", ErrSpent, errNoSlot)
	}
	bounded := p.bounded(x, i, past)
	if bounded && !p.budget.take() {
		return nil, fmt.Errorf("%w: %w", ErrSpent, errNoBudget)
	}
	t, why := p.at(x, i, past)
	if bounded && (why != nil || t.Wait > 0) {
		p.budget.back()
	}
	if why == nil {
		return t, nil
	}
	umbrella := ErrSpent
	if p.more(x, i, past) {
		umbrella = ErrSkip
	}
	return nil, fmt.Errorf("%w: %s: %w", umbrella, p.slots[i].Target.Name, why)
}

// Observe gives the primary, whatever speaks against it; the error says what does. Without a permit the attempt does
// not count.
func (p *Plan) Observe(x Exchange) (*Try, error) {
	t := &Try{Slot: p.slots[0], plan: p, x: x}
	err := t.Slot.credential()
	if err == nil {
		t.permit, err = t.breaker.Allow()
	}
	return t, err
}

func (p *Plan) firstAllowed(x Exchange) (*Try, error) {
	err := ErrSpent
	for i, s := range p.slots {
		if s.Again {
			continue
		}
		t, why := p.at(x, i, nil)
		if why == nil {
			return t, nil
		}
		err = fmt.Errorf("%w: %s: %w", ErrSpent, s.Target.Name, why)
	}
	return nil, err
}

// serviceFaults is how many attempts the hop passes on when the service is gone; the reply to the next one is final.
const serviceFaults = 4

// slot is what an attempt number means: the slot of that number, and beyond the last one, as a fault of the
// service consumes a number too, one more walk along the slots that may be tried.
func (p *Plan) slot(x Exchange, attempt int, past []Past) (index int, ok bool) {
	n := len(p.slots)
	switch {
	case attempt > p.attempts:
		return 0, false
	case attempt <= n:
		return attempt - 1, true
	}
	walk := p.walk(x, past)
	i := max(0, attempt-n-1-len(past))
	if i >= len(walk) && attempt > 1+serviceFaults || len(walk) == 0 {
		return 0, false
	}
	// So far faults alone may have consumed the numbers, those of a short chain more than once.
	return walk[i%len(walk)], true
}

// walk is the slots beyond the last one, in order, that are still to be walked: none when an attempt before that
// is known to have reached its target, as then nobody knows which others have, too.
func (p *Plan) walk(x Exchange, past []Past) []int {
	if slices.ContainsFunc(past, func(was Past) bool { return was.Attempt <= len(p.slots) }) {
		return nil
	}
	var open []int
	for i := range p.slots {
		walked := slices.ContainsFunc(past, func(was Past) bool { return was.Slot == i })
		if s := &p.slots[i]; !s.Again && !walked && p.fits(x, i, past) == nil && s.ready(x) == nil {
			open = append(open, i)
		}
	}
	return open
}

// at tries slot i, or says why not.
func (p *Plan) at(x Exchange, i int, past []Past) (*Try, error) {
	s := p.slots[i]
	t := &Try{Slot: s, Index: i, plan: p, x: x, past: past}
	if err := p.fits(x, i, past); err != nil {
		return nil, err
	}
	if t.Wait = p.wait(i, past); t.Wait > 0 {
		return t, nil
	}
	if err := s.credential(); err != nil {
		return nil, err
	}
	permit, err := s.allow(x)
	if err != nil {
		return nil, err
	}
	t.permit = permit
	return t, nil
}

// fits says whether the exchange, or what is remembered of it, speaks against slot i.
func (p *Plan) fits(x Exchange, i int, past []Past) error {
	s := &p.slots[i]
	if s.Downshift && x.NoDownshift {
		return errUnwanted
	}
	if s.Again && !p.repeats(i, past) {
		return errNotAgain
	}
	for _, was := range past {
		switch was.Verdict.Class {
		case classify.RateLimited:
			// What comes after the queue on the ladder is the downshift.
			if p.Chain.On.RateLimited == "queue" && !s.Downshift {
				return errNoFit
			}
		case classify.ContextLength:
			if p.Chain.On.ContextLength == "larger" && !s.Larger {
				return errNoFit
			}
		case classify.Refusal:
			// A refusal is deterministic: the same model says it again.
			if s.Target.Family == p.family(was.Target) {
				return errNoFit
			}
		}
	}
	return nil
}

// family is the model family of a target, "" when a reload has removed it.
func (p *Plan) family(target string) string {
	for _, s := range p.slots {
		if s.Target.Name == target {
			return s.Target.Family
		}
	}
	return ""
}

// repeats says whether the last attempt was at slot i's target and may be made once more.
func (p *Plan) repeats(i int, past []Past) bool {
	if len(past) == 0 {
		return false
	}
	last := past[len(past)-1]
	switch {
	case last.Target != p.slots[i].Target.Name:
		return false
	case last.Verdict.Class == classify.RateLimited:
		return p.Chain.On.RateLimited == "wait" && p.cooldown(i, last) <= p.Chain.On.MaxWait
	}
	return p.Chain.Retry.SameTarget > 0 && p.retryOn[last.Verdict.Class.String()]
}

// cooldown is how long slot i's target cools down, counted from its answer last. Other exchanges may lengthen it.
func (p *Plan) cooldown(i int, last Past) time.Duration {
	cooling := p.slots[i].breaker.Cooling().Sub(last.At)
	// The answer and its cooldown were noted a moment apart.
	return max(cooling.Truncate(100*time.Millisecond), pause(last.Verdict))
}

// wait is how long slot i waits for its target's cooldown: only once more after a short rate limit.
func (p *Plan) wait(i int, past []Past) time.Duration {
	if !p.slots[i].Again || past[len(past)-1].Verdict.Class != classify.RateLimited {
		return 0
	}
	return time.Until(p.slots[i].breaker.Cooling())
}

// more says whether an attempt after x, which was slot i, has a slot that it may try.
func (p *Plan) more(x Exchange, i int, past []Past) bool {
	if x.Attempt <= 0 {
		return false
	}
	if x.Attempt > len(p.slots) {
		next, ok := p.slot(x, x.Attempt+1, past)
		return ok && p.affordable(x, next, past)
	}
	for j := i + 1; j < len(p.slots); j++ {
		s := &p.slots[j]
		if p.fits(x, j, past) != nil {
			continue
		}
		// What waits for its cooldown is not ready yet.
		if s.Again && past[len(past)-1].Verdict.Class == classify.RateLimited || s.ready(x) == nil {
			return p.affordable(x, j, past)
		}
	}
	p.miss(x, i, past)
	return false
}

// miss tells the targets after slot i, none of which may be tried, of a request that ends for it. Nobody else does:
// without an attempt their breakers are not asked, and would never count the requests that a ramp has its share of.
func (p *Plan) miss(x Exchange, i int, past []Past) {
	for j := i + 1; j < len(p.slots) && !p.Chain.Observe; j++ {
		if s := &p.slots[j]; !s.Again && p.fits(x, j, past) == nil && s.credential() == nil {
			s.breaker.Missed()
		}
	}
}

// More says whether the exchange may go on after this attempt failed with v: the policy lets the chain advance
// and a later slot may be tried now.
func (t *Try) More(v classify.Verdict) bool {
	return t.plan.Advances(v, t.Index) && t.plan.more(t.x, t.Index, t.after(v))
}

// Downshifts says whether an exchange that a rate limit has led to the queue (on.rate_limited: queue), which did not take
// it, has a downshift rung that may be tried now.
func (t *Try) Downshifts(v classify.Verdict) bool { return t.plan.more(t.x, t.Index, t.after(v)) }

// after is what will be remembered of the exchange once this attempt has ended with v.
func (t *Try) after(v classify.Verdict) []Past {
	this := Past{Attempt: t.x.Attempt, At: time.Now(), Slot: t.Index, Rung: t.Rung, Target: t.Target.Name, Verdict: v}
	return append(slices.Clip(t.past), this)
}

// Report tells the target's breaker, once, what the attempt came to. A rate limit becomes a cooldown of
// retry_after, or of DefaultPause without one; it never trips.
func (t *Try) Report(v classify.Verdict) {
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

// Release gives the permit back uncounted unless Report came first.
func (t *Try) Release() { t.done(breaker.Excluded) }

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
