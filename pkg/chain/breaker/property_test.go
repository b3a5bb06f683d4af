package breaker

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// permit is one that was given, with the generation and the life of the model it was given in.
type permit struct {
	*Permit
	gen   uint64
	life  int
	trial bool
	used  bool
}

// machinery is a breaker next to its model.
type machinery struct {
	model
	b       *Breaker
	heard   []Transition
	permits []*permit
}

func newMachinery(t *rapid.T) *machinery {
	m := &machinery{model: model{s: someSettings(t), share: 1, since: time.Now(), clock: time.Now(), cooling: time.Now()}}
	m.b = New("a", m.s, func(tr Transition) {
		if !m.b.mu.TryLock() {
			t.Fatalf("%v is told under the lock", tr)
		}
		m.b.mu.Unlock()
		m.heard = append(m.heard, tr)
	})
	return m
}

func someSettings(t *rapid.T) Settings {
	s := Settings{
		Failures:   rapid.IntRange(1, 4).Draw(t, "failures"),
		Window:     30 * time.Second,
		MinCalls:   rapid.IntRange(1, 4).Draw(t, "min calls"),
		Ratio:      rapid.SampledFrom([]float64{0, 0, 0.5, 0.75}).Draw(t, "ratio"),
		OpenFor:    rapid.SampledFrom([]time.Duration{5 * time.Second, 10 * time.Second}).Draw(t, "open for"),
		MaxOpenFor: rapid.SampledFrom([]time.Duration{0, 15 * time.Second, 40 * time.Second}).Draw(t, "max open for"),
		Probe:      rapid.Bool().Draw(t, "probe"),
	}
	if rapid.Bool().Draw(t, "ramp") {
		s.Ramp = Ramp{10 * time.Second, 0.5}
	}
	return s
}

func (m *machinery) given(p *Permit, trial bool) {
	m.permits = append(m.permits, &permit{p, m.truth.Gen, m.life, trial, false})
}

func (m *machinery) Allow(t *rapid.T) {
	p, err := m.b.Allow()
	if want := m.allow(true); err != want || (p == nil) == (err == nil) {
		t.Fatalf("Allow() = %v, %v, want %v", p, err, want)
	}
	if err == nil {
		m.given(p, m.state == HalfOpen && m.force == Released)
	}
}

func (m *machinery) Trial(t *rapid.T) {
	p, err := m.b.Trial()
	if want := m.tryOut(); err != want || (p == nil) == (err == nil) {
		t.Fatalf("Trial() = %v, %v, want %v", p, err, want)
	}
	if err == nil {
		m.given(p, true)
	}
}

func someOutcome(t *rapid.T) Outcome {
	return rapid.SampledFrom([]Outcome{Excluded, Success, Success, Failure, Failure, Failure}).Draw(t, "outcome")
}

// Call is a whole call.
func (m *machinery) Call(t *rapid.T) {
	n := len(m.permits)
	if m.Allow(t); len(m.permits) > n {
		m.end(t, m.permits[n])
	}
}

// Probe is a whole deliberate trial.
func (m *machinery) Probe(t *rapid.T) {
	n := len(m.permits)
	if m.Trial(t); len(m.permits) > n {
		m.end(t, m.permits[n])
	}
}

// Done also ends permits that have ended before.
func (m *machinery) Done(t *rapid.T) {
	if len(m.permits) == 0 {
		t.Skip("no permit is out")
	}
	m.end(t, m.permits[rapid.IntRange(0, len(m.permits)-1).Draw(t, "permit")])
}

func (m *machinery) end(t *rapid.T, p *permit) {
	o := someOutcome(t)
	was := m.b.Truth()
	if o == Excluded {
		p.Release()
	} else {
		p.Done(o)
	}
	if got := m.b.Truth(); o == Excluded && got != was {
		t.Fatalf("Truth() = %v after a caller's fault, want %v as before", got, was)
	}
	m.done(p, o)
}

func (m *machinery) done(p *permit, o Outcome) {
	switch {
	case p.used:
	case p.trial && p.life == m.life:
		m.tried(o)
	case !p.trial && m.state == Closed && p.gen == m.truth.Gen:
		m.tally.add(o)
		m.count(o)
	}
	p.used = true
}

func (m *machinery) Observe(t *rapid.T) {
	tally := Tally{Gen: m.someGen(t), OK: rapid.IntRange(0, 3).Draw(t, "ok"), Trailing: rapid.IntRange(0, 3).Draw(t, "trailing")}
	if tally.Failed = tally.Trailing; tally.OK > 0 {
		tally.Failed += rapid.IntRange(0, 4).Draw(t, "earlier")
	}
	m.b.Observe(tally)
	m.observe(tally)
}

// someGen is mostly the one of now.
func (m *machinery) someGen(t *rapid.T) uint64 {
	return max(1, m.truth.Gen+rapid.SampledFrom([]uint64{1, 1, 1, 0, 2}).Draw(t, "gen")) - 1
}

func (m *machinery) Drain(t *rapid.T) {
	if got := m.b.Drain(); got.OK != m.tally.OK || got.Failed != m.tally.Failed || got.Trailing != m.tally.Trailing || got.Gen != m.truth.Gen {
		t.Fatalf("Drain() = %v, want %v", got, m.tally)
	}
	m.tally = Tally{Gen: m.truth.Gen}
}

