package breaker

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestABreakerThatIsForcedOpenLetsNobodyTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New("a", Settings{Failures: 1, OpenFor: time.Minute, Probe: true}, func(Transition) {})
		b.Force(ForcedOpen)
		time.Sleep(time.Hour)
		for name, try := range map[string]func() (*Permit, error){"Allow": b.Allow, "AllowPaced": b.AllowPaced, "Trial": b.Trial} {
			if _, err := try(); !errors.Is(err, ErrForced) || !errors.Is(err, ErrRefused) {
				t.Errorf("%s() = %v, want %v", name, err, ErrForced)
			}
		}
		if got := b.State(); got != Open || b.Pace() != 0 || !b.Failing() || !b.Troubled() {
			t.Errorf("State(), Pace(), Failing(), Troubled() = %v, %v, %v, %v, want open, 0, true, true", got, b.Pace(), b.Failing(), b.Troubled())
		}
		b.Force(Released)
		if p, err := b.Allow(); err != nil || b.State() != Closed {
			t.Errorf("Allow() after the release = %v, %v, want a permit: nothing has failed", p, err)
		}
	})
}

func TestABreakerThatIsForcedClosedOpensAfterItsReleaseOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []Transition
		b := New("a", Settings{Failures: 2, OpenFor: time.Minute}, func(tr Transition) { told = append(told, tr) })
		b.Force(ForcedClosed)
		b.Cool(time.Now().Add(time.Hour))
		fail := func() {
			t.Helper()
			p, err := b.Allow()
			if err != nil {
				t.Fatalf("Allow() = %v, want a permit", err)
			}
			p.Done(Failure)
		}
		for range 10 {
			fail()
		}
		b.Observe(Tally{Gen: b.Truth().Gen, Failed: 5, Trailing: 5})
		if b.State() != Closed || len(told) > 0 || !b.Failing() || b.Pace() != 1 {
			t.Fatalf("State(), Failing(), Pace() = %v, %v, %v and %v told, want closed, true, 1 and nothing", b.State(), b.Failing(), b.Pace(), told)
		}
		time.Sleep(2 * time.Hour) // the cooldown ends
		b.Force(Released)
		fail()
		if b.State() != Open {
			t.Errorf("State() after the next failure = %v, want open", b.State())
		}
	})
}

func TestABreakerThatIsForcedClosedWhileOpenGoesOnWhereItStood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New("a", Settings{Failures: 1, OpenFor: time.Minute}, func(Transition) {})
		p, _ := b.Allow()
		p.Done(Failure)
		b.Force(ForcedClosed)
		p, err := b.Allow()
		if err != nil {
			t.Fatalf("Allow() = %v, want a permit", err)
		}
		p.Done(Failure)
		if !b.Failing() {
			t.Error("Failing() = false after a failure, want true")
		}
		b.Force(Released)
		if _, err := b.Allow(); !errors.Is(err, ErrOpen) {
			t.Errorf("Allow() after the release = %v, want %v", err, ErrOpen)
		}
	})
}
