package chain

import (
	"errors"
	"maps"
	"slices"
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
	replicas []*Memo // attempts go to any of them
	faults   bool    // of the service, each of which consumes an attempt number
	classes  []classify.Class

	tried []Past
	free  map[string]bool // targets that were free at the start
}

func drawExchange(t *rapid.T) *exchange {
	names := []string{"a:m", "b:m", "c", "d", "e", "f", "g"}[:rapid.IntRange(1, 7).Draw(t, "targets")]
	cfg := conf(func(c *config.Chain) {
		c.On.RateLimited = rapid.SampledFrom([]string{"next", "wait", "return"}).Draw(t, "rate_limited")
		c.On.Refusal = rapid.SampledFrom([]string{"next", "return"}).Draw(t, "refusal")
		if rapid.Bool().Draw(t, "same_target") {
			retrySame(c)
		}
	}, targets(names...))
	book := NewBook(cfg, nil, func(breaker.Transition) {})
	x := &exchange{t: t, plan: book.Plan(cfg.Chains[0]), replicas: []*Memo{NewMemo()}, free: map[string]bool{}}
	for name := range cfg.Targets {
		x.free[name] = !rapid.Bool().Draw(t, "open")
		if !x.free[name] {
			book.Breaker(name).Observe(breaker.Tally{Failed: 1, Trailing: 1})
		}
	}
	x.classes = rapid.SliceOfNDistinct(rapid.SampledFrom([]classify.Class{classify.Overloaded, classify.ServerError,
		classify.RateLimited, classify.Refusal, classify.Auth, classify.Invalid, classify.OK}), 1, 7, rapid.ID).Draw(t, "classes")
	return x
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
	ex := Exchange{ID: "x", Attempt: n}
	try, err := x.plan.Begin(ex, memo.Of("x"))
	if err == nil && try.Wait > 0 {
		time.Sleep(try.Wait)
		try, err = x.plan.Begin(ex, memo.Of("x"))
	}
	if err != nil {
		return errors.Is(err, ErrSkip)
	}
	v := verdict(rapid.SampledFrom(x.classes).Draw(x.t, "class"))
	if v.Class == classify.RateLimited {
		v = limited(time.Duration(rapid.IntRange(0, 5).Draw(x.t, "seconds")) * time.Second)
	}
	past := Past{Attempt: n, Slot: try.Index, Rung: try.Rung, Target: try.Target.Name, Verdict: v}
	x.tried = append(x.tried, past)
	more := try.More(v)
	if more {
		memo.Add("x", past)
	}
	try.Report(v)
	return more
}

// slot is the slot that an attempt had.
func (x *exchange) slot(p Past) *Slot {
	c := x.plan.course(Exchange{ID: "x"}, nil)
	return c.slot(p.Slot)
}

// targets is the tried targets, in order.
func (x *exchange) targets() []string {
	var names []string
	for _, p := range x.tried {
		names = append(names, p.Target)
	}
	return names
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
				if before.Target == p.Target && (!x.slot(p).Again || before.Slot != p.Slot-1) {
					t.Fatalf("tried %v, want none twice but by its own retry", x.targets())
				}
				if before.Verdict.Class == classify.Refusal && family(x.plan.find(before.Target)) == family(x.plan.find(p.Target)) {
					t.Fatalf("tried %v, want the family that refused not asked again", x.targets())
				}
			}
		}
	})
}

func TestAnOutageOfSomeLeavesNoFreeTargetUntried(t *testing.T) {
	check(t, func(t *rapid.T) {
		x := drawExchange(t)
		x.classes = []classify.Class{classify.Overloaded, classify.Timeout}
		x.run()
		var want []string
		for _, name := range slices.Sorted(maps.Keys(x.free)) {
			if x.free[name] {
				want = append(want, name)
			}
		}
		if !slices.Equal(x.targets(), want) {
			t.Fatalf("tried %v, want %v", x.targets(), want)
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
