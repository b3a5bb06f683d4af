package breaker

import "time"

// Ramp is how traffic comes back after a breaker has closed: Share of it in the first Interval, twice as much after
// each interval without a failure. A failure halves the share and begins its interval anew, so that a provider that
// is only half well gets half the traffic, not all of it in turns. Zero: all traffic at once.
type Ramp struct {
	Interval time.Duration
	Share    float64 // more than 0, at most 1
}

func (s Ramp) none() bool { return s.Interval <= 0 || s.Share <= 0 || s.Share >= 1 }

// ramp is a running Ramp; nil is none. Its methods are called with the breaker's lock held.
type ramp struct {
	settings       Ramp
	share          float64
	step           time.Time // beginning of the current interval
	seen, admitted int64     // in it
}

func newRamp(s Ramp, from time.Time) *ramp {
	if s.none() {
		return nil
	}
	return &ramp{settings: s, share: s.Share, step: from}
}

// first is the share that r begins with.
func (r *ramp) first() float64 {
	if r == nil {
		return 1
	}
	return r.settings.Share
}

// renewed is r with other settings from the current interval on. It does not begin again where it is over.
func (r *ramp) renewed(s Ramp) *ramp {
	if s.none() || r.now() >= 1 {
		return nil
	}
	next := *r
	next.settings = s
	return &next
}

// now is the share now. It doubles for each clean interval that has passed.
func (r *ramp) now() float64 {
	if r == nil {
		return 1
	}
	for r.share < 1 && time.Since(r.step) >= r.settings.Interval {
		r.to(min(1, 2*r.share), r.step.Add(r.settings.Interval))
	}
	return r.share
}

// to begins an interval with a share.
func (r *ramp) to(share float64, from time.Time) {
	r.share, r.step, r.seen, r.admitted = share, from, 0, 0
}

// admit says whether one more request is within the share. It never lets through more than the share of those seen.
func (r *ramp) admit() bool {
	if r.now() >= 1 {
		return true
	}
	ok := r.would()
	if r.seen++; ok {
		r.admitted++
	}
	return ok
}

// missed sees a request that would said no to.
func (r *ramp) missed() {
	if r.now() < 1 {
		r.seen++
	}
}

// would says what admit will.
func (r *ramp) would() bool {
	share := r.now()
	return share >= 1 || float64(r.admitted+1) <= share*float64(r.seen+1)
}

// failed takes a failure.
func (r *ramp) failed() {
	if share := r.now(); share < 1 {
		r.to(max(share, r.settings.Share)/2, time.Now())
	}
}
