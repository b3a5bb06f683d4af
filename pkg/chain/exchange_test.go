package chain

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// exchange plays the front: it makes attempts until one of them is final.
type exchange struct {
	t        *rapid.T
	plan     *Plan
	x        Exchange
	prefers  []string // targets that replicas prefer, of which an attempt meets any
	replicas []*Memo  // attempts go to any of them
	faults   bool     // of the service, each of which consumes an attempt number
	classes  []classify.Class

	tried []tried
	free  map[string]bool // targets that were free at the start, and fit
}

// tried is an attempt that reached its target.
type tried struct {
	Past
	slot Slot
	past []Past // what its replica remembered
}

// outages are the classes that lead from any target to any other.
var outages = []classify.Class{classify.Overloaded, classify.Timeout, classify.ServerError, classify.Transport,
	classify.Auth, classify.Quota, classify.Capacity}

func drawExchange(t *rapid.T) *exchange {
	cfg := conf(drawChain(t), targets(drawRungs(t)...))
	drawTargets(t, cfg)
	book := NewBook(cfg, nil, func(breaker.Transition) {})
	x := &exchange{t: t, plan: book.Plan(cfg.Chains[0]), replicas: []*Memo{NewMemo()}, free: map[string]bool{}}
	x.x = Exchange{ID: rapid.StringN(1, 40, -1).Draw(t, "id"), Flex: rapid.Bool().Draw(t, "flex"), NoDownshift: rapid.Bool().Draw(t, "no downshift")}
	unfit := map[string]bool{}
	x.prefers = []string{"", "gone"}
	for _, s := range x.plan.slots {
		name := s.Target.Name
		if s.onceMore() {
			continue
		}
		open := rapid.IntRange(0, 3).Draw(t, "open") == 0
		unfit[name] = rapid.IntRange(0, 3).Draw(t, "unfit") == 0
		if open {
			book.Breaker(name).Observe(breaker.Tally{Failed: 2, Trailing: 2})
		}
		x.free[name] = !open && !unfit[name] && !(s.Downshift && x.x.NoDownshift)
		x.prefers = append(x.prefers, name)
	}
	x.x.Fits = func(t *config.Target) error {
		if unfit[t.Name] {
			return errBound
		}
		return nil
	}
	x.classes = rapid.SliceOfNDistinct(rapid.SampledFrom(append(slices.Clone(outages),
		classify.RateLimited, classify.Refusal, classify.Invalid, classify.OK)), 1, 11, rapid.ID).Draw(t, "classes")
	return x
}

// drawRungs is one to five rungs of one to three members.
func drawRungs(t *rapid.T) (rungs []string) {
	next := 'a'
	for range rapid.IntRange(1, 5).Draw(t, "rungs") {
		family := rapid.SampledFrom([]string{"", ":m"}).Draw(t, "family")
		var members []string
		for range rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(t, "members") {
			members = append(members, string(next)+family)
			next++
		}
		rungs = append(rungs, strings.Join(members, "+"))
	}
	return rungs
}

func drawChain(t *rapid.T) func(*config.Chain) {
	return func(c *config.Chain) {
		c.API = config.OpenAI
		c.Retry.Budget = 1
		c.On.RateLimited = rapid.SampledFrom([]string{"next", "wait", "return"}).Draw(t, "rate_limited")
		c.On.Refusal = rapid.SampledFrom([]string{"next", "return"}).Draw(t, "refusal")
		c.On.Capacity = rapid.SampledFrom([]string{"next", "standard"}).Draw(t, "capacity")
		c.Downshift = rapid.IntRange(1, len(c.Rungs)).Draw(t, "downshift")
		if rapid.Bool().Draw(t, "same_target") {
			retrySame(c)
			c.Retry.Budget = 1
		}
		if rapid.Bool().Draw(t, "sticky") {
			sticky(c)
		}
	}
}

func drawTargets(t *rapid.T, cfg *config.Config) {
	for _, r := range cfg.Chains[0].Rungs {
		for i := range r.Members {
			r.Members[i].Weight = rapid.Float64Range(0.01, 100).Draw(t, "weight")
			r.Members[i].Target.Tier = rapid.SampledFrom([]string{"", "flex", "default"}).Draw(t, "tier")
			r.Members[i].Target.Breaker.Failures = rapid.IntRange(1, 2).Draw(t, "failures")
		}
	}
}

// run makes attempts until the front has an answer.
func (x *exchange) run() {
	for attempt := 1; attempt <= x.plan.attempts; attempt++ {
		if x.faults && rapid.IntRange(0, 2).Draw(x.t, "fault") == 0 {
			if attempt >= 5 { // the local reply of the hop is final from here on
				return
			}
			continue
		}
		memo := rapid.SampledFrom(x.replicas).Draw(x.t, "replica")
		if !x.attempt(attempt, memo) {
			return
		}
	}
	x.t.Fatalf("attempt %d, after which Envoy makes none, asked for another one", x.plan.attempts)
}

// attempt says whether another one is asked for.
func (x *exchange) attempt(n int, memo *Memo) bool {
	ex := x.x
	ex.Attempt, ex.Prefer = n, rapid.SampledFrom(x.prefers).Draw(x.t, "prefer")
	past := memo.Of("x")
	try, err := x.plan.Begin(ex, past)
	if err == nil && try.Wait > 0 {
		time.Sleep(try.Wait)
		try, err = x.plan.Begin(ex, past)
	}
	if err != nil {
		return errors.Is(err, ErrSkip)
	}
	v := verdict(rapid.SampledFrom(x.classes).Draw(x.t, "class"))
	if v.Class == classify.RateLimited {
		v = limited(time.Duration(rapid.IntRange(0, 5).Draw(x.t, "seconds")) * time.Second)
	}
	this := Past{Attempt: n, Slot: try.Index, Rung: try.Rung, Target: try.Target.Name, Verdict: v}
	x.tried = append(x.tried, tried{this, try.Slot, past})
	more := try.More(v)
	if more {
		memo.Add("x", this)
	}
	try.Report(v)
	return more
}

