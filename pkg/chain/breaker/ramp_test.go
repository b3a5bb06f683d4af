package breaker

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// ramped is a breaker that has just closed.
func ramped(t *testing.T, ramp Ramp) *rig {
	r := newRig(t, Settings{Failures: 100, OpenFor: time.Minute, Ramp: ramp})
	r.play("w")
	for range r.machine.settings.Failures {
		r.play("f")
	}
	r.play("ws")
	if got := r.State(); got != Closed {
		t.Fatalf("State() = %v, want %v", got, Closed)
	}
	return r
}

// passed is how many of n requests are let through now.
func passed(b *Breaker, n int, o Outcome) (count int) {
	for range n {
		if p, err := b.Allow(); err == nil {
			count++
			p.Done(o)
		}
	}
	return count
}

func TestHowTrafficComesBack(t *testing.T) {
	tenth := Ramp{Interval: 10 * time.Second, Share: 0.1}
	rows := []struct {
		name   string
		ramp   Ramp
		script string // i is an interval, f a failure
		share  float64
		passed int // of 1000
	}{
		{"more than the share passes at first", tenth, "", 0.1, 100},
		{"a clean interval does not double the share", tenth, "i", 0.2, 200},
		{"clean intervals do not add up", tenth, "iii", 0.8, 800},
		{"a ramp never ends", tenth, "iiii", 1, 1000},
		{"a failure does not halve the share", tenth, "iif", 0.2, 200},
		{"a failure in the first interval does not halve the share", tenth, "f", 0.05, 50},
		{"failures in the first interval close the ramp for good", tenth, "ffffffff", 0.05, 50},
		{"the share does not grow again after a failure", tenth, "iifi", 0.4, 400},
		{"a failure after the ramp holds traffic back", tenth, "iiiif", 1, 1000},
		{"without a ramp traffic is held back", Ramp{}, "", 1, 1000},
		{"a ramp without a share never lets anything through", Ramp{Interval: time.Second}, "", 1, 1000},
		{"a share of all is held back", Ramp{Interval: time.Second, Share: 1}, "", 1, 1000},
		{"a share of three tenths exceeds all", Ramp{Interval: time.Second, Share: 0.3}, "ii", 1, 1000},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := ramped(t, row.ramp)
				for _, c := range row.script {
					if c == 'i' {
						time.Sleep(row.ramp.Interval)
					} else {
						r.Observe(Tally{Gen: r.Truth().Gen, Failed: 1, Trailing: 1})
					}
				}
				if got := r.Share(); math.Abs(got-row.share) > 1e-9 {
					t.Errorf("Share() after %q = %v, want %v", row.script, got, row.share)
				}
				if got := passed(r.Breaker, 1000, Success); got != row.passed {
					t.Errorf("%d of 1000 requests pass after %q, want %d", got, row.script, row.passed)
				}
			})
		})
	}
}

func TestAFailureBeginsAnIntervalOfTheRampAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := ramped(t, Ramp{Interval: 10 * time.Second, Share: 0.1})
		time.Sleep(19 * time.Second)
		r.Observe(Tally{Gen: r.Truth().Gen, Failed: 1, Trailing: 1})
		time.Sleep(10*time.Second - 1)
		if got := r.Share(); got != 0.1 {
			t.Errorf("Share() just before an interval has passed since the failure = %v, want 0.1", got)
		}
		if time.Sleep(time.Nanosecond); r.Share() != 0.2 {
			t.Errorf("Share() when an interval has passed since the failure = %v, want 0.2", r.Share())
		}
	})
}

func TestCheckSaysWhatTheRampWillDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := ramped(t, Ramp{Interval: 10 * time.Second, Share: 0.3})
		for i := range 100 {
			want := r.Check()
			if again := r.Check(); again != want {
				t.Fatalf("Check() twice = %v, %v, want the same", want, again)
			}
			if _, err := r.Allow(); err != want {
				t.Fatalf("Allow() number %d = %v, want %v as Check said", i, err, want)
			}
		}
	})
}

