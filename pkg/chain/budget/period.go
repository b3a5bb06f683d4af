package budget

import (
	"time"

	"understudy/pkg/config"
)

// slots is into how many parts a rolling window is divided. What is spent in a part counts until the whole of it has
// left the window, so for a sixtieth longer than the window at most.
const slots = 60

// period is the time over which a budget counts: a rolling window, or the calendar month in UTC if it is zero.
type period struct{ window time.Duration }

// periodOf is the budget's window; one that is too short to be divided is as long as can be.
func periodOf(b config.Budget) period {
	if b.Month {
		return period{}
	}
	return period{window: max(b.Window, time.Second)}
}

// slot numbers the part of time that t is in.
func (p period) slot(t time.Time) int64 {
	if p.window == 0 {
		t = t.UTC()
		return int64(t.Year())*12 + int64(t.Month()) - 1
	}
	return t.UnixNano() / int64(p.window/slots)
}

// ends is when what was spent in a slot no longer counts.
func (p period) ends(slot int64) time.Time {
	if p.window == 0 {
		return time.Date(int(slot/12), time.Month(slot%12+2), 1, 0, 0, 0, 0, time.UTC)
	}
	return time.Unix(0, (slot+1)*int64(p.window/slots)).Add(p.window)
}

// counts says whether what was spent in a slot counts at now.
func (p period) counts(slot int64, now time.Time) bool { return now.Before(p.ends(slot)) }

// lease is how long a replica may use what it has taken from the budget without hearing of the store again. It is short
// beside the window, so that what a dead replica had taken does not count for much longer than if it had spent it when
// it died; and long beside what a store needs to come back.
func (p period) lease() time.Duration {
	if p.window == 0 {
		return 10 * time.Minute
	}
	return min(max(p.window/10, time.Second), 10*time.Minute)
}

// cell is what was spent in a slot.
type cell struct {
	Slot int64 `json:"t"`
	Sum  Money `json:"m"`
}

// cells are in the order of their slots, one for each.
type cells []cell

// add adds to a slot; most are the newest one.
func (c cells) add(slot int64, m Money) cells {
	i := len(c)
	for i > 0 && c[i-1].Slot > slot {
		i--
	}
	if i > 0 && c[i-1].Slot == slot {
		c[i-1].Sum = c[i-1].Sum.plus(m)
		return c
	}
	c = append(c, cell{})
	copy(c[i+1:], c[i:])
	c[i] = cell{slot, m}
	return c
}

// drop leaves out, in place, what no longer counts.
func (c cells) drop(p period, now time.Time) cells {
	n := 0
	for n < len(c) && !p.counts(c[n].Slot, now) {
		n++
	}
	return append(c[:0], c[n:]...)
}

// sum is what still counts.
func (c cells) sum(p period, now time.Time) (total Money) {
	for _, of := range c {
		if p.counts(of.Slot, now) {
			total = total.plus(of.Sum)
		}
	}
	return total
}
