package chain

import (
	"cmp"
	"math"
	"slices"
)

// group is the slots of one target, from first to before end: the first one, and those for one more try.
type group struct {
	rung, first, end int
	weight           float64 // the target's share of its rung's first attempts
	lot              float64 // its place in the rung, drawn for one exchange
}

// order is the slots of exchange x by attempt number, from 1. It depends on what every replica knows of x, and on the
// target that its conversation is to stay with.
func (p *Plan) order(x *Exchange, past []Past) []int {
	prefer := p.preferred(x, past)
	if !p.shared && prefer == "" {
		if x.Flex {
			return p.flex
		}
		return p.plain
	}
	groups := p.drawn(x.ID)
	return p.lay(groups, p.promoted(groups, prefer), x.Flex)
}

// lay is the slots of groups in a row. In a sticky chain those of fixed follow: another replica may prefer another
// target, and so have tried one at the place where this one had meant to try the next. The first tries of that round,
// which is in the same order everywhere, pass nobody over; what is known to be tried is not tried again.
func (p *Plan) lay(fixed, groups []group, flex bool) []int {
	order := make([]int, 0, len(p.slots)+len(fixed))
	for _, g := range groups {
		for i := g.first; i < g.end; i++ {
			if flex || !p.slots[i].asked {
				order = append(order, i)
			}
		}
	}
	if p.sticky() {
		for _, g := range fixed {
			order = append(order, g.first)
		}
	}
	return order
}

func (p *Plan) sticky() bool { return p.Chain.Sticky.For > 0 }

// round is how many slots of an order come before the second round of a sticky chain.
func (p *Plan) round(order []int) int {
	if p.sticky() {
		return len(order) - len(p.groups)
	}
	return len(order)
}

// drawn is the groups with the members of each rung in the order that exchange id has drawn for them, a weighted
// random permutation: each member gets an exponentially distributed number of its weight as rate, and the smallest
// goes first (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006).
func (p *Plan) drawn(id string) []group {
	if !p.shared {
		return p.groups
	}
	groups := slices.Clone(p.groups)
	for i := range groups {
		g := &groups[i]
		g.lot = -math.Log(chance(id, p.slots[g.first].Target.Name)) / g.weight
	}
	slices.SortStableFunc(groups, func(a, b group) int {
		return cmp.Or(cmp.Compare(a.rung, b.rung), cmp.Compare(a.lot, b.lot))
	})
	return groups
}

// chance is a number between 0 and 1, both excluded, the same in every process: FNV-1a over both names, whose bits
// SplitMix64's finalizer then mixes, as FNV leaves names that differ in their last letters close together.
func chance(exchange, target string) float64 {
	h := uint64(14695981039346656037)
	for _, s := range [...]string{exchange, "\x00", target} {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	h ^= h >> 31
	return (float64(h>>11) + 0.5) / (1 << 53)
}

// preferred is the target that x tries first in a sticky chain, "" for none. Which one attempt 1 went to, where that
// is known, beats what the caller prefers by now.
func (p *Plan) preferred(x *Exchange, past []Past) string {
	if !p.sticky() {
		return ""
	}
	if past = latest(past); len(past) > 0 && past[0].Attempt == 1 {
		return past[0].Target
	}
	return x.Prefer
}

// promoted is groups with that of the preferred target first. A downshift is nobody's preference.
func (p *Plan) promoted(groups []group, prefer string) []group {
	i := slices.IndexFunc(groups, func(g group) bool {
		s := &p.slots[g.first]
		return s.Target.Name == prefer && !s.Downshift
	})
	if i <= 0 {
		return groups
	}
	return slices.Concat(groups[i:i+1], groups[:i], groups[i+1:])
}

// latest is the end of past that can be of one exchange, whose attempt numbers only grow: a client may use a request
// id again.
func latest(past []Past) []Past {
	for i := len(past) - 1; i > 0; i-- {
		if past[i-1].Attempt >= past[i].Attempt {
			return past[i:]
		}
	}
	return past
}