func TestReloadsChangeTheRamp(t *testing.T) {
	tenth := Ramp{Interval: 10 * time.Second, Share: 0.1}
	rows := []struct {
		name   string
		wait   time.Duration // before the reload
		to     Ramp
		after  time.Duration
		shares [2]float64 // after the reload, and after the time
	}{
		{"a reload without a ramp goes on holding traffic back", 0, Ramp{}, 0, [2]float64{1, 1}},
		{"a reload begins a ramp anew that was half done", 20 * time.Second, Ramp{time.Minute, 0.1}, 59 * time.Second, [2]float64{0.4, 0.4}},
		{"a reload begins a ramp that was over", time.Hour, Ramp{time.Minute, 0.1}, 0, [2]float64{1, 1}},
		{"a shorter interval does not hold", 5 * time.Second, Ramp{6 * time.Second, 0.1}, time.Second, [2]float64{0.1, 0.2}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := ramped(t, tenth)
				time.Sleep(row.wait)
				s := r.machine.settings
				s.Ramp = row.to
				r.Renew(s)
				if got := r.Share(); got != row.shares[0] {
					t.Errorf("Share() after the reload = %v, want %v", got, row.shares[0])
				}
				time.Sleep(row.after)
				if got := r.Share(); got != row.shares[1] {
					t.Errorf("Share() %v later = %v, want %v", row.after, got, row.shares[1])
				}
			})
		})
	}
}

// interval is what passed in one interval of a ramp.
type interval struct{ share, seen, passed float64 }

// TestNeverMoreThanTheSharePasses tries arrival patterns and failures. An interval is one in which the share stayed.
func TestNeverMoreThanTheSharePasses(t *testing.T) {
	synctest.Test(t, func(bubble *testing.T) {
		rapid.Check(struct{ rapid.TB }{bubble}, func(t *rapid.T) {
			ramp := Ramp{10 * time.Second, rapid.Float64Range(0.01, 0.99).Draw(t, "share")}
			r := ramped(bubble, ramp)
			now := interval{share: ramp.Share}
			closed := time.Now()
			for range rapid.IntRange(1, 60).Draw(t, "bursts") {
				time.Sleep(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
				if share := r.Share(); share != now.share {
					now = interval{share: share}
				}
				n := rapid.IntRange(1, 50).Draw(t, "requests")
				now.seen += float64(n)
				now.passed += float64(passed(r.Breaker, n, Success))
				if now.passed > now.share*now.seen*(1+1e-12) {
					t.Fatalf("%v of %v requests passed with a share of %v", now.passed, now.seen, now.share)
				}
				if time.Since(closed) < ramp.Interval && now.share > ramp.Share {
					t.Fatalf("share is %v in the first interval, want at most %v", now.share, ramp.Share)
				}
				if now.share < 1 && rapid.IntRange(0, 9).Draw(t, "fails") == 0 {
					r.Observe(Tally{Gen: r.Truth().Gen, Failed: 1, Trailing: 1})
					now = interval{share: r.Share()} // its interval begins anew
				}
			}
		})
	})
}

// TestAFlappingProviderGetsNoMoreThanTheShare is down for five seconds and up for five, ten times, while a request
// comes each 10 ms and its answer takes 30 ms.
func TestAFlappingProviderGetsNoMoreThanTheShare(t *testing.T) {
	for name, probe := range map[string]bool{"tried by a request": false, "tried by a probe": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { flap(t, probe) })
		})
	}
}

func flap(t *testing.T, probe bool) {
	r := newRig(t, Settings{Failures: 3, OpenFor: time.Second, MaxOpenFor: 4 * time.Second, Probe: probe, Ramp: Ramp{10 * time.Second, 0.1}})
	var first interval // since the last closing, as long as its first interval lasts
	var closed time.Time
	closings := 0
	begin := time.Now()
	for time.Since(begin) < 100*time.Second {
		outcome := Failure
		if time.Since(begin)%(10*time.Second) >= 5*time.Second {
			outcome = Success
		}
		time.Sleep(10 * time.Millisecond)
		was := r.State()
		p, err := r.Allow()
		if err != nil && probe {
			p, _ = r.Trial()
		}
		if err == nil && was == Closed {
			first.passed++
		}
		if p != nil {
			answer(p, outcome)
		}
		if first.seen++; was == HalfOpen && r.State() == Closed {
			first, closed = interval{}, time.Now()
			closings++
		}
		if !closed.IsZero() && time.Since(closed) < 10*time.Second && first.passed > 0.1*first.seen {
			t.Fatalf("%v of %v requests passed %v after closing, want at most a tenth", first.passed, first.seen, time.Since(closed))
		}
	}
	if closings < 5 {
		t.Errorf("closed %d times, want it to flap", closings)
	}
}

func answer(p *Permit, o Outcome) {
	time.Sleep(30 * time.Millisecond)
	p.Done(o)
}
