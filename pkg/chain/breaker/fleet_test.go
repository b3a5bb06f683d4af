package breaker

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// fleet is the breakers of one target on several replicas, which hear of each other in any order, late or never.
type fleet struct {
	settings Settings
	replicas []*replica
	sent     []post
	held     []held
	leader   map[uint64]*replica // to whom a generation's trial was given, as by a lease
	trials   map[uint64]*replica // who made it
}

// replica is one of them, with the truth it last went by.
type replica struct {
	*Breaker
	truth Truth
}

// post is news on its way to a replica: a truth or, where there is one, a tally.
type post struct {
	to    *replica
	truth Truth
	tally *Tally
}

// held is a call that has begun.
type held struct {
	*Permit
	at *replica
}

func newFleet(n int, s Settings) *fleet {
	f := &fleet{settings: s, leader: map[uint64]*replica{}, trials: map[uint64]*replica{}}
	for range n {
		f.join()
	}
	return f
}

// join lets a replica begin that knows nothing.
func (f *fleet) join() {
	r := &replica{Breaker: New("a", f.settings, func(Transition) {})}
	r.Fleet(true)
	f.replicas = append(f.replicas, r)
}

func (f *fleet) Join(t *rapid.T) {
	if len(f.replicas) > 4 {
		t.Skip("enough of them")
	}
	f.join()
}

func (f *fleet) any(t *rapid.T) *replica {
	return f.replicas[rapid.IntRange(0, len(f.replicas)-1).Draw(t, "replica")]
}

// begin begins a call, which may be a trial.
func (f *fleet) begin(t *rapid.T, r *replica) *Permit {
	trial, gen := r.State() == HalfOpen, r.Truth().Gen
	p, err := r.Allow()
	if err != nil {
		return nil
	}
	if other := f.trials[gen]; trial && other != nil && other != r {
		t.Fatalf("two replicas try generation %d", gen)
	}
	if trial {
		f.trials[gen] = r
	}
	return p
}

func (f *fleet) Call(t *rapid.T) {
	if p := f.begin(t, f.any(t)); p != nil {
		p.Done(someOutcome(t))
	}
}

func (f *fleet) Hold(t *rapid.T) {
	r := f.any(t)
	if p := f.begin(t, r); p != nil {
		f.held = append(f.held, held{p, r})
	}
}

func (f *fleet) End(t *rapid.T) {
	if len(f.held) == 0 {
		t.Skip("no call")
	}
	i := rapid.IntRange(0, len(f.held)-1).Draw(t, "call")
	f.held[i].Done(someOutcome(t))
	f.held = slices.Delete(f.held, i, i+1)
}

// Lead gives the trial of a half-open generation to the first replica that asks.
func (f *fleet) Lead(t *rapid.T) { f.claim(f.any(t)) }

func (f *fleet) claim(r *replica) {
	gen := r.Truth().Gen
	if r.State() != HalfOpen || f.leader[gen] != nil && f.leader[gen] != r {
		return
	}
	f.leader[gen] = r
	r.Lead(gen)
}

func (f *fleet) TellTruth(t *rapid.T) { f.tellTruth(f.any(t)) }

func (f *fleet) tellTruth(from *replica) {
	for _, r := range f.replicas {
		f.sent = append(f.sent, post{to: r, truth: from.Truth()})
	}
}

func (f *fleet) TellTally(t *rapid.T) { f.tellTally(f.any(t)) }

func (f *fleet) tellTally(from *replica) {
	tally := from.Drain()
	for _, r := range f.replicas {
		if r != from {
			f.sent = append(f.sent, post{to: r, tally: &tally})
		}
	}
}

// take takes any news that is on its way.
func (f *fleet) take(t *rapid.T) post {
	if len(f.sent) == 0 {
		t.Skip("no news")
	}
	i := rapid.IntRange(0, len(f.sent)-1).Draw(t, "news")
	p := f.sent[i]
	f.sent = slices.Delete(f.sent, i, i+1)
	return p
}

func (f *fleet) Deliver(t *rapid.T) { f.take(t).deliver() }

func (f *fleet) Lose(t *rapid.T) { f.take(t) }

func (p post) deliver() {
	if p.tally != nil {
		p.to.Observe(*p.tally)
	} else {
		p.to.Follow(p.truth)
	}
}

func (f *fleet) deliverAll() {
	for _, p := range f.sent {
		p.deliver()
	}
	f.sent = nil
}

func (f *fleet) Wait(t *rapid.T) {
	time.Sleep(rapid.SampledFrom([]time.Duration{1, time.Second, 10 * time.Second}).Draw(t, "time"))
}

// check says that nobody goes back to a truth that is beaten.
func (f *fleet) check(t *rapid.T) {
	for _, r := range f.replicas {
		now := r.Truth()
		if r.truth.Beats(now) {
			t.Fatalf("a replica goes by %+v after %+v", now, r.truth)
		}
		r.truth = now
	}
}

// settle lets the news flow until nobody hears anything new, and returns the one truth.
func (f *fleet) settle(t *rapid.T) Truth {
	best := f.replicas[0].Truth()
	for _, r := range f.replicas {
		f.tellTruth(r)
		if r.Truth().Beats(best) {
			best = r.Truth()
		}
	}
	f.deliverAll()
	time.Sleep(2 * time.Nanosecond) // what has ended long ago ends in two nanoseconds
	for i, r := range f.replicas {
		if r.Truth() != best || r.State() != f.replicas[0].State() {
			t.Fatalf("replica %d: Truth() = %+v, State() = %v, want %+v, %v as elsewhere", i, r.Truth(), r.State(), best, f.replicas[0].State())
		}
	}
	return best
}

