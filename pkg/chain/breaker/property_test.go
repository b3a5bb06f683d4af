package breaker

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// model is what a breaker should be, written down naively.
type model struct {
	s         Settings
	state     State
	era       int // counts the changes of state and of settings: a result counts only in the era of its permit
	failures  int // in a row
	trial     bool
	openUntil time.Time
	cooling   time.Time
	told      []State
}

func (m *model) move(to State) {
	m.state, m.failures, m.trial = to, 0, false
	m.era++
	m.told = append(m.told, to)
	if to == Open {
		m.openUntil = time.Now().Add(m.s.OpenFor)
	}
}

// pass lets an open breaker become half-open.
func (m *model) pass() {
	if m.state == Open && !time.Now().Before(m.openUntil) {
		m.move(HalfOpen)
	}
}

func (m *model) allow() error {
	switch {
	case time.Now().Before(m.cooling):
		return ErrCooling
	case m.state == Open:
		return ErrOpen
	case m.state == HalfOpen && m.trial:
		return ErrBusy
	}
	m.trial = m.state == HalfOpen
	return nil
}

func (m *model) done(era int, o Outcome) {
	switch {
	case era != m.era:
	case o == Excluded:
		m.trial = false
	case m.state == HalfOpen && o == Success:
		m.move(Closed)
	case m.state == HalfOpen:
		m.move(Open)
	case o == Success:
		m.failures = 0
	default:
		if m.failures++; m.failures >= m.s.Failures {
			m.move(Open)
		}
	}
}

func (m *model) renew(s Settings) {
	if s == m.s {
		return
	}
	m.s = s
	m.era++
	m.failures = min(m.failures, s.Failures-1)
	m.openUntil = time.Now().Add(s.OpenFor)
	if m.state == HalfOpen {
		m.move(Open)
	}
}

// permit is one that was given, with the era it was given in.
type permit struct {
	*Permit
	era  int
	used bool
}

// machinery is a breaker next to its model.
type machinery struct {
	model
	b       *Breaker
	heard   []State
	permits []*permit
}

func (m *machinery) Allow(t *rapid.T) {
	p, err := m.b.Allow()
	if want := m.allow(); err != want {
		t.Fatalf("Allow() = %v, want %v", err, want)
	}
	if err == nil {
		m.permits = append(m.permits, &permit{p, m.era, false})
	}
}

// Done also ends permits that have ended before.
func (m *machinery) Done(t *rapid.T) {
	if len(m.permits) == 0 {
		t.Skip("no permit is out")
	}
	p := rapid.SampledFrom(m.permits).Draw(t, "permit")
	o := rapid.SampledFrom([]Outcome{Excluded, Success, Failure, Failure}).Draw(t, "outcome")
	if o == Excluded {
		p.Release()
	} else {
		p.Done(o)
	}
	if !p.used {
		m.done(p.era, o)
	}
	p.used = true
}

func (m *machinery) Observe(t *rapid.T) {
	o := rapid.SampledFrom([]Outcome{Excluded, Success, Failure, Failure}).Draw(t, "outcome")
	if m.b.Observe(o); m.state == Closed {
		m.done(m.era, o)
	}
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
	m.pass()
}

func (m *machinery) Renew(t *rapid.T) {
	s := Settings{rapid.IntRange(1, 3).Draw(t, "failures"), rapid.SampledFrom([]time.Duration{5 * time.Second, 10 * time.Second}).Draw(t, "open for")}
	m.b.Renew(s)
	m.renew(s)
}

// check compares after every step.
func (m *machinery) check(t *rapid.T) {
	if got := m.b.State(); got != m.state {
		t.Fatalf("State() = %v, want %v", got, m.state)
	}
	if !slices.Equal(m.heard, m.told) {
		t.Fatalf("told %v, want %v", m.heard, m.told)
	}
	out := 0
	for _, p := range m.permits {
		if p.era == m.era && !p.used {
			out++
		}
	}
	if m.state == HalfOpen && out > 1 {
		t.Fatalf("%d permits are out while half-open, want at most one", out)
	}
	free := m.state == Closed || m.state == HalfOpen && out == 0
	if got := m.b.Check(); !time.Now().Before(m.cooling) && (got == nil) != free {
		t.Fatalf("Check() = %v while %v with %d permits out", got, m.state, out)
	}
}

func TestABreakerBehavesHoweverCallsInterleave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// rapid asks a testing.T for its deadline, which a bubble does not have.
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			m := &machinery{model: model{s: Settings{2, 10 * time.Second}, cooling: time.Now()}}
			m.b = New("a", m.s, func(tr Transition) {
				m.b.State() // would deadlock under a lock
				m.heard = append(m.heard, tr.To)
			})
			t.Repeat(map[string]func(*rapid.T){
				"":      m.check,
				"allow": m.Allow, "allow again": m.Allow,
				"done": m.Done, "done again": m.Done, "done once more": m.Done,
				"observe": m.Observe, "cool": m.Cool, "wait": m.Wait, "renew": m.Renew,
			})
		})
	})
}
