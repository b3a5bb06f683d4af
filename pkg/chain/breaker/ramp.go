package breaker

import "time"

// Ramp is how traffic comes back after a breaker has closed: Share of it in the first Interval, twice as much after
// each interval without a failure. A failure halves the share and begins its interval anew, so that a provider that
// is only half well gets half the traffic, not all of it in turns. Zero: all traffic at once.
type Ramp struct {
	Interval time.Duration
	Share    float64 // more than 0, at most 1
}

// ramp is a running Ramp. Its methods are called with the breaker's lock held.
type ramp struct {
	settings       Ramp
	share          float64
	step           time.Time // beginning of the current interval
	seen, admitted int64     // in it
}

func newRamp(s Ramp, from time.Time) *ramp {
	if s.Interval <= 0 || s.Share >= 1 {
		return nil
	}
	return &ramp{settings: s, share: s.Share, step: from}
}

// grow doubles the share for each clean interval that has passed.
func (r *ramp) grow(now time.Time) {
	for r.share < 1 && now.Sub(r.step) >= r.settings.Interval {
		r.to(min(1, 2*r.share), r.step.Add(r.settings.Interval))
	}
}

// to begins an interval with a share.
func (r *ramp) to(share float64, from time.Time) {
	r.share, r.step, r.seen, r.admitted = share, from, 0, 0
}

// admit says whether one more request is within the share. It never lets through more than the share of those seen.
func (r *ramp) admit(now time.Time) bool {
	r.grow(now)
	if r.share >= 1 {
		return true
	}
	r.seen++
	if float64(r.admitted+1) > r.share*float64(r.seen) {
		return false
	}
	r.admitted++
	return true
}

// would says what admit will.
func (r *ramp) would(now time.Time) bool {
	r.grow(now)
	return r.share >= 1 || float64(r.admitted+1) <= r.share*float64(r.seen+1)
}

// result takes what a call came to. r may be nil.
func (r *ramp) result(o Outcome, now time.Time) {
	if r == nil || o != Failure {
		return
	}
	if r.grow(now); r.share < 1 {
		r.to(max(r.share/2, r.settings.Share/2), now)
	}
}
