package fleet

import (
	"context"
	"encoding/json"
	"time"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/store"
)

// message is what one replica tells the others in one beat.
type message struct {
	Replica string `json:"replica"`
	Items   []item `json:"items"`
}

type item struct {
	Target string        `json:"target"`
	Tally  breaker.Tally `json:"tally"`
}

// add adds what the others should hear of t, and writes down its cooldown.
func (f *Fleet) add(tell []item, ctx context.Context, t Target) []item {
	f.cool(ctx, t)
	tally := t.Breaker.Drain()
	f.mu.Lock()
	defer f.mu.Unlock()
	// A success is news only after a failure, which it puts an end to; all of them count where a ratio does.
	if tally.Failed == 0 && (tally.OK == 0 || !t.Ratio && !f.failing[t.Name]) {
		return tell
	}
	f.failing[t.Name] = tally.Trailing > 0
	return append(tell, item{t.Name, tally})
}

func (f *Fleet) publish(items []item) {
	if len(items) == 0 {
		return
	}
	if data, err := json.Marshal(message{f.o.Replica, items}); err == nil {
		f.o.News.Publish(subject, data)
	}
}

// hear counts what another replica tells.
func (f *Fleet) hear(data []byte) {
	var m message
	if json.Unmarshal(data, &m) != nil || m.Replica == f.o.Replica {
		return
	}
	for _, i := range m.Items {
		b := f.breaker(i.Target)
		if b == nil {
			continue
		}
		b.Observe(i.Tally)
		f.mu.Lock()
		f.failing[i.Target] = i.Tally.Trailing > 0
		f.mu.Unlock()
	}
}

// cool brings the later end of t's cooldown to the store or from it.
func (f *Fleet) cool(ctx context.Context, t Target) {
	own := t.Breaker.Cooling().Round(0)
	f.mu.Lock()
	store := f.cooldowns[t.Name]
	f.mu.Unlock()
	left := time.Until(own)
	if left <= 0 || !own.Truncate(time.Millisecond).After(store.value) {
		return
	}
	own = own.Truncate(time.Millisecond)
	if rev, ok := write(ctx, f.o.Cooldowns, t.Name, own, store.rev, left+time.Second); ok {
		f.mu.Lock()
		f.cooldowns[t.Name] = known[time.Time]{own, rev}
		f.mu.Unlock()
	}
}

// cooldown takes down what the store says of a target's cooldown. A value that has expired is none.
func (f *Fleet) cooldown(e store.Entry) {
	var until time.Time
	if !e.Deleted && json.Unmarshal(e.Value, &until) != nil {
		return // not ours
	}
	k := known[time.Time]{until, e.Revision}
	if e.Deleted {
		k.rev = 0
	}
	f.mu.Lock()
	f.cooldowns[e.Key] = k
	f.mu.Unlock()
	if b := f.breaker(e.Key); b != nil && !until.IsZero() {
		b.Cool(until)
	}
}
