package breaker

import (
	"cmp"
	"strings"
	"time"
)

// Truth is what the breakers of one target agree on across a fleet. A half-open breaker is an open one whose time is
// over, which each replica sees by itself. The zero Truth is that of a breaker that has never opened.
type Truth struct {
	Gen    uint64    `json:"gen"` // grows with each opening and closing; of two truths the greater one holds
	Open   bool      `json:"open"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`  // end of the open period
	Streak int       `json:"streak"` // openings without a quiet time between
	Why    string    `json:"why"`    // class of the failure that opened it
}

// Beats says whether a fleet in which t and u are told goes by t. An opening beats a closing of the same generation,
// the later end the earlier one. The rest only makes it one order, so that a fleet ends up with one truth.
func (t Truth) Beats(u Truth) bool {
	order := cmp.Compare(t.Gen, u.Gen)
	if order == 0 && t.Open != u.Open {
		return t.Open
	}
	return cmp.Or(order, t.Until.Compare(u.Until), u.Since.Compare(t.Since),
		cmp.Compare(t.Streak, u.Streak), strings.Compare(t.Why, u.Why)) > 0
}

// refines says whether t tells of the same period as u, with nothing left to wait for: then neither counts nor a
// trial that is out are to be lost for it.
func (t Truth) refines(u Truth) bool {
	return t.Gen == u.Gen && t.Open == u.Open && (!t.Open || time.Until(t.Until) <= 0)
}

// Truth is what this breaker goes by now.
func (b *Breaker) Truth() (t Truth) {
	b.use(func(m *machine) { t = m.truth })
	return t
}

// Follow goes by t if that beats what the breaker goes by. It reports whether it does.
func (b *Breaker) Follow(t Truth) (followed bool) {
	b.use(func(m *machine) {
		from := b.settled()
		if followed = t.Beats(m.truth); !followed {
			return
		}
		if t.Why != "" {
			b.Blame(t.Why)
		}
		if t.refines(m.truth) {
			m.truth = t
			return
		}
		b.begin(m.followed(t, from))
		if to := t.state(); from != to {
			b.news.add(Transition{b.target, from, to, false})
		}
	})
	return followed
}

// state is the state in which a breaker begins to go by t.
func (t Truth) state() State {
	if t.Open {
		return Open
	}
	return Closed
}

// Fleet says whether other replicas share this breaker: then a half-open one lets an ordinary request try only after
// Lead.
func (b *Breaker) Fleet(on bool) { b.use(func(*machine) { b.fleet = on }) }

// Asked says whether an ordinary request has asked here for the trial of generation gen.
func (b *Breaker) Asked(gen uint64) (asked bool) {
	b.use(func(*machine) { asked = b.asked == gen })
	return asked
}

// Vain is how many trials of the half-open time came to nothing here.
func (b *Breaker) Vain() (n int) {
	b.use(func(m *machine) {
		if m.state() == HalfOpen {
			n = int(m.Counts().TotalExclusions)
		}
	})
	return n
}

// Lead makes the trial of generation gen this process's.
func (b *Breaker) Lead(gen uint64) { b.use(func(*machine) { b.lead = gen }) }