// targets is the tried targets, in order.
func (x *exchange) targets() []string {
	var names []string
	for _, p := range x.tried {
		name := p.Target
		if p.slot.Again {
			name += " again"
		}
		if p.slot.Standard {
			name += " standard"
		}
		names = append(names, name)
	}
	return names
}

// reached checks that every target that was free has had an attempt, and no other.
func (x *exchange) reached() {
	for name, free := range x.free {
		if got := slices.ContainsFunc(x.tried, func(p tried) bool { return p.Target == name }); got != free {
			x.t.Fatalf("tried %v; %s was free: %v", x.targets(), name, free)
		}
	}
}

func check(t *testing.T, property func(*rapid.T)) {
	synctest.Test(t, func(t *testing.T) {
		// rapid asks a testing.T for its deadline, which a bubble does not have.
		rapid.Check(struct{ rapid.TB }{t}, property)
	})
}

func TestNoTargetIsTriedTwiceByAccident(t *testing.T) {
	check(t, func(t *rapid.T) {
		x := drawExchange(t)
		x.faults = rapid.Bool().Draw(t, "faults")
		x.run()
		for i, p := range x.tried {
			for _, before := range x.tried[:i] {
				if before.Target == p.Target && !p.slot.onceMore() {
					t.Fatalf("tried %v, want none twice but by its own retry", x.targets())
				}
				if before.Verdict.Class == classify.Refusal && family(x.plan.find(before.Target)) == family(x.plan.find(p.Target)) {
					t.Fatalf("tried %v, want the family that refused not asked again", x.targets())
				}
			}
			x.checkOnceMore(i)
		}
	})
}

// checkOnceMore checks that an extra attempt follows one at the same target that calls for it.
func (x *exchange) checkOnceMore(i int) {
	p := x.tried[i]
	if !p.slot.onceMore() {
		return
	}
	if i == 0 || x.tried[i-1].Target != p.Target {
		x.t.Fatalf("tried %v, want an extra attempt right after the target's own", x.targets())
	}
	before := x.tried[i-1]
	lacked := before.Verdict.Class == classify.Capacity
	discounted := p.slot.Target.Tier == "flex" || p.slot.Target.Tier == "" && x.x.Flex
	if p.slot.Standard != lacked || lacked && (before.slot.Standard || !discounted) {
		x.t.Fatalf("tried %v, the one before the last with %v, want the standard tier after a discounted one lacked capacity", x.targets()[:i+1], before.Verdict.Class)
	}
}

func TestAnOutageOfSomeLeavesNoFreeTargetUntried(t *testing.T) {
	check(t, func(t *rapid.T) {
		x := drawExchange(t)
		x.classes = outages
		x.run()
		x.reached()
	})
}

// TestAnOutageGoesRungByRung: but for the target that a conversation prefers.
func TestAnOutageGoesRungByRung(t *testing.T) {
	check(t, func(t *rapid.T) {
		x := drawExchange(t)
		x.classes, x.prefers = outages, []string{rapid.SampledFrom(x.prefers).Draw(t, "preferred")}
		x.run()
		rest := slices.DeleteFunc(slices.Clone(x.tried), func(p tried) bool { return x.plan.sticky() && p.Target == x.prefers[0] && !p.slot.Downshift })
		if !slices.IsSortedFunc(rest, func(a, b tried) int { return a.Rung - b.Rung }) {
			t.Fatalf("tried %v, preferring %q, want one rung after the other", x.targets(), x.prefers[0])
		}
		if len(rest) < len(x.tried) && x.tried[0].Target != x.prefers[0] {
			t.Fatalf("tried %v, want %s first", x.targets(), x.prefers[0])
		}
	})
}

// TestReplicasThatSeeNothingOfEachOther each remember their own attempts alone, and prefer what they like.
func TestReplicasThatSeeNothingOfEachOther(t *testing.T) {
	check(t, func(t *rapid.T) {
		x := drawExchange(t)
		x.replicas = append(x.replicas, NewMemo(), NewMemo())
		x.classes = outages
		x.run()
		x.reached()
		for i, p := range x.tried {
			again := func(before tried) bool { return before.Target == p.Target && !p.slot.onceMore() }
			remembers := func(before Past) bool { return before.Target == p.Target && !p.slot.onceMore() }
			if slices.ContainsFunc(p.past, remembers) || !x.plan.sticky() && slices.ContainsFunc(x.tried[:i], again) {
				t.Fatalf("tried %v, want no target again that is known to be tried", x.targets()[:i+1])
			}
		}
	})
}

func TestReplicasThatSeeNothingOfEachOtherComeToAnEnd(t *testing.T) {
	check(t, func(t *rapid.T) {
		x := drawExchange(t)
		x.replicas = append(x.replicas, NewMemo(), NewMemo())
		x.faults = rapid.Bool().Draw(t, "faults")
		x.run()
	})
}

func TestServiceFaultsAloneDoNotSpendAChain(t *testing.T) {
	chains := map[string][]string{"one target": {"a"}, "two targets": {"a", "b"}, "six targets": {"a", "b", "c", "d", "e", "f"}}
	for name, targets := range chains {
		for faults := range serviceFaults + 1 {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, nil, targets...)
				try, err := b.plan().Begin(Exchange{ID: "x", Attempt: faults + 1}, nil)
				if err != nil {
					t.Fatalf("%s: Begin after %d faults of the service = %v, want a target", name, faults, err)
				}
				try.Release()
			})
		}
	}
}