// recover tries the target, when nothing else is on its way, and lets the fleet hear of it.
func (f *fleet) recover(t *rapid.T) {
	truth := f.settle(t)
	if !truth.Open {
		return
	}
	time.Sleep(max(0, time.Until(truth.Until)))
	tries := 0
	for _, r := range f.replicas {
		f.claim(r)
		if p := f.begin(t, r); p != nil {
			tries++
			defer p.Done(Success)
		}
	}
	out := slices.ContainsFunc(f.held, func(h held) bool { return h.trial != nil && h.at == f.leader[truth.Gen] && h.m == h.at.machine })
	if tries != 1 && !out {
		t.Fatalf("%d replicas may try generation %d, want one", tries, truth.Gen)
	}
}

func TestAFleetAgreesOnceNewsFlows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 10 { // times what -rapid.checks says
			rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
				f := newFleet(3, Settings{Failures: 3, OpenFor: 5 * time.Second, MaxOpenFor: 20 * time.Second, Ramp: Ramp{5 * time.Second, 0.5}})
				t.Repeat(map[string]func(*rapid.T){
					"":     f.check,
					"call": f.Call, "call again": f.Call, "call once more": f.Call, "hold": f.Hold, "end": f.End,
					"tell truth": f.TellTruth, "tell tally": f.TellTally, "lead": f.Lead, "wait": f.Wait, "join": f.Join,
					"deliver": f.Deliver, "deliver again": f.Deliver, "lose": f.Lose,
				})
				f.deliverAll()
				f.recover(t)
				if f.settle(t).Open && len(f.held) == 0 {
					t.Fatalf("the fleet is open after a successful trial, want closed")
				}
			})
		}
	})
}

// outage is a fleet in which every call fails. own counts what a replica has seen fail since it last heard of
// something else, which nobody can tell it away.
type outage struct {
	*fleet
	own map[*replica]int
}

func (o *outage) Fail(t *rapid.T) {
	r := o.any(t)
	if p := o.begin(t, r); p != nil {
		p.Done(Failure)
		o.own[r]++
	}
}

func (o *outage) Deliver(t *rapid.T) {
	p := o.take(t)
	if p.deliver(); p.tally == nil || p.tally.OK > 0 {
		o.own[p.to] = 0
	}
}

func (o *outage) check(t *rapid.T) {
	for r, n := range o.own {
		if n >= o.settings.Failures && r.State() == Closed {
			t.Fatalf("a replica is closed after %d failures of its own, want it open", n)
		}
	}
}

func TestLostTalliesDelayATripButDoNotPreventIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			f := newFleet(3, Settings{Failures: 4, OpenFor: time.Hour})
			t.Repeat(map[string]func(*rapid.T){
				"call": f.Call, "tell tally": f.TellTally, "tell truth": f.TellTruth, "deliver": f.Deliver,
			})
			o := &outage{f, map[*replica]int{}}
			t.Repeat(map[string]func(*rapid.T){
				"":     o.check,
				"fail": o.Fail, "fail again": o.Fail, "tell tally": o.TellTally, "deliver": o.Deliver, "lose": o.Lose,
			})
		})
	})
}

func TestFailuresOnDifferentReplicasAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			f := newFleet(3, Settings{Failures: 5, OpenFor: time.Hour})
			for range f.settings.Failures {
				if p := f.begin(t, f.any(t)); p != nil {
					p.Done(Failure)
				}
			}
			for _, r := range f.replicas {
				f.tellTally(r)
			}
			for len(f.sent) > 0 {
				f.Deliver(t)
			}
			for _, r := range f.replicas {
				f.tellTruth(r)
			}
			f.deliverAll()
			if got := f.settle(t); got.Gen != 1 || !got.Open {
				t.Fatalf("Truth() after as many failures as it takes = %+v, want open", got)
			}
		})
	})
}

// TestSuccessesElsewhereKeepAnIdleReplicaClosed has one busy replica tell of any number of calls at once, or
// several each call: the fleet never sees enough failures in a row.
func TestSuccessesElsewhereKeepAnIdleReplicaClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			f := newFleet(4, Settings{Failures: 4, OpenFor: time.Hour})
			busy := rapid.IntRange(1, 3).Draw(t, "busy")
			row := 0
			for range rapid.IntRange(1, 60).Draw(t, "calls") {
				o := someOutcome(t)
				if row++; o != Failure || row == f.settings.Failures {
					o, row = Success, 0
				}
				r := f.replicas[rapid.IntRange(0, busy-1).Draw(t, "replica")]
				if p := f.begin(t, r); p != nil {
					p.Done(o)
				}
				if busy > 1 || rapid.Bool().Draw(t, "tell") {
					f.tellTally(r)
					f.deliverAll()
				}
			}
			for i, r := range f.replicas {
				if got := r.Truth().Gen; got != 0 {
					t.Fatalf("replica %d has opened without %d failures in a row anywhere", i, f.settings.Failures)
				}
			}
		})
	})
}
