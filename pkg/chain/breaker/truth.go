package breaker

import "time"

// Truth is what the breakers of one target agree on across a fleet. A half-open breaker is an open one whose time is
// over, which each replica sees by itself.
type Truth struct {
	Gen    uint64    `json:"gen"` // grows with each opening and closing; of two truths the greater one holds
	Open   bool      `json:"open"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"` // end of the open period
	Streak int       `json:"streak"`
	Why    string    `json:"why"` // class of the last failure
}

// Beats says whether a fleet in which t and u are told goes by t. An opening beats a closing of the same generation,
// the later end the earlier one.
func (t Truth) Beats(u Truth) bool {
	switch {
	case t.Gen != u.Gen:
		return t.Gen > u.Gen
	case t.Open != u.Open:
		return t.Open
	}
	return t.Open && t.Until.After(u.Until)
}

// Truth is what this breaker goes by now.
func (b *Breaker) Truth() (t Truth) {
	b.use(func(m *machine) { t = b.truth(m) })
	t.Why = b.Last()
	return t
}

func (b *Breaker) truth(m *machine) Truth {
	t := Truth{Gen: m.gen, Open: m.open, Since: m.since.Round(0), Streak: m.streak}
	if m.open {
		t.Until = b.until.Round(0)
	}
	return t
}

// Follow goes by t if that beats what the breaker goes by. It reports whether it does.
func (b *Breaker) Follow(t Truth) (followed bool) {
	if t.Why != "" && b.Last() == "" {
		b.Blame(t.Why)
	}
	b.use(func(m *machine) {
		if followed = t.Beats(b.truth(m)); !followed {
			return
		}
		from, s := m.state(), m.settings
		next := machine{settings: s, gen: t.Gen, since: t.Since, streak: t.Streak, open: t.Open}
		to := Closed
		if t.Open {
			to = Open
			next.since = time.Now()
			next.openFor = time.Until(t.Until)
		} else {
			next.ramp = newRamp(s.Ramp, t.Since)
		}
		b.begin(next)
		if from != to {
			b.news.add(Transition{b.target, from, to, false})
		}
	})
	return followed
}

// Fleet says whether other replicas share this breaker: then a half-open one lets an ordinary request try only after
// Lead.
func (b *Breaker) Fleet(on bool) { b.use(func(*machine) { b.fleet = on }) }

// Lead makes the trial of generation gen this process's.
func (b *Breaker) Lead(gen uint64) { b.use(func(*machine) { b.lead = gen }) }

// Tally counts this process's calls of one generation in its closed state, for the other replicas.
type Tally struct {
	Gen      uint64 `json:"gen"`
	OK       int    `json:"ok"`
	Failed   int    `json:"failed"`
	Trailing int    `json:"trailing"` // of Failed, those after the last success
}

func (t *Tally) add(o Outcome) {
	switch o {
	case Success:
		t.OK++
		t.Trailing = 0
	case Failure:
		t.Failed++
		t.Trailing++
	}
}

// Drain returns what has been counted since the last call.
func (b *Breaker) Drain() (t Tally) {
	b.use(func(m *machine) {
		if m.open {
			b.tally = Tally{Gen: m.gen} // a trial is told by the truth that follows it
		}
		t, b.tally = b.tally, Tally{Gen: m.gen}
	})
	return t
}

// Observe counts another replica's calls, of the same generation only: late news of an earlier one says nothing.
// Failures between successes are kept apart by them, as they happened.
func (b *Breaker) Observe(t Tally) {
	b.use(func(m *machine) {
		if m.gen != t.Gen || m.open {
			return
		}
		ok := t.OK
		for range t.Failed - t.Trailing {
			m.observe(Failure)
			if ok > 0 {
				m.observe(Success)
				ok--
			}
		}
		for range ok {
			m.observe(Success)
		}
		for range t.Trailing {
			m.observe(Failure)
		}
	})
}

func (m *machine) observe(o Outcome) {
	if m.moved {
		return // it has tripped
	}
	m.ramp.result(o, time.Now())
	m.count(o)
}
