// Package breaker keeps one circuit breaker and one cooldown per target.
//
// The state machine is gobreaker's; this package is its only importer and wraps it so that a permit
// cannot leak, be counted twice, or run a callback under a lock. What is added around it: open periods that
// double, a ramp after closing, and a Truth that the breakers of a fleet share.
package breaker

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// ErrRefused is the umbrella of every reason why Allow gives no permit.
var ErrRefused = errors.New("target may not be tried")

// The precise reasons.
var (
	ErrOpen    = fmt.Errorf("%w: its breaker is open", ErrRefused)
	ErrBusy    = fmt.Errorf("%w: its breaker is half-open and the one trial is not this request's", ErrRefused)
	ErrRamping = fmt.Errorf("%w: its breaker has just closed and lets a share of the traffic through", ErrRefused)
	ErrCooling = fmt.Errorf("%w: it is cooling down after a rate limit", ErrRefused)
)

// State is a breaker's state; its number is the value of the metric understudy_breaker_state.
type State int

// The states.
const (
	Closed State = iota
	HalfOpen
	Open
)

func (s State) String() string {
	return [...]string{"closed", "half-open", "open"}[s]
}

// Outcome is what a permit's call came to.
type Outcome uint8

// The outcomes. Excluded neither helps nor harms: caller faults, hang-ups, calls never made.
const (
	Excluded Outcome = iota
	Success
	Failure
)

// outcomeError carries an Outcome through gobreaker's error parameter.
type outcomeError Outcome

func (o outcomeError) Error() string { return [...]string{"excluded", "success", "failure"}[o] }

// Settings of one breaker.
type Settings struct {
	Failures int           // consecutive failures that open it, at least 1
	Ratio    float64       // share of failed calls in Window that opens it too, once there are MinCalls; 0: none
	Window   time.Duration // of Ratio; 0: all the time since it closed
	MinCalls int           // of Ratio

	OpenFor    time.Duration // first open period; each opening without a quiet time between doubles it
	MaxOpenFor time.Duration // longest open period, and how long it stays closed for the doubling to begin anew
	Probe      bool          // half-open, only Trial gives the permit; otherwise the first ordinary request gets it
	Ramp       Ramp          // after closing
}

// period is the length of the open period after so many openings in a row, the latest included.
func (s Settings) period(streak int) time.Duration {
	d := s.OpenFor
	for ; streak > 1 && d < s.longest(); streak-- {
		d *= 2
	}
	return min(d, s.longest())
}

// longest is the length that no open period exceeds.
func (s Settings) longest() time.Duration { return max(s.OpenFor, s.MaxOpenFor) }

// Transition is one change of state. Own says that this process's calls caused it, not the fleet.
type Transition struct {
	Target   string
	From, To State
	Own      bool
}

// Breaker is the breaker and the cooldown of one target.
//
// Ownership: chain.Book makes it and carries it over reloads.
// Concurrency: every method may be called by any goroutine, also by listen, which is called without a lock held.
type Breaker struct {
	target string
	listen func(Transition)
	born   time.Time // what cooling counts from, so that a step of the wall clock does not move it

	cooling atomic.Int64 // nanoseconds since born until which the target cools down
	last    atomic.Pointer[string]
	force   atomic.Int32 // a Force

	// mu guards the fields below. It is held for as long as gobreaker holds its own, which does not wait.
	mu      sync.Mutex
	machine *machine
	fleet   bool   // a trial needs lead
	lead    uint64 // generation whose trial is this process's
	asked   uint64 // generation whose trial a request has asked for here
	tally   Tally

	news news
}

// New makes a closed breaker. listen hears each transition once, in order, soon after the call that caused it.
func New(target string, s Settings, listen func(Transition)) *Breaker {
	b := &Breaker{target: target, listen: listen, born: time.Now()}
	b.begin(machine{settings: s, since: b.born})
	return b
}

// use runs f with the lock held, acts on what gobreaker did in it, then tells what changed. f lets gobreaker move
// once at most, or settles in between.
func (b *Breaker) use(f func(m *machine)) {
	b.mu.Lock()
	f(b.machine)
	b.settle()
	b.mu.Unlock()
	b.news.tell(b.listen)
}

// settle begins a new generation where gobreaker opened or closed. Caller holds mu.
func (b *Breaker) settle() {
	m := b.machine
	if !m.moved {
		return
	}
	m.moved = false
	b.news.add(Transition{b.target, m.from, m.to, true})
	switch m.to {
	case Open:
		b.begin(m.opened(b.Last()))
	case Closed:
		b.begin(m.closed())
	}
}

