// Package breaker keeps one circuit breaker and one cooldown per target.
//
// The state machine is gobreaker's; this package is its only importer and wraps it so that a permit
// cannot leak, be counted twice, or run a callback under a lock.
package breaker

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// ErrRefused is the umbrella of every reason why Allow gives no permit.
var ErrRefused = errors.New("target may not be tried")

// The precise reasons.
var (
	ErrOpen    = fmt.Errorf("%w: its breaker is open", ErrRefused)
	ErrBusy    = fmt.Errorf("%w: its breaker is half-open and the one trial is running", ErrRefused)
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

// Settings of one breaker. Both must be positive.
type Settings struct {
	Failures int           // consecutive failures that open it
	OpenFor  time.Duration // open this long, then one trial
}

// Transition is one change of state.
type Transition struct {
	Target   string
	From, To State
}

// Breaker is the breaker and the cooldown of one target.
//
// Ownership: chain.Book makes it and carries it over reloads.
// Concurrency: every method may be called by any goroutine, also by listen, which is called without a lock held.
type Breaker struct {
	target string
	listen func(Transition)
	born   time.Time // what cooling and openUntil count from, so that a step of the wall clock moves neither

	cooling   atomic.Int64 // nanoseconds since born until which the target cools down
	openUntil atomic.Int64 // nanoseconds since born, of the latest opening
	last      atomic.Pointer[string]

	renew   sync.RWMutex // guards machine: held for reading while one is in use
	machine *machine

	news news
}

// machine is one gobreaker with the settings that it was made for.
type machine struct {
	*gobreaker.TwoStepCircuitBreaker[struct{}]
	settings Settings
}

// New makes a closed breaker. listen hears each transition once, in order, soon after the call that caused it.
func New(target string, s Settings, listen func(Transition)) *Breaker {
	b := &Breaker{target: target, listen: listen, born: time.Now()}
	b.machine = b.newMachine(s)
	return b
}

func (b *Breaker) newMachine(s Settings) *machine {
	m := &machine{settings: s}
	m.TwoStepCircuitBreaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        b.target,
		MaxRequests: 1,
		// gobreaker is still open at the very end of Timeout.
		Timeout:     max(s.OpenFor-1, 1),
		ReadyToTrip: func(c gobreaker.Counts) bool { return int(c.ConsecutiveFailures) >= s.Failures },
		// "OnStateChange is called whenever the state of the CircuitBreaker changes", under gobreaker's lock.
		OnStateChange: func(_ string, from, to gobreaker.State) { b.note(m, from, to) },
		IsSuccessful:  func(err error) bool { return errors.Is(err, outcomeError(Success)) },
		IsExcluded:    func(err error) bool { return errors.Is(err, outcomeError(Excluded)) },
	})
	return m
}

func state(s gobreaker.State) State {
	switch s {
	case gobreaker.StateOpen:
		return Open
	case gobreaker.StateHalfOpen:
		return HalfOpen
	default:
		return Closed
	}
}

// use runs f on the machine of now, then tells what changed by it.
func (b *Breaker) use(f func(m *machine)) {
	b.renew.RLock()
	f(b.machine)
	b.renew.RUnlock()
	b.news.tell(b.listen)
}

// note takes down a transition of m, unless m is no longer, or not yet, the machine. Caller holds renew.
func (b *Breaker) note(m *machine, from, to gobreaker.State) {
	if m != b.machine {
		return
	}
	if to == gobreaker.StateOpen {
		b.openUntil.Store(b.at(time.Now().Add(m.settings.OpenFor)))
	}
	b.news.add(Transition{b.target, state(from), state(to)})
}

// Renew changes the settings, for a reload. A closed breaker keeps its failures, short of opening by them; one that
// was not closed is open anew for the new OpenFor, and what its trial comes to no longer counts.
func (b *Breaker) Renew(s Settings) {
	b.renew.Lock()
	if b.machine.settings != s {
		b.replace(s)
	}
	b.renew.Unlock()
	b.news.tell(b.listen)
}

// replace makes a machine of s that is where the old one was. Caller holds renew.
func (b *Breaker) replace(s Settings) {
	old, next := b.machine, b.newMachine(s)
	was := old.State()
	failures := min(int(old.Counts().ConsecutiveFailures), s.Failures-1)
	if was != gobreaker.StateClosed {
		failures = s.Failures
		b.openUntil.Store(b.at(time.Now().Add(s.OpenFor)))
	}
	for range failures {
		next.count(Failure)
	}
	b.machine = next
	if was == gobreaker.StateHalfOpen {
		b.news.add(Transition{b.target, HalfOpen, Open})
	}
}

// count counts an outcome of a call that took no permit, if m is closed: a trial's result belongs to its permit.
func (m *machine) count(o Outcome) {
	if m.State() != gobreaker.StateClosed {
		return
	}
	if done, err := m.Allow(); err == nil {
		done(outcomeError(o))
	}
}

// check says what Allow would.
func (m *machine) check() error {
	switch m.State() {
	case gobreaker.StateOpen:
		return ErrOpen
	case gobreaker.StateHalfOpen:
		if c := m.Counts(); c.Requests > c.TotalExclusions {
			return ErrBusy
		}
	}
	return nil
}

// Allow takes a permit to try the target now, or says why not (errors.Is ErrRefused).
func (b *Breaker) Allow() (*Permit, error) {
	if b.isCooling() {
		return nil, ErrCooling
	}
	p := &Permit{b: b}
	var err error
	b.use(func(m *machine) { p.done, err = m.Allow() })
	switch {
	case errors.Is(err, gobreaker.ErrOpenState):
		return nil, ErrOpen
	case err != nil:
		return nil, ErrBusy
	}
	return p, nil
}

// Check says what Allow would, without taking a permit.
func (b *Breaker) Check() (err error) {
	if b.isCooling() {
		return ErrCooling
	}
	b.use(func(m *machine) { err = m.check() })
	return err
}

// Observe counts an outcome for which this process holds no permit: the report of another replica's attempt.
// Only a closed breaker listens.
func (b *Breaker) Observe(o Outcome) {
	b.use(func(m *machine) { m.count(o) })
}

// State is the state now; an open breaker whose time is over becomes half-open by being asked.
func (b *Breaker) State() (s State) {
	b.use(func(m *machine) { s = state(m.State()) })
	return s
}

// Cool keeps the target from being tried before until. Cooldowns merge by the later end: an answer without
// Retry-After must not shorten one that had it.
func (b *Breaker) Cool(until time.Time) {
	for next := b.at(until); ; {
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

// Returns is the earliest time at which Allow may give a permit again; the past means now.
func (b *Breaker) Returns() time.Time {
	at := b.cooling.Load()
	if b.State() == Open {
		at = max(at, b.openUntil.Load())
	}
	return b.born.Add(time.Duration(at))
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
// Ownership: whoever got it from Allow, who defers Release. The first Done or Release counts, later ones do not.
type Permit struct {
	b    *Breaker
	done func(error)
	used atomic.Bool
}

// Done gives the permit back with what the call came to. It does not count when the breaker has changed its state
// since Allow.
func (p *Permit) Done(o Outcome) {
	if p.used.Swap(true) {
		return
	}
	p.b.use(func(*machine) { p.done(outcomeError(o)) })
}

// Release gives back a permit whose call came to nothing that can be counted.
func (p *Permit) Release() { p.Done(Excluded) }
