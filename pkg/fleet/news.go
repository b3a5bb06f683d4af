package fleet

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/store"
)

const (
	// perMessage keeps a message well below the 64 KiB that news may have.
	perMessage = 128
	// slack is by how much two replicas may differ about the end of a cooldown: clocks are corrected all the time, and
	// that alone must not lengthen it.
	slack = 100 * time.Millisecond
)

// message is what one replica tells the others in one beat.
type message struct {
	Replica string `json:"replica"`
	Items   []item `json:"items"`
}

type item struct {
	Target string        `json:"target"` // its key
	Tally  breaker.Tally `json:"tally"`
}

// add adds what the others should hear of t.
func (f *Fleet) add(tell []item, t Target) []item {
	tally := t.Breaker.Drain()
	f.mu.Lock()
	defer f.mu.Unlock()
	// A success is news only after a failure, which it puts an end to; all of them count where a ratio does.
	if tally.Failed == 0 && (tally.OK == 0 || !t.Ratio && !f.failing[t.key()]) {
		return tell
	}
	f.failing[t.key()] = tally.Trailing > 0
	return append(tell, item{t.key(), tally})
}

func (f *Fleet) publish(items []item) {
	for some := range slices.Chunk(items, perMessage) {
		if data, err := json.Marshal(message{f.o.Replica, some}); err == nil {
			f.o.News.Publish(subject, data)
		}
	}
}

// hear counts what another replica tells.
func (f *Fleet) hear(data []byte) {
	var m message
	if json.Unmarshal(data, &m) != nil || m.Replica == f.o.Replica {
		return
	}
	for _, t := range f.o.Targets() {
		for _, i := range m.Items {
			if i.Target == t.key() {
				f.observe(t, i.Tally)
			}
		}
	}
}

func (f *Fleet) observe(t Target, told breaker.Tally) {
	t.Breaker.Observe(told)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failing[t.key()] = told.Trailing > 0
}

// cool brings the later end of t's cooldown to the store or from it. What is left of it counts, not what the wall
// clock would have said when the breaker was made.
func (f *Fleet) cool(ctx context.Context, t Target) {
	now := time.Now()
	left := t.Breaker.Cooling().Sub(now)
	told := says(f, f.cooldowns, t)
	toldLeft := told.value.Sub(now)
	switch {
	case left > 0 && left > toldLeft+slack:
		until := now.Add(left).Round(0).UTC()
		write(ctx, f, f.o.Cooldowns, f.cooldowns, t, known[time.Time]{until, told.rev}, left+time.Second)
	case toldLeft > 0 && toldLeft > left+slack:
		t.Breaker.Cool(told.value)
	}
}

// cooldown takes down what the store says of a target's cooldown.
func (f *Fleet) cooldown(e store.Entry) {
	var until time.Time
	if !e.Deleted && json.Unmarshal(e.Value, &until) != nil {
		return // not ours
	}
	heard(f, f.cooldowns, e, until)
}