// settled is the state now, with nothing left to settle before the machine is replaced. Caller holds mu.
func (b *Breaker) settled() State {
	state := b.machine.state()
	b.settle()
	return state
}

// begin goes on with another machine. Caller holds mu.
func (b *Breaker) begin(next machine) {
	if b.tally.Gen != next.truth.Gen {
		b.tally = Tally{Gen: next.truth.Gen}
	}
	b.machine = next.start(b.target)
}

// Renew changes the settings, for a reload. A closed breaker keeps its failures in a row, short of opening by them,
// and the share its ramp has reached; one that was not closed is open anew for the new OpenFor, and what its trial
// comes to no longer counts.
func (b *Breaker) Renew(s Settings) {
	b.use(func(m *machine) {
		if m.settings == s {
			return
		}
		was := b.settled()
		b.begin(m.renewed(s))
		if was == HalfOpen {
			b.news.add(Transition{b.target, HalfOpen, Open, true})
		}
	})
}

// Allow takes a permit to try the target now, or says why not (errors.Is ErrRefused).
func (b *Breaker) Allow() (*Permit, error) {
	return b.ordinary(func(m *machine) error {
		b.ask(m)
		if err := b.check(m); err != nil {
			return err
		}
		if !m.ramp.admit() {
			return ErrRamping
		}
		return nil
	})
}

// AllowPaced is Allow for a call of ours whose caller goes by Pace: the ramp has had its say.
func (b *Breaker) AllowPaced() (*Permit, error) {
	return b.ordinary(func(m *machine) error {
		b.ask(m)
		return b.check(m)
	})
}

// ordinary takes a permit for a request, which an operator and the cooldown have a say in.
func (b *Breaker) ordinary(allowed func(m *machine) error) (*Permit, error) {
	switch f := b.Forced(); {
	case f == ForcedOpen:
		return nil, ErrForced
	case f == ForcedClosed:
		return b.free(), nil
	case b.isCooling():
		return nil, ErrCooling
	}
	return b.take(allowed)
}

// Missed counts a request that Check kept from asking Allow: its ramp's share is one of these too, and a fleet is to
// know that somebody is there to make the trial.
func (b *Breaker) Missed() {
	if b.Forced() != Released || b.isCooling() {
		return
	}
	b.use(func(m *machine) {
		b.ask(m)
		m.ramp.missed()
	})
}

// ask notes that a request has come for a trial. Caller holds mu.
func (b *Breaker) ask(m *machine) {
	if m.state() == HalfOpen {
		b.asked = m.truth.Gen
	}
}

// Trial takes the one permit of a half-open breaker for a deliberate probe, or says why not. It asks neither for
// Lead, as whoever probes sees to it that one replica does, nor for the cooldown.
func (b *Breaker) Trial() (*Permit, error) {
	if b.Forced() == ForcedOpen {
		return nil, ErrForced
	}
	return b.take(func(m *machine) error {
		if b.forced(m.state()) == Closed {
			return ErrBusy // nothing to probe
		}
		return m.check()
	})
}

func (b *Breaker) take(allowed func(m *machine) error) (p *Permit, err error) {
	b.use(func(m *machine) {
		if err = allowed(m); err != nil {
			return
		}
		var trial func(error)
		if m.truth.Open {
			if trial, err = m.Allow(); err != nil {
				err = ErrBusy
				return
			}
		}
		p = &Permit{b: b, m: m, gen: m.truth.Gen, trial: trial}
	})
	return p, err
}

// check says why an ordinary request would get no permit, the ramp aside. Caller holds mu.
func (b *Breaker) check(m *machine) error {
	if m.state() == HalfOpen && (m.settings.Probe || b.fleet && b.lead != m.truth.Gen) {
		return ErrBusy
	}
	return m.check()
}

// Check says what Allow would, without taking a permit.
func (b *Breaker) Check() (err error) {
	switch f := b.Forced(); {
	case f == ForcedOpen:
		return ErrForced
	case f == ForcedClosed:
		return nil
	case b.isCooling():
		return ErrCooling
	}
	b.use(func(m *machine) {
		if err = b.check(m); err == nil && !m.ramp.would() {
			err = ErrRamping
		}
	})
	return err
}

