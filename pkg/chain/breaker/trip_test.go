package breaker

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatOpensABreaker(t *testing.T) {
	row := Settings{Failures: 5, OpenFor: time.Minute}
	ratio := Settings{Failures: 100, Ratio: 0.5, MinCalls: 4, Window: 10 * time.Minute, OpenFor: time.Minute}
	both := Settings{Failures: 5, Ratio: 0.9, MinCalls: 100, Window: time.Minute, OpenFor: time.Minute}
	ever := Settings{Failures: 100, Ratio: 0.5, MinCalls: 4, OpenFor: time.Minute}
	rows := []struct {
		name   string
		s      Settings
		script string
		want   State
	}{
		{"half of the calls fail and a ratio of a half does not open it", ratio, "sfsf", Open},
		{"a ratio opens it before there are enough calls", ratio, "fsf", Closed},
		{"a ratio opens it although more succeed", ratio, "sssffsf", Closed},
		{"a ratio takes callers' faults for calls", ratio, "xxxxxfff", Closed},
		{"a success opens it by the ratio", ratio, "fffs", Closed},
		{"calls that have left the window still count", ratio, "sssswwwwwwwwwwffff", Open},
		{"failures that have left the window open it", ratio, "ffwwwwwwwwwwfss", Closed},
		{"failures are forgotten at the end of a window that does not roll", ratio, "wwwwwwwwwffwwff", Open},
		{"without a window nothing counts", ever, "sswwwwwwwwwwff", Open},
		{"a trickle of failures slower than the window does not open it", both, "fwfwfwfwf", Open},
		{"calls that take longer than the window do not count", both, "<<<<<wwwFFFFF", Open},
		{"failures a day apart are forgotten", row, "fwwwwwwfwwwwwwfwwwwwwfwwwwwwf", Open},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, row.s)
				r.play(row.script)
				if got := r.State(); got != row.want {
					t.Errorf("State() after %s = %v, want %v", row.script, got, row.want)
				}
			})
		})
	}
}

// fails lets each breaker trial come to a failure as soon as it may, n times, and returns how long it was open
// before each.
func fails(r *rig, n int) (open []time.Duration) {
	for range n {
		d := time.Until(r.Returns())
		open = append(open, d)
		time.Sleep(d)
		r.play("f")
	}
	return open
}

func TestHowLongABreakerStaysOpen(t *testing.T) {
	const m = time.Minute
	doubling := Settings{Failures: 3, OpenFor: m, MaxOpenFor: 5 * m}
	fixed := Settings{Failures: 3, OpenFor: m}
	rows := []struct {
		name, script string
		s            Settings
		want         []time.Duration
	}{
		{"failed trials do not double the open period, or beyond its cap", "fff", doubling, []time.Duration{m, 2 * m, 4 * m, 5 * m, 5 * m}},
		{"without a cap the open period grows", "fff", fixed, []time.Duration{m, m, m}},
		{"closing for a moment begins the doubling anew", "fffwsfff", doubling, []time.Duration{2 * m, 4 * m, 5 * m}},
		{"closing for just less than the quiet time begins it anew", "fffwswwwwmfff", doubling, []time.Duration{2 * m}},
		{"a quiet time does not begin it anew", "fffwswwwwmifff", doubling, []time.Duration{m, 2 * m}},
		{"a failure in the quiet time, which opened nothing, prolongs it", "fffwswwwfswwfff", doubling, []time.Duration{m, 2 * m}},
		{"time spent open is taken for quiet", "fffwwwwwwwwwwf", doubling, []time.Duration{2 * m, 4 * m}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, row.s)
				r.play(row.script)
				for i, got := range fails(r, len(row.want)) {
					if got != row.want[i] {
						t.Errorf("open period %d after %s = %v, want %v", i+1, row.script, got, row.want[i])
					}
				}
			})
		})
	}
}

func TestWhetherATargetFails(t *testing.T) {
	s := usual
	s.Ramp = Ramp{time.Minute, 0.5}
	rows := []struct {
		name, script string
		want         bool
	}{
		{"a target that has not been tried fails", "", false},
		{"a target whose last call failed is well", "sf", true},
		{"a failure before a success is still held against it", "fs", false},
		{"a caller's fault is held against it", "x", false},
		{"an open target is well", "fff", true},
		{"a half-open target is well", "fffw", true},
		{"a ramping target is well", "fffws", true},
		{"a target after its ramp fails", "fffwsw", false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, s)
				r.play(row.script)
				if got := r.Failing(); got != row.want {
					t.Errorf("Failing() after %q = %v, want %v", row.script, got, row.want)
				}
			})
		})
	}
}
