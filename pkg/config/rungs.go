package config

import (
	"iter"
	"slices"
)

// rungs has a rung without a target where the file names one that is not there.
func (c *compiler) rungs(p string, f []fileRung) []Rung {
	if len(f) == 0 && !c.wrong[p] {
		c.fault(p, "needs at least one target")
	}
	rungs := make([]Rung, len(f))
	first := map[string]string{} // rung or member by its target
	for i := range f {
		if p := index(p, i); !c.wrong[p] {
			rungs[i] = c.rung(p, &f[i], first)
		}
	}
	if len(f) > 0 && f[0].Larger {
		c.fault(at(index(p, 0), "larger"), "no rung comes before this one: remove it")
	}
	return rungs
}

func (c *compiler) rung(p string, f *fileRung, first map[string]string) Rung {
	r := Rung{Larger: f.Larger}
	if c.has(at(p, "any")) {
		r.Members = c.members(p, f, first)
	} else {
		r.Members = []Member{{c.plainTarget(p, f, first), 1}}
	}
	if len(r.Members) > 0 {
		r.Target = r.Members[0].Target
	}
	return r
}

func (c *compiler) plainTarget(p string, f *fileRung, first map[string]string) *Target {
	if weights := at(p, "weights"); c.has(weights) {
		c.fault(weights, "says nothing without any: [NAME, NAME]")
	}
	if long := at(p, "target"); f.Target == "" || c.has(long) {
		p = long
	}
	return c.chainTarget(p, f.Target, first)
}

// members are the targets that share a rung; one that the file misnames is nil.
func (c *compiler) members(p string, f *fileRung, first map[string]string) []Member {
	list := at(p, "any")
	switch {
	case c.wrong[list]:
		return nil
	case c.has(at(p, "target")):
		c.fault(list, "is there beside target: remove one")
	case len(f.Any) < 2:
		c.fault(list, "needs at least two targets; one needs only its name")
	}
	weights := c.weights(at(p, "weights"), f)
	members := make([]Member, len(f.Any))
	for i, name := range f.Any {
		members[i] = Member{c.chainTarget(index(list, i), name, first), weights[i]}
	}
	c.alike(list, members)
	return members
}

// weights are as many as members, all 1 by default.
func (c *compiler) weights(p string, f *fileRung) []float64 {
	if c.has(p) && len(f.Weights) != len(f.Any) && !c.wrong[p] {
		c.fault(p, "needs one weight for each of the %d targets, got %d", len(f.Any), len(f.Weights))
	}
	for i, w := range f.Weights {
		if !(w > 0 && w <= 1e6) && !c.wrong[index(p, i)] { // NaN is neither
			c.fault(index(p, i), "must be more than 0 and at most 1000000, got %v", w)
		}
	}
	if len(f.Weights) != len(f.Any) {
		return slices.Repeat([]float64{1}, len(f.Any))
	}
	return f.Weights
}

// chainTarget is nil after a fault.
func (c *compiler) chainTarget(p, name string, first map[string]string) *Target {
	if c.wrong[p] || !c.required(p, name) {
		return nil
	}
	t, ok := c.out.Targets[name]
	before, twice := first[name]
	switch {
	case !ok:
		c.fault(p, "no target is named %.80q%s", name, didYouMean(name, c.keys["targets"]))
	case twice:
		c.fault(p, "%s is there already, at %s: a chain tries a target once", name, before)
	default:
		first[name] = p
	}
	return t
}

// alike refuses members that are not one model to the client.
func (c *compiler) alike(list string, members []Member) {
	for i, m := range members[min(1, len(members)):] {
		first, here := members[0].Target, index(list, i+1)
		switch {
		case first == nil || m.Target == nil || c.wrong[here]:
		case m.Target.api() != first.api(): // told of the chain
		case m.Target.Family != first.Family && m.Target.Family != "" && first.Family != "":
			c.fault(here, "%s is of another model family (%s) than %s (%s): the targets of one rung are one model",
				m.Target.Name, m.Target.Family, first.Name, first.Family)
		}
	}
}

func (t *Target) api() API {
	if t == nil || t.Provider == nil {
		return ""
	}
	return t.Provider.API
}

// dialect is that of the first target that has one, or "".
func (ch *Chain) dialect() API {
	for _, t := range ch.targets() {
		if api := t.api(); api != "" {
			return api
		}
	}
	return ""
}

func (c *compiler) oneDialect(p string, ch *Chain) {
	for here, t := range ch.places(p) {
		if api := t.api(); api != "" && api != ch.API {
			c.fault(here, "%s speaks %s, but the chain speaks %s: nothing is translated, so keep to one", t.Name, api, ch.API)
		}
	}
}

// oneFamily wants another model to be meant. Members of a rung are alike, so the first speaks for them.
func (c *compiler) oneFamily(p string, ch *Chain, f []fileRung) {
	if len(ch.Rungs) == 0 || ch.Rungs[0].Target == nil {
		return
	}
	first := ch.Rungs[0].Target.Family
	for i, r := range ch.Rungs {
		switch {
		case r.Target == nil || r.Target.Family == first || first == "" || r.Target.Family == "":
		case ch.Endpoint == embeddings:
			c.fault(index(p, i), "%s is of another model family (%s) than rung 0 (%s): its vectors are of another space, "+
				"and comparing them with stored ones says nothing", r.Target.Name, r.Target.Family, first)
		case !f[i].Validated:
			c.fault(index(p, i), "%s is of another model family (%s) than rung 0 (%s): "+
				"write {%s, validated: true} if its answers were checked",
				r.Target.Name, r.Target.Family, first, f[i].written())
		}
	}
}

// written is what the rung names, as the file would.
func (r *fileRung) written() string {
	if len(r.Any) > 0 {
		return "any: […]"
	}
	return "target: " + r.Target
}

// namesAfterFirst are the targets that a downshift can begin with.
func namesAfterFirst(f []fileRung) []string {
	var names []string
	for _, r := range f[min(1, len(f)):] {
		names = append(names, r.names()...)
	}
	return names
}

// targets are those that the file names rightly, in the order of the chain.
func (ch *Chain) targets() []*Target {
	var ts []*Target
	for _, t := range ch.places("") {
		ts = append(ts, t)
	}
	return ts
}

// places are the targets that the file names rightly, each with where the list at p has it.
func (ch *Chain) places(p string) iter.Seq2[string, *Target] {
	return func(yield func(string, *Target) bool) {
		for i, r := range ch.Rungs {
			for j, m := range r.Members {
				here := index(p, i)
				if len(r.Members) > 1 {
					here = index(at(here, "any"), j)
				}
				if m.Target != nil && !yield(here, m.Target) {
					return
				}
			}
		}
	}
}
