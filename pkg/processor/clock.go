package processor

import (
	"time"

	"understudy/pkg/config"
)

// cause is why a clock rang; its string is the detail of the verdict.
type cause string

const (
	none         cause = ""
	waited       cause = "wait"
	firstContent cause = "first_content"
	wholeAnswer  cause = "answer"
	idle         cause = "idle"
	total        cause = "total"
	holdTime     cause = "hold.time"
)

// clock holds the deadlines of one attempt; the zero time is no deadline. It knows no timer: due says when to
// look, ring what is over.
type clock struct {
	sentAt   time.Time // when the request went to its target
	total    time.Time // of the exchange
	waited   time.Time
	first    time.Time // until the first content
	whole    time.Time // until the end
	hold     time.Time // until commit
	activity time.Time // of the last event, once content has been seen
	idle     time.Duration
	stalled  time.Duration // how long the client has kept the answer waiting
}

func (c *clock) start(total time.Time) { c.total = total }

func (c *clock) wait(until time.Time) { c.waited = until }

// sendOff starts the attempt's deadlines when the request goes to its target.
func (c *clock) sendOff(now time.Time, ch *config.Chain, stream bool) {
	d := ch.Deadlines
	c.sentAt, c.waited = now, time.Time{}
	c.idle = d.Idle
	if stream {
		c.first = now.Add(d.FirstContent)
	}
	if !stream || ch.Commit == config.CommitComplete {
		c.whole = now.Add(d.Answer)
	}
}

// held starts the bound on the time that an answer's headers may be kept back.
func (c *clock) held(now time.Time, ch *config.Chain) { c.hold = now.Add(ch.Hold.Time) }

func (c *clock) released() { c.hold = time.Time{} }

// content stops the first-content deadline; from here on events must not be further apart than idle.
func (c *clock) content(now time.Time) {
	if !c.first.IsZero() {
		c.first, c.activity = time.Time{}, now
	}
}

// event notes that the provider said something.
func (c *clock) event(now time.Time) {
	if !c.activity.IsZero() {
		c.activity = now
	}
}

// blocked notes that d has passed waiting for the client to read, which was not the provider's silence.
func (c *clock) blocked(d time.Duration) {
	c.stalled += d
	if !c.activity.IsZero() {
		c.activity = c.activity.Add(d)
	}
}

// stop ends every deadline.
func (c *clock) stop() { *c = clock{} }

func (c *clock) bounds() [6]struct {
	at  time.Time
	why cause
} {
	var quiet time.Time
	if !c.activity.IsZero() {
		quiet = c.activity.Add(c.idle)
	}
	return [...]struct {
		at  time.Time
		why cause
	}{{c.total, total}, {c.waited, waited}, {c.first, firstContent}, {c.whole, wholeAnswer}, {quiet, idle}, {c.hold, holdTime}}
}

// due is the next deadline, zero without any.
func (c *clock) due() time.Time {
	var next time.Time
	for _, b := range c.bounds() {
		if !b.at.IsZero() && (next.IsZero() || b.at.Before(next)) {
			next = b.at
		}
	}
	return next
}

// ring is a deadline that is over, that of the exchange before any other.
func (c *clock) ring(now time.Time) cause {
	for _, b := range c.bounds() {
		if !b.at.IsZero() && !now.Before(b.at) {
			return b.why
		}
	}
	return none
}
