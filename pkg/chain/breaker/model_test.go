package breaker

import "time"

// model is what a breaker should be, written down naively.
type model struct {
	s       Settings
	state   State
	truth   Truth
	since   time.Time // it has been closed
	until   time.Time // it is open
	row     int       // failures since the last success
	calls   []call    // of the closed state
	clock   time.Time // what the buckets of calls count from
	share   float64
	step    time.Time
	seen    int
	passed  int
	trial   bool // is out
	life    int  // counts the half-open times and what makes a trial void: its result counts only in its own
	fleet   bool
	lead    uint64
	tally   Tally
	cooling time.Time
	why     string
	force   Force
	told    []Transition
}

// call is one that counts for a ratio.
type call struct {
	bucket int64
	failed bool
}

// tell is a transition by this process or by the fleet.
func (m *model) tell(to State, own bool) {
	if m.state != to {
		m.told = append(m.told, Transition{"a", m.state, to, own})
	}
	m.state = to
}

// begin forgets what counts only in one generation.
func (m *model) begin() {
	now := time.Now()
	m.row, m.calls, m.trial, m.share, m.clock = 0, nil, false, 1, now
	m.life++
	m.tally = Tally{Gen: m.truth.Gen}
}

func (m *model) open() {
	now, streak := time.Now(), m.truth.Streak+1
	if m.state == Closed && now.Sub(m.since) >= m.s.MaxOpenFor {
		streak = 1
	}
	d := m.s.OpenFor
	for range streak - 1 {
		d = min(2*d, max(m.s.MaxOpenFor, m.s.OpenFor))
	}
	m.until = now.Add(d)
	m.truth = Truth{Gen: m.truth.Gen + 1, Open: true, Since: now.UTC().Round(0), Until: m.until.UTC().Round(0), Streak: streak, Why: m.why}
	m.tell(Open, true)
	m.begin()
}

func (m *model) close() {
	m.truth = Truth{Gen: m.truth.Gen + 1, Since: time.Now().UTC().Round(0), Streak: m.truth.Streak, Why: m.truth.Why}
	m.tell(Closed, true)
	m.begin()
	m.closedSince(time.Now())
}

func (m *model) closedSince(t time.Time) {
	m.since, m.step, m.share, m.seen, m.passed = t, t, m.s.Ramp.Share, 0, 0
	if m.s.Ramp.Interval == 0 {
		m.share = 1
	}
}

// pass does what time alone does.
func (m *model) pass() {
	if now := time.Now(); m.state == Open && !now.Before(m.until) {
		m.tell(HalfOpen, true)
		m.trial = false
		m.life++
	}
	for m.state == Closed && m.share < 1 && time.Since(m.step) >= m.s.Ramp.Interval {
		m.stage(2*m.share, m.step.Add(m.s.Ramp.Interval))
	}
}

func (m *model) stage(share float64, from time.Time) {
	m.share, m.step, m.seen, m.passed = min(share, 1), from, 0, 0
}

// allow is what Allow says, with its effects when take.
func (m *model) allow(take bool) error {
	switch {
	case m.force == ForcedOpen:
		return ErrForced
	case m.force == ForcedClosed:
		return nil
	case time.Now().Before(m.cooling):
		return ErrCooling
	case m.state == Open:
		return ErrOpen
	case m.state == HalfOpen:
		if m.trial || m.s.Probe || m.fleet && m.lead != m.truth.Gen {
			return ErrBusy
		}
		m.trial = take
		return nil
	case m.share == 1:
		return nil
	}
	ok := float64(m.passed+1) <= m.share*float64(m.seen+1)
	if take {
		m.seen++
	}
	if !ok {
		return ErrRamping
	}
	if take {
		m.passed++
	}
	return nil
}

// tryOut is what Trial says.
func (m *model) tryOut() error {
	switch {
	case m.force == ForcedOpen:
		return ErrForced
	case m.force == ForcedClosed:
		return ErrBusy
	case m.state == Open:
		return ErrOpen
	case m.state == Closed || m.trial:
		return ErrBusy
	}
	m.trial = true
	return nil
}