// State is the state now, a forced one where an operator has forced it; an open breaker whose time is over becomes
// half-open by being asked.
func (b *Breaker) State() (s State) {
	b.use(func(m *machine) { s = b.forced(m.state()) })
	return s
}

// Share is the share of traffic that the breaker lets through: 0 unless closed, 1 after its ramp.
func (b *Breaker) Share() (share float64) {
	b.use(func(m *machine) {
		if b.forced(m.state()) == Closed {
			share = b.ramped(m)
		}
	})
	return share
}

// ramped is the share that a closed breaker lets through. Caller holds mu.
func (b *Breaker) ramped(m *machine) float64 {
	if b.Forced() == ForcedClosed {
		return 1
	}
	return m.ramp.now()
}

// Pace is the share of the usual rate at which calls of ours may come: Share, or where a request makes the trial the
// ramp's first share of it, as without traffic nobody else might.
func (b *Breaker) Pace() (share float64) {
	if b.Forced() == Released && b.isCooling() {
		return 0
	}
	b.use(func(m *machine) {
		switch s := b.forced(m.state()); {
		case s == Closed:
			share = b.ramped(m)
		case s == HalfOpen && !m.settings.Probe:
			share = newRamp(m.settings.Ramp, time.Time{}).first()
		}
	})
	return share
}

// lately is how long what is known of a target that nobody calls says that it is failing.
const lately = time.Minute

// Failing says whether the target's latest calls failed lately, or its breaker does not let all traffic through.
func (b *Breaker) Failing() (failing bool) {
	b.use(func(m *machine) {
		switch b.forced(m.state()) {
		case Closed:
			failing = b.ramped(m) < 1 || m.row > 0 && time.Since(m.failed) < lately
		case HalfOpen:
			failing = time.Since(m.until) < lately
		case Open:
			failing = true
		}
	})
	return failing
}

// Troubled says whether the target is failing or was rate-limited lately.
func (b *Breaker) Troubled() bool {
	return b.cooling.Load() > 0 && time.Since(b.Cooling()) < lately || b.Failing()
}

// Cool keeps the target from being tried before until. Cooldowns merge by the later end: an answer without
// Retry-After must not shorten one that had it. An until from elsewhere counts by what is left of it now.
func (b *Breaker) Cool(until time.Time) {
	for next := b.at(time.Now().Add(time.Until(until))); ; {
		now := b.cooling.Load()
		if next <= now || b.cooling.CompareAndSwap(now, next) {
			return
		}
	}
}

func (b *Breaker) at(t time.Time) int64 { return int64(t.Sub(b.born)) }

func (b *Breaker) isCooling() bool { return b.at(time.Now()) < b.cooling.Load() }

// Cooling is the end of the cooldown; it may lie in the past.
func (b *Breaker) Cooling() time.Time { return b.born.Add(time.Duration(b.cooling.Load())) }

// Returns is the earliest time at which Allow may give a permit again; the past means now, or that nobody knows.
func (b *Breaker) Returns() (at time.Time) {
	if b.Forced() != Released {
		return b.born
	}
	b.use(func(m *machine) {
		if at = b.Cooling(); m.state() == Open && m.until.After(at) {
			at = m.until
		}
	})
	return at
}

// Blame notes why the target failed, in the word that people are told.
func (b *Breaker) Blame(why string) { b.last.Store(&why) }

// Last is why the target failed last, "" when it never did.
func (b *Breaker) Last() string {
	if why := b.last.Load(); why != nil {
		return *why
	}
	return ""
}

// Permit is the right to try a target once.
//
// Ownership: whoever got it from Allow or Trial, who defers Release. The first Done or Release counts, later ones
// do not.
type Permit struct {
	b     *Breaker
	m     *machine
	gen   uint64
	trial func(error) // of a half-open breaker's one permit, gobreaker's; nil for a closed one's
	used  atomic.Bool
}

// Done gives the permit back with what the call came to. It does not count when the breaker has changed its state
// since Allow.
func (p *Permit) Done(o Outcome) {
	if p.used.Swap(true) {
		return
	}
	p.b.use(func(m *machine) {
		switch {
		case p.trial != nil && m == p.m:
			p.trial(outcomeError(o))
		case p.trial == nil && m.isClosed(p.gen):
			p.b.tally.add(o)
			p.b.count(m, o)
		case p.trial == nil && p.gen == m.truth.Gen: // it is open beneath
			m.note(o)
		}
	})
}

// Release gives back a permit whose call came to nothing that can be counted.
func (p *Permit) Release() { p.Done(Excluded) }
