package breaker

import "fmt"

// ErrForced is why nobody may try a target that is forced open.
var ErrForced = fmt.Errorf("%w: an operator keeps its breaker open", ErrRefused)

// Force is an operator's word on a breaker; its number is the value of the metric understudy_breaker_forced.
type Force int

// The forces.
const (
	ForcedClosed Force = iota - 1 // every request may try the target, and no failure opens the breaker
	Released                      // the breaker decides
	ForcedOpen                    // nobody tries the target, no probe either
)

func (f Force) String() string {
	return [...]string{"closed", "none", "open"}[f+1]
}

// Force makes f the last word, over the cooldown too, until another one comes. What is beneath goes on: an open period
// runs out, calls that had begun count. While the breaker is forced closed failures count in a row as ever, but open
// it only with the next one after its release.
func (b *Breaker) Force(f Force) { b.force.Store(int32(f)) }

// Forced is the last word, if there is one.
func (b *Breaker) Forced() Force { return Force(b.force.Load()) }

// free is a permit that nothing stands against.
func (b *Breaker) free() (p *Permit) {
	b.use(func(m *machine) { p = &Permit{b: b, m: m, gen: m.truth.Gen} })
	return p
}

// forced is the state that a force makes of a state.
func (b *Breaker) forced(s State) State {
	switch b.Forced() {
	case ForcedOpen:
		return Open
	case ForcedClosed:
		return Closed
	}
	return s
}

// count counts what a call of the closed period came to. Caller holds mu.
func (b *Breaker) count(m *machine, o Outcome) {
	if b.Forced() == ForcedClosed {
		m.note(o)
		return
	}
	m.count(o)
}
