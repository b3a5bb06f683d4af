package chain

import (
	"net/http"
	"slices"
	"time"

	"understudy/pkg/classify"
)

// advances says whether the policy lets the chain go on after slot s answered v, before commit.
func (p *Plan) advances(v classify.Verdict, s *Slot) bool {
	on := p.Chain.On
	switch v.Class {
	case classify.OK:
		return v.Downgraded && on.TierDowngrade == "next"
	case classify.RateLimited:
		return on.RateLimited == "next" || on.RateLimited == "wait"
	case classify.Refusal:
		return on.Refusal == "next"
	case classify.Filtered:
		return on.Filtered == "next"
	case classify.ContextLength:
		return on.ContextLength == "next" || on.ContextLength == "larger" && p.larger(s.Rung)
	case classify.Invalid:
		// The caller's mistake, unless it is ours: a fallback's or a member's model that does not exist.
		return v.Status == http.StatusNotFound && (s.Rung > 0 || p.members(s.Rung) > 1)
	}
	return v.Class.Advances()
}

// larger says whether a rung after that one is marked larger.
func (p *Plan) larger(rung int) bool {
	return slices.ContainsFunc(p.slots, func(s Slot) bool { return s.Larger && s.Rung > rung })
}

// Telling picks the failure that a spent chain shows: the primary's first, then the latest one of a fallback,
// but never a fallback's own complaint about the request or the account, as the client's request was fit for the
// primary. ok is false when no provider's answer can be shown.
func Telling(past []Past) (best Past, ok bool) {
	for _, p := range past {
		switch {
		case p.Answer.Status == 0:
		case p.Rung == 0:
			return p, true
		case !p.complaint():
			best, ok = p, true
		}
	}
	return best, ok
}

func (p *Past) complaint() bool {
	switch p.Verdict.Class {
	case classify.Invalid, classify.ContextLength, classify.Auth, classify.Quota:
		return true
	}
	return p.Answer.Status == http.StatusBadRequest || p.Answer.Status == http.StatusUnauthorized
}

// Hint is what a client of a spent chain is told about retrying.
type Hint struct {
	After time.Duration // Retry-After, in whole seconds; 0: none
	Stop  bool          // x-should-retry: false
}

// RetryHint is Retry-After until the first target returns, and not before what else keeps the chain from serving ends,
// when that is known and at most longest; otherwise waiting is useless or too long for SDKs that wait without bound.
func (p *Plan) RetryHint(notBefore time.Time, longest time.Duration) Hint {
	wait := max(time.Until(p.Returns()), time.Until(notBefore))
	after := (wait + time.Second - 1).Truncate(time.Second)
	if wait <= 0 || after > longest {
		return Hint{Stop: true}
	}
	return Hint{After: after}
}

// reason is the class of a failed attempt, or the policy by which a good answer gave way.
func reason(v classify.Verdict) string {
	if v.Class == classify.OK {
		return "tier_downgrade"
	}
	return v.Class.String()
}

// Reason is the class of the last failed attempt before slot i of x's order, as far as past and the breakers tell: a
// slot that is not in past was skipped if it does not fit or its breaker still refuses it, and then why it last failed
// will do; otherwise another replica may have tried it and the reason is "".
func (p *Plan) Reason(x Exchange, i int, past []Past) string {
	c := p.course(x, past)
	skipped := ""
	for i = min(i, len(c.order)) - 1; i >= 0; i-- {
		if k := slices.IndexFunc(past, func(was Past) bool { return was.Slot == i }); k >= 0 {
			return reason(past[k].Verdict)
		}
		switch s := c.slot(i); {
		case s.onceMore() || c.fits(i) != nil:
		case s.breaker.Check() == nil:
			return ""
		case skipped == "":
			skipped = s.breaker.Last()
		}
	}
	return skipped
}