// Follow also tells of times that another replica's clock may hold for true.
func (m *machinery) Follow(t *rapid.T) {
	now := time.Now().UTC().Round(0)
	around := rapid.SampledFrom([]time.Duration{-time.Hour, -5 * time.Second, 0, 5 * time.Second, time.Hour})
	told := Truth{
		Gen:    m.someGen(t),
		Open:   rapid.Bool().Draw(t, "open"),
		Since:  now.Add(around.Draw(t, "since")),
		Streak: rapid.IntRange(1, 3).Draw(t, "streak"),
		Why:    rapid.SampledFrom([]string{"", "timeout"}).Draw(t, "why"),
	}
	if told.Open {
		told.Until = now.Add(around.Draw(t, "until"))
	}
	got := m.b.Follow(told)
	if want := m.follow(told); got != want {
		t.Fatalf("Follow(%v) = %v, want %v", told, got, want)
	}
	if m.b.Follow(told) {
		t.Fatalf("Follow(%v) twice = true, want false", told)
	}
}

func (m *machinery) Fleet(t *rapid.T) {
	m.fleet = rapid.Bool().Draw(t, "fleet")
	m.b.Fleet(m.fleet)
}

func (m *machinery) Lead(t *rapid.T) {
	m.lead = m.someGen(t)
	m.b.Lead(m.lead)
}

func (m *machinery) Force(t *rapid.T) {
	m.force = rapid.SampledFrom([]Force{Released, Released, ForcedOpen, ForcedClosed}).Draw(t, "force")
	m.b.Force(m.force)
}

func (m *machinery) Blame(t *rapid.T) {
	m.why = rapid.SampledFrom([]string{"overloaded", "server_error"}).Draw(t, "why")
	m.b.Blame(m.why)
}

func (m *machinery) Cool(t *rapid.T) {
	until := time.Now().Add(time.Duration(rapid.IntRange(-1, 5).Draw(t, "seconds")) * time.Second)
	m.b.Cool(until)
	if until.After(m.cooling) {
		m.cooling = until
	}
}

func (m *machinery) Wait(t *rapid.T) {
	time.Sleep(rapid.SampledFrom([]time.Duration{1, time.Second, 10*time.Second - 1, 10 * time.Second}).Draw(t, "time"))
}

// Sleep ends an open period or a cooldown.
func (m *machinery) Sleep(t *rapid.T) {
	time.Sleep(max(0, time.Until(m.b.Returns())) + time.Duration(rapid.IntRange(-1, 2).Draw(t, "late")))
}

func (m *machinery) Renew(t *rapid.T) {
	s := someSettings(t)
	m.b.Renew(s)
	m.renew(s)
}

// check compares after every step.
func (m *machinery) check(t *rapid.T) {
	m.pass()
	state, share := m.shown()
	if got := m.b.State(); got != state {
		t.Fatalf("State() = %v, want %v", got, state)
	}
	if got := m.b.Truth(); got != m.truth {
		t.Fatalf("Truth() = %+v, want %+v", got, m.truth)
	}
	if !slices.Equal(m.heard, m.told) {
		t.Fatalf("told %v, want %v", m.heard, m.told)
	}
	if got, want := m.b.Check(), m.allow(false); got != want && (m.force != Released || m.state != HalfOpen) {
		t.Fatalf("Check() = %v, want %v", got, want)
	}
	if got := m.b.Share(); got != share {
		t.Fatalf("Share() = %v, want %v", got, share)
	}
	m.checkReturns(t)
	m.checkTrial(t)
}

func (m *machinery) checkReturns(t *rapid.T) {
	want := m.cooling
	if m.force != Released {
		if got := m.b.Returns(); got.After(time.Now()) {
			t.Fatalf("Returns() = in %v while forced %v, want that nobody knows", time.Until(got), m.force)
		}
		return
	}
	if m.state == Open && m.until.After(want) {
		want = m.until
	}
	// rapid makes an example smaller as long as it fails with the same words, thus no times of day.
	if got, want := time.Until(m.b.Returns()), time.Until(want); want > 2 && got != want {
		t.Fatalf("Returns() = in %v, want in %v", got, want)
	}
}

// checkTrial says that a half-open breaker has one permit, which is out or to be had.
func (m *machinery) checkTrial(t *rapid.T) {
	if m.state != HalfOpen || m.force != Released {
		return
	}
	out := 0
	for _, p := range m.permits {
		if p.trial && p.life == m.life && !p.used {
			out++
		}
	}
	if out > 1 {
		t.Fatalf("%d permits are out while half-open, want at most one", out)
	}
	if p, err := m.b.Trial(); (err == nil) != (out == 0) {
		t.Fatalf("Trial() = %v with %d permits out", err, out)
	} else if err == nil {
		p.Release()
	}
}

func TestABreakerBehavesHoweverCallsInterleave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 { // times what -rapid.checks says
			// rapid asks a testing.T for its deadline, which a bubble does not have.
			rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
				m := newMachinery(t)
				t.Repeat(map[string]func(*rapid.T){
					"":      m.check,
					"allow": m.Allow, "trial": m.Trial, "call": m.Call, "call again": m.Call, "probe": m.Probe,
					"done": m.Done, "done again": m.Done, "sleep": m.Sleep, "sleep again": m.Sleep, "wait": m.Wait,
					"observe": m.Observe, "follow": m.Follow, "drain": m.Drain, "lead": m.Lead, "fleet": m.Fleet,
					"blame": m.Blame, "cool": m.Cool, "renew": m.Renew, "force": m.Force,
				})
			})
		}
	})
}
