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

// instant is a moment, in nanoseconds after the clock's from; zero is none. A third of a time.Time, of which there are six in
// every open stream.
type instant int64

// clock holds the deadlines of one attempt; a zero one is none. It knows no timer: due says when to look, ring what is over.
type clock struct {
	sentAt   time.Time // when the request went to its target
	total    time.Time // of the exchange
	from     time.Time // what instants are counted from; zero: there are none yet
	waited   instant
	first    instant // until the first content
	whole    instant // until the end
	hold     instant // until commit
	activity instant // of the last event, once content has been seen
	idle     time.Duration

	least config.MinRate // zero: none
	rate  instant        // when the content of the window is looked at
	base  int64          // bytes of content when it began

	stalled time.Duration // how long the client has kept the answer waiting
}

func (c *clock) at(t time.Time) instant {
	if c.from.IsZero() {
		c.from = time.Now().Add(-1) // not t, which may be by another's clock: the wall's
	}
	if d := t.Sub(c.from); d != 0 {
		return instant(d)
	}
	return 1 // not none
}

// watch notes when the request went off, and ends every deadline.
func (c *clock) watch(sentAt time.Time) { *c = clock{sentAt: sentAt} }

// window begins the next window of the least rate, with so many bytes of content so far.
func (c *clock) window(now time.Time, content int64) {
	if c.least.Window > 0 {
		c.rate, c.base = c.at(now.Add(c.least.Window)), content
	}
}

// slow says whether the window that is over had too little content.
func (c *clock) slow(content int64) bool {
	return float64(content-c.base) < float64(c.least.BytesPerSecond)*c.least.Window.Seconds()
}

func (c *clock) start(total time.Time) { c.total = total }

func (c *clock) wait(until time.Time) { c.waited = c.at(until) }

// sendOff starts the attempt's deadlines when the request goes to its target.
func (c *clock) sendOff(now time.Time, ch *config.Chain, stream bool) {
	d := ch.Deadlines
	c.sentAt, c.waited = now, 0
	c.idle, c.least = d.Idle, ch.MinRate
	if stream {
		c.first = c.at(now.Add(d.FirstContent))
	}
	if !stream || ch.Commit == config.CommitComplete {
		c.whole = c.at(now.Add(d.Answer))
	}
}

// held starts the bound on the time that an answer's headers may be kept back.
func (c *clock) held(now time.Time, ch *config.Chain) { c.hold = c.at(now.Add(ch.Hold.Time)) }

func (c *clock) released() { c.hold = 0 }

// content stops the first-content deadline; from here on events must not be further apart than idle.
func (c *clock) content(now time.Time) {
	if c.first != 0 {
		c.first, c.activity = 0, c.at(now)
	}
}

// event notes that the provider said something.
func (c *clock) event(now time.Time) {
	if c.activity != 0 {
		c.activity = c.at(now)
	}
}

// blocked notes that d has passed waiting for the client to read, which was not the provider's silence.
func (c *clock) blocked(d time.Duration) {
	c.stalled += d
	if c.activity != 0 {
		c.activity += instant(d)
	}
	if c.rate != 0 {
		c.rate += instant(d) // a window lasts for as long as we listen
	}
}

// stop ends every deadline.
func (c *clock) stop() { *c = clock{} }

type bound struct {
	at  instant
	why cause
}

func (c *clock) bounds() [7]bound {
	var whole, quiet instant
	if !c.total.IsZero() {
		whole = c.at(c.total)
	}
	if c.activity != 0 {
		quiet = c.activity + instant(c.idle)
	}
	return [...]bound{{whole, total}, {c.waited, waited}, {c.first, firstContent}, {c.whole, wholeAnswer}, {quiet, idle}, {c.hold, holdTime}, {c.rate, minRate}}
}

// due is the next deadline, zero without any.
func (c *clock) due() time.Time {
	var next instant
	for _, b := range c.bounds() {
		if b.at != 0 && (next == 0 || b.at < next) {
			next = b.at
		}
	}
	if next == 0 {
		return time.Time{}
	}
	return c.from.Add(time.Duration(next))
}

// ring is a deadline that is over, that of the exchange before any other.
func (c *clock) ring(now time.Time) cause {
	at := c.at(now)
	for _, b := range c.bounds() {
		if b.at != 0 && at >= b.at {
			return b.why
		}
	}
	return none
}