// tried takes the result of the trial.
func (m *model) tried(o Outcome) {
	switch o {
	case Excluded:
		m.trial = false
	case Success:
		m.close()
	case Failure:
		m.open()
	}
}

// shown is the state that others see, and shared the share of the traffic.
func (m *model) shown() (s State, shared float64) {
	switch {
	case m.force == ForcedOpen:
		return Open, 0
	case m.force == ForcedClosed:
		return Closed, 1
	case m.state == Closed:
		return Closed, m.share
	}
	return m.state, 0
}

// count takes a result in the closed state, once more than it says when it has tripped.
func (m *model) count(o Outcome) {
	if m.state != Closed || o == Excluded {
		return
	}
	if m.row++; o == Success {
		m.row = 0
	}
	if m.force == ForcedClosed {
		return
	}
	if o == Failure && m.share < 1 {
		m.stage(max(m.share, m.s.Ramp.Share)/2, time.Now())
	}
	m.calls = append(m.calls, call{m.bucket(), o == Failure})
	if o == Failure && (m.row >= m.s.Failures || m.tooMany()) {
		m.open()
	}
}

func (m *model) bucket() int64 { return int64(time.Since(m.clock) / (m.s.Window / buckets)) }

// tooMany says whether the ratio is reached.
func (m *model) tooMany() bool {
	calls, failed := 0, 0
	for _, c := range m.calls {
		if c.bucket <= m.bucket()-buckets {
			continue
		}
		calls++
		if c.failed {
			failed++
		}
	}
	return m.s.Ratio > 0 && calls >= m.s.MinCalls && float64(failed) >= m.s.Ratio*float64(calls)
}

func (m *model) observe(t Tally) {
	if m.state != Closed || t.Gen != m.truth.Gen {
		return
	}
	for range t.OK {
		m.count(Success)
	}
	for range t.Failed - t.Trailing {
		if m.row = 0; m.s.Failures > 1 || m.state == Closed {
			m.count(Failure)
		}
	}
	if t.OK > 0 {
		m.row = 0
	}
	for range t.Trailing {
		m.count(Failure)
	}
}

func (m *model) follow(t Truth) bool {
	u := m.truth
	switch later := t.Until.Sub(u.Until); {
	case t.Gen < u.Gen, t.Gen == u.Gen && !t.Open && u.Open:
		return false
	case t.Gen == u.Gen && t.Open == u.Open && (later < 0 || later == 0 && !t.breaksTie(u)):
		return false
	}
	m.truth = t
	if t.Why != "" {
		m.why = t.Why
	}
	if t.Gen == u.Gen && t.Open == u.Open && !(t.Open && t.Until.After(time.Now())) {
		return true // nothing to wait for
	}
	tally := m.tally
	from := m.state
	m.tell(t.state(), false)
	if m.begin(); t.Gen == u.Gen {
		m.tally = tally
	}
	now := time.Now()
	if t.Open {
		// An end in the past is an end in two nanoseconds.
		m.until = now.Add(max(2, min(time.Until(t.Until), max(m.s.OpenFor, m.s.MaxOpenFor))))
		return true
	}
	m.closedSince(now)
	if ago := now.Add(-now.Sub(t.Since)); from == Closed && ago.Before(now) {
		m.closedSince(ago)
	}
	return true
}

// breaksTie orders truths that differ in nothing that matters.
func (t Truth) breaksTie(u Truth) bool {
	if !t.Since.Equal(u.Since) {
		return t.Since.Before(u.Since)
	}
	return t.Streak > u.Streak || t.Streak == u.Streak && t.Why > u.Why
}

func (m *model) renew(s Settings) {
	if s == m.s {
		return
	}
	now := time.Now()
	m.s = s
	m.row = min(m.row, s.Failures-1)
	m.calls, m.clock = nil, now
	if s.Ramp.Interval == 0 {
		m.share = 1
	}
	if m.state == Closed {
		return
	}
	m.life++
	m.trial = false
	m.tell(Open, true)
	m.until = now.Add(s.OpenFor)
	m.truth.Until = m.until.UTC().Round(0)
	m.truth.Gen++
	m.tally = Tally{Gen: m.truth.Gen}
}
