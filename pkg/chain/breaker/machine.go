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
//
// Times are by this process's monotonic clock; those of the truth are for other processes.
type machine struct {
	*gobreaker.TwoStepCircuitBreaker[struct{}]
	settings Settings
	truth    Truth
	since    time.Time // beginning of a closed period
	until    time.Time // end of an open one
	ramp     *ramp     // nil: all traffic

	// row counts the failures since the last success. gobreaker's own count forgets those that leave its window,
	// so that a slow trickle of nothing but failures would never open it.
	row    int
	failed time.Time // when the last of them was counted

	// What gobreaker has just done, until settle looks.
	moved    bool
	from, to State
}

// start gives m its gobreaker, opened where m begins open.
func (m machine) start(target string) *machine {
	s := gobreaker.Settings{
		Name:        target,
		MaxRequests: 1,
		// gobreaker is still open at the very end of Timeout, and takes 0 for 60 s.
		Timeout:     max(time.Until(m.until)-1, 1),
		ReadyToTrip: m.trips,
		// "OnStateChange is called whenever the state of the CircuitBreaker changes", under gobreaker's lock.
		OnStateChange: func(_ string, from, to gobreaker.State) { m.moved, m.from, m.to = true, stateOf(from), stateOf(to) },
		IsSuccessful:  func(err error) bool { return errors.Is(err, outcomeError(Success)) },
		IsExcluded:    func(err error) bool { return errors.Is(err, outcomeError(Excluded)) },
	}
	if m.settings.Ratio > 0 {
		s.Interval = m.settings.Window
		s.BucketPeriod = m.settings.Window / buckets
	}
	m.TwoStepCircuitBreaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](s)
	if m.truth.Open {
		m.tell(Failure)
		m.moved = false
	}
	return &m
}

// trips is called by gobreaker after each failure in its closed state.
func (m *machine) trips(c gobreaker.Counts) bool {
	s := m.settings
	if m.truth.Open || m.row >= s.Failures {
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

// state is the state now. Asking moves open to half-open when its time is over; a closed period ends by count alone.
func (m *machine) state() State {
	if !m.truth.Open {
		return Closed
	}
	return stateOf(m.State())
}

func (m *machine) isClosed(gen uint64) bool { return !m.truth.Open && m.truth.Gen == gen }

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

// count counts what a call in the closed period came to.
func (m *machine) count(o Outcome) {
	if o == Excluded {
		return
	}
	m.note(o)
	if o == Failure {
		m.ramp.failed()
	}
	m.tell(o)
}

// note keeps the failures in a row.
func (m *machine) note(o Outcome) {
	switch o {
	case Success:
		m.row = 0
	case Failure:
		m.row++
		m.failed = time.Now()
	}
}

// tell tells gobreaker of a call as if it had just begun: gobreaker puts a result into the bucket in which its call
// began, and so would ignore every call that took longer than the window, the timeouts among them.
func (m *machine) tell(o Outcome) {
	if done, err := m.Allow(); err == nil {
		done(outcomeError(o))
	}
}

// opened is the generation that follows m when it opens now.
func (m *machine) opened(why string) machine {
	now, streak := time.Now(), m.truth.Streak+1
	if !m.truth.Open && now.Sub(m.since) >= m.settings.MaxOpenFor {
		streak = 1 // it was quiet for long enough
	}
	until := now.Add(m.settings.period(streak))
	return machine{
		settings: m.settings,
		truth:    Truth{Gen: m.truth.Gen + 1, Open: true, Since: told(now), Until: told(until), Streak: streak, Why: why},
		until:    until,
	}
}

// closed is the generation that follows m when it closes now.
func (m *machine) closed() machine {
	now := time.Now()
	return machine{
		settings: m.settings,
		truth:    Truth{Gen: m.truth.Gen + 1, Since: told(now), Streak: m.truth.Streak, Why: m.truth.Why},
		since:    now,
		ramp:     newRamp(m.settings.Ramp, now),
	}
}

// renewed is m with other settings.
func (m *machine) renewed(s Settings) machine {
	next := machine{settings: s, truth: m.truth, since: m.since, ramp: m.ramp.renewed(s.Ramp), row: min(m.row, s.Failures-1), failed: m.failed}
	if m.truth.Open {
		next.until = time.Now().Add(s.OpenFor)
		next.truth.Until = told(next.until)
		next.truth.Gen++ // or a fleet would go back to the end that was told, where that is later
	}
	return next
}

// followed is the generation that follows m, which is in state from, when others tell t.
func (m *machine) followed(t Truth, from State) machine {
	now := time.Now()
	next := machine{settings: m.settings, truth: t, since: now}
	if t.Open {
		// Another clock may be ahead of this one.
		next.until = now.Add(min(time.Until(t.Until), m.settings.longest()))
		return next
	}
	// One that has kept traffic away begins its ramp where it stands, whatever the clocks say.
	if from == Closed {
		next.since = now.Add(-max(0, now.Sub(t.Since)))
	}
	next.ramp = newRamp(m.settings.Ramp, next.since)
	return next
}

// told is t for other processes.
func told(t time.Time) time.Time { return t.Round(0).UTC() }
