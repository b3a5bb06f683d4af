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
	minRate      cause = "min_rate"
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

	least config.MinRate // zero: none
	rate  time.Time      // when the content of the window is looked at
	base  int64          // bytes of content when it began

	stalled time.Duration // how long the client has kept the answer waiting
}

// watch notes when the request went off, and ends every deadline.
func (c *clock) watch(sentAt time.Time) { *c = clock{sentAt: sentAt} }

// window begins the next window of the least rate, with so many bytes of content so far.
func (c *clock) window(now time.Time, content int64) {
	if c.least.Window > 0 {
		c.rate, c.base = now.Add(c.least.Window), content
	}
}

// slow says whether the window that is over had too little content.
func (c *clock) slow(content int64) bool {
	return float64(content-c.base) < float64(c.least.BytesPerSecond)*c.least.Window.Seconds()
}

func (c *clock) start(total time.Time) { c.total = total }

func (c *clock) wait(until time.Time) { c.waited = until }

// sendOff starts the attempt's deadlines when the request goes to its target.
func (c *clock) sendOff(now time.Time, ch *config.Chain, stream bool) {
	d := ch.Deadlines
	c.sentAt, c.waited = now, time.Time{}
	c.idle, c.least = d.Idle, ch.MinRate
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
	if !c.rate.IsZero() {
		c.rate = c.rate.Add(d) // a window lasts for as long as we listen
	}
}

// stop ends every deadline.
func (c *clock) stop() { *c = clock{} }

func (c *clock) bounds() [7]struct {
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
	}{{c.total, total}, {c.waited, waited}, {c.first, firstContent}, {c.whole, wholeAnswer}, {quiet, idle}, {c.hold, holdTime}, {c.rate, minRate}}
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
