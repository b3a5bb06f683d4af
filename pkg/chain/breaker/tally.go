package breaker

// Tally counts this process's calls of one generation in its closed state, for the other replicas.
type Tally struct {
	Gen      uint64 `json:"gen"`
	OK       int    `json:"ok"`
	Failed   int    `json:"failed"`
	Trailing int    `json:"trailing"`      // of Failed, those after the last success
	Why      string `json:"why,omitempty"` // class of the last of Failed
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

// Drain returns what has been counted since the last call. A trial is not: it is told by the truth that follows it.
func (b *Breaker) Drain() (t Tally) {
	b.use(func(m *machine) { t, b.tally = b.tally, Tally{Gen: m.truth.Gen} })
	if t.Failed > 0 {
		t.Why = b.Last()
	}
	return t
}

// Observe counts another replica's calls, of the same generation only: late news of an earlier one says nothing.
func (b *Breaker) Observe(t Tally) {
	b.use(func(m *machine) {
		if !m.isClosed(t.Gen) {
			return
		}
		if t.Why != "" {
			b.Blame(t.Why)
		}
		m.observe(t, func(o Outcome) { b.count(m, o) })
	})
}

// observe counts the successes first, so that a ratio is not reached in passing, then the failures: those before the
// last success each for itself, as they opened nothing where they happened, the trailing ones in a row.
func (m *machine) observe(t Tally, count func(Outcome)) {
	for range t.OK {
		count(Success)
	}
	for range t.Failed - t.Trailing {
		m.row = 0
		count(Failure)
	}
	if t.OK > 0 {
		m.row = 0
	}
	for range t.Trailing {
		count(Failure)
	}
}
