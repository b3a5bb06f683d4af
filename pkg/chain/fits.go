package chain

import (
	"fmt"
	"slices"
	"strings"

	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// fits says whether the exchange, or what is remembered of it, speaks against slot i.
func (c *course) fits(i int) error {
	s := c.slot(i)
	switch {
	case s.Downshift && c.x.NoDownshift:
		return errUnwanted
	case s.Again && !c.repeats(i), s.Standard && !c.resubmits(i):
		return errNotAgain
	case c.sticky() && !s.onceMore() && c.tried(s.Target) != nil:
		return errTried
	}
	if c.x.Fits != nil {
		if err := c.x.Fits(s.Target); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(c.past, func(was Past) bool { return c.rules(&was, s) }) {
		return errNoFit
	}
	return nil
}

// rules says whether an earlier answer rules slot s out: it spoke about the request or the model, not about the
// account, region or deployment that gave it.
func (c *course) rules(was *Past, s *Slot) bool {
	from := c.find(was.Target)
	member := from != nil && from.Rung == s.Rung
	switch was.Verdict.Class {
	case classify.RateLimited:
		// What comes after the queue on the ladder is the downshift.
		return c.Chain.On.RateLimited == "queue" && !s.Downshift
	case classify.ContextLength:
		return member || c.Chain.On.ContextLength == "larger" && !s.Larger
	case classify.Refusal:
		// A refusal is deterministic: the same model says it again.
		return member || s.Target.Family == family(from)
	case classify.Filtered:
		return member
	case classify.Invalid:
		// A model that one of the primary's members does not know is the caller's mistake if no other member knows it.
		return !member && from != nil && from.Rung == 0
	}
	return false
}

// family is the model family of a slot's target, "" for nil.
func family(s *Slot) string {
	if s == nil {
		return ""
	}
	return s.Target.Family
}

// tried is the latest attempt at t, nil when none is remembered.
func (c *course) tried(t *config.Target) *Past {
	past := latest(c.past)
	for i := len(past) - 1; i >= 0; i-- {
		if past[i].Target == t.Name {
			return &past[i]
		}
	}
	return nil
}

// obstacle is why a target cannot be tried; target is "" where it is not about one.
type obstacle struct {
	target string
	why    error
}

func (o obstacle) Error() string {
	if o.target == "" {
		return o.why.Error()
	}
	return o.target + ": " + o.why.Error()
}

func (o obstacle) Unwrap() error { return o.why }

// obstacles is why none of several targets can be tried.
type obstacles []obstacle

func (o obstacles) Error() string { return strings.Join(o.texts(), "; ") }

func (o obstacles) Unwrap() []error {
	all := make([]error, len(o))
	for i := range o {
		all[i] = o[i]
	}
	return all
}

func (o obstacles) texts() []string {
	var all []string
	for i := range o {
		all = append(all, o[i].Error())
	}
	return all
}

// spent is ErrSpent for these reasons.
func (o obstacles) spent() error { return fmt.Errorf("%w: %w", ErrSpent, o) }

// Obstacles is why targets of the chain cannot be tried now, in the exchange's order, such as "bedrock/sonnet: target
// may not be tried: its breaker is open". A target that can be tried is not among them.
func (p *Plan) Obstacles(x Exchange, past []Past) []string {
	c := p.course(x, past)
	return c.obstacles().texts()
}

func (c *course) obstacles() (all obstacles) {
	for i := range c.proper() {
		s := c.slot(i)
		if s.onceMore() {
			continue
		}
		if why := c.obstacle(i); why != nil {
			all = append(all, obstacle{s.Target.Name, why})
		}
	}
	return all
}

func (c *course) obstacle(i int) error {
	s := c.slot(i)
	if was := c.tried(s.Target); was != nil {
		return fmt.Errorf("%w: %s", errTried, reason(was.Verdict))
	}
	if err := c.fits(i); err != nil {
		return err
	}
	return c.ready(s)
}

// spent says why no slot is left: why, of the target of that name, and what speaks against the others.
func (c *course) spent(target string, why error) error {
	all := obstacles{{target, why}}
	for _, other := range c.obstacles() {
		if other.target != target {
			all = append(all, other)
		}
	}
	return all.spent()
}
