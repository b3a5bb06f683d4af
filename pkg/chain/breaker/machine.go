package breaker

import (
	"errors"
	"time"

	"github.com/sony/gobreaker/v2"
)

// buckets divide the rolling window of Settings.Ratio.
const buckets = 10

// machine is one generation of a breaker: a closed period, or an open one with the half-open time after it. A new
// generation has a new gobreaker, so that results of calls begun before it change nothing.
type machine struct {
	*gobreaker.TwoStepCircuitBreaker[struct{}]
	settings Settings
	gen      uint64
	since    time.Time
	streak   int  // openings in a row, this one included
	open     bool // begins open, for openFor
	openFor  time.Duration
	ramp     *ramp // nil: all traffic

	// What gobreaker has just done, until settle looks.
	moved    bool
	from, to State
}

// newMachine gives m its gobreaker, opened where m begins open.
func (b *Breaker) newMachine(m machine) *machine {
	s := m.settings
	m.TwoStepCircuitBreaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:         b.target,
		MaxRequests:  1,
		Interval:     s.Window,
		BucketPeriod: s.Window / buckets,
		// gobreaker is still open at the very end of Timeout, and takes 0 for 60 s.
		Timeout:     max(m.openFor-1, 1),
		ReadyToTrip: s.trips,
		// "OnStateChange is called whenever the state of the CircuitBreaker changes", under gobreaker's lock.
		OnStateChange: func(_ string, from, to gobreaker.State) { m.moved, m.from, m.to = true, stateOf(from), stateOf(to) },
		IsSuccessful:  func(err error) bool { return errors.Is(err, outcomeError(Success)) },
		IsExcluded:    func(err error) bool { return errors.Is(err, outcomeError(Excluded)) },
	})
	if m.open {
		m.fail(s.Failures)
		m.moved = false
	}
	return &m
}

func (s Settings) trips(c gobreaker.Counts) bool {
	if int(c.ConsecutiveFailures) >= s.Failures {
		return true
	}
	calls := c.TotalSuccesses + c.TotalFailures
	return s.Ratio > 0 && int(calls) >= s.MinCalls && float64(c.TotalFailures) >= s.Ratio*float64(calls)
}

func stateOf(s gobreaker.State) State {
	switch s {
	case gobreaker.StateOpen:
		return Open
	case gobreaker.StateHalfOpen:
		return HalfOpen
	default:
		return Closed
	}
}

// state is the state now. Asking moves open to half-open when its time is over.
func (m *machine) state() State { return stateOf(m.State()) }

// check says what gobreaker's Allow would.
func (m *machine) check() error {
	switch m.state() {
	case Open:
		return ErrOpen
	case HalfOpen:
		if c := m.Counts(); c.Requests > c.TotalExclusions {
			return ErrBusy
		}
	}
	return nil
}

// count counts an outcome of a call that took no permit.
func (m *machine) count(o Outcome) {
	if done, err := m.Allow(); err == nil {
		done(outcomeError(o))
	}
}

// fail counts n failures in a row.
func (m *machine) fail(n int) {
	for range n {
		m.count(Failure)
	}
}

func (m *machine) share(now time.Time) float64 {
	switch {
	case m.state() != Closed:
		return 0
	case m.ramp == nil:
		return 1
	}
	m.ramp.grow(now)
	return m.ramp.share
}
