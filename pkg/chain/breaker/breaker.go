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
// Concurrency: every method may be called by any goroutine; listen is called without a lock held.
type Breaker struct {
	target   string
	settings Settings
	cb       *gobreaker.TwoStepCircuitBreaker[struct{}]
	listen   func(Transition)

	cooling   atomic.Int64 // Unix nanoseconds until which the target cools down
	openUntil atomic.Int64 // Unix nanoseconds, of the latest opening

	last atomic.Pointer[string] // why the target failed last, for people

	dirty atomic.Bool // pending is not empty
	mu    sync.Mutex  // guards pending
	// pending holds what gobreaker said under its own lock until publish can act on it.
	pending []Transition
}

// New makes a closed breaker. listen hears each transition once, in order, after the call that caused it.
func New(target string, s Settings, listen func(Transition)) *Breaker {
	b := &Breaker{target: target, settings: s, listen: listen}
	b.cb = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        target,
		MaxRequests: 1,
		Timeout:     s.OpenFor,
		ReadyToTrip: func(c gobreaker.Counts) bool { return int(c.ConsecutiveFailures) >= s.Failures },
		// gobreaker: "OnStateChange is called whenever the state of the CircuitBreaker changes", under its lock.
		OnStateChange: func(_ string, from, to gobreaker.State) { b.note(state(from), state(to)) },
		IsSuccessful:  func(err error) bool { return errors.Is(err, outcomeError(Success)) },
		IsExcluded:    func(err error) bool { return errors.Is(err, outcomeError(Excluded)) },
	})
	return b
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

func (b *Breaker) note(from, to State) {
	if to == Open {
		b.openUntil.Store(time.Now().Add(b.settings.OpenFor).UnixNano())
	}
	b.mu.Lock()
	b.pending = append(b.pending, Transition{b.target, from, to})
	b.mu.Unlock()
	b.dirty.Store(true)
}

// publish tells listen what note wrote down. It runs after every call into gobreaker, outside its lock.
func (b *Breaker) publish() {
	if !b.dirty.Swap(false) {
		return
	}
	b.mu.Lock()
	pending := b.pending
	b.pending = nil
	b.mu.Unlock()
	for _, t := range pending {
		b.listen(t)
	}
}

// Renew gives the breaker that replaces b after a reload: b itself when the settings are the same; otherwise
// a new one that is open if b was, and keeps the cooldown.
func (b *Breaker) Renew(s Settings) *Breaker {
	if s == b.settings {
		return b
	}
	next := New(b.target, s, b.listen)
	next.Cool(time.Unix(0, b.cooling.Load()))
	if b.State() != Closed {
		next.trip()
	}
	return next
}

func (b *Breaker) trip() {
	for range b.settings.Failures {
		b.Observe(Failure)
	}
}

// Allow takes a permit to try the target now, or says why not (errors.Is ErrRefused).
func (b *Breaker) Allow() (*Permit, error) {
	if time.Now().UnixNano() < b.cooling.Load() {
		return nil, ErrCooling
	}
	done, err := b.cb.Allow()
	b.publish()
	switch {
	case errors.Is(err, gobreaker.ErrOpenState):
		return nil, ErrOpen
	case err != nil:
		return nil, ErrBusy
	}
	return &Permit{b: b, done: done}, nil
}

// Check says what Allow would, without taking a permit.
func (b *Breaker) Check() error {
	if time.Now().UnixNano() < b.cooling.Load() {
		return ErrCooling
	}
	switch b.State() {
	case Open:
		return ErrOpen
	case HalfOpen:
		if c := b.cb.Counts(); c.Requests > c.TotalExclusions {
			return ErrBusy
		}
	}
	return nil
}

// Observe counts an outcome for which this process holds no permit: the report of another replica's attempt.
// Only a closed breaker listens: a trial's result belongs to its permit.
func (b *Breaker) Observe(o Outcome) {
	if b.State() != Closed {
		return
	}
	if done, err := b.cb.Allow(); err == nil {
		done(outcomeError(o))
	}
	b.publish()
}

// State is the state now; an open breaker whose time is over becomes half-open by being asked.
func (b *Breaker) State() State {
	s := state(b.cb.State())
	b.publish()
	return s
}

// Cool keeps the target from being tried before until. Cooldowns merge by the later end: an answer without
// Retry-After must not shorten one that had it.
func (b *Breaker) Cool(until time.Time) {
	for next := until.UnixNano(); ; {
		now := b.cooling.Load()
		if next <= now || b.cooling.CompareAndSwap(now, next) {
			return
		}
	}
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

// Cooling is the end of the cooldown; it may lie in the past.
func (b *Breaker) Cooling() time.Time { return time.Unix(0, b.cooling.Load()) }

// Returns is the earliest time at which Allow may give a permit again; the past means now.
func (b *Breaker) Returns() time.Time {
	at := b.cooling.Load()
	if b.State() == Open {
		at = max(at, b.openUntil.Load())
	}
	return time.Unix(0, at)
}

// Permit is the right to try a target once.
//
// Ownership: whoever got it from Allow, who defers Release. The first Done or Release counts, later ones do not.
type Permit struct {
	b    *Breaker
	done func(error)
	used atomic.Bool
}

// Done gives the permit back with what the call came to.
func (p *Permit) Done(o Outcome) {
	if p.used.Swap(true) {
		return
	}
	p.done(outcomeError(o))
	p.b.publish()
}

// Release gives back a permit whose call came to nothing that can be counted.
func (p *Permit) Release() { p.Done(Excluded) }
