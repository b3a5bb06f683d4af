package budget

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// record is what the store keeps of one key's budget: of each replica, what it has spent and what it has taken to spend.
// It is changed by compare-and-set only, so that spent and taken together never come to more than the limit.
type record struct {
	ID       string           `json:"id"`       // unlike that of any record before, should the store lose one
	Buried   cells            `json:"buried"`   // of replicas that are gone for good
	Replicas map[string]share `json:"replicas"` // by their names
}

// share is a replica's part. All of it is told anew in each write, so that a write that was made twice, or of which
// nobody knows whether it was made, does no harm.
type share struct {
	Spent cells     `json:"spent"`
	Told  Money     `json:"told"`  // all that it ever spent, of which Spent is the part that may still count
	Claim Money     `json:"claim"` // what it may still spend, open reservations included
	Until time.Time `json:"until"` // it spends nothing of the claim after this, unless it has renewed it
}

// maxRecord bounds what is read of a record, in bytes; a fleet of 50 replicas needs 150 kB.
const maxRecord = 4 << 20

func decodeRecord(b []byte) (record, error) {
	var r record
	if len(b) > maxRecord {
		return r, fmt.Errorf("a record of %d bytes, want at most %d", len(b), maxRecord)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, err
	}
	for name, s := range r.Replicas {
		if s.Claim < 0 || s.Told < 0 || !valid(s.Spent) {
			return record{}, fmt.Errorf("the share of replica %.40q is negative or out of order", name)
		}
	}
	if !valid(r.Buried) {
		return record{}, fmt.Errorf("what was spent by replicas before is negative or out of order")
	}
	return r, nil
}

func valid(c cells) bool {
	return slices.IsSortedFunc(c, func(a, b cell) int { return int(min(max(a.Slot-b.Slot, -1), 1)) }) &&
		!slices.ContainsFunc(c, func(c cell) bool { return c.Sum < 0 })
}

// bury ends the shares of replicas that did not renew for a lease after their claim ran out. A claim that nobody will
// account for counts as spent when it ran out: a reservation of a replica that died may have been spent.
func (r *record) bury(p period, now time.Time, but string) {
	for _, name := range slices.Sorted(maps.Keys(r.Replicas)) {
		s := r.Replicas[name]
		if name == but || now.Before(s.Until.Add(p.lease())) {
			continue
		}
		for _, c := range s.asSpent(p) {
			r.Buried = r.Buried.add(c.Slot, c.Sum)
		}
		delete(r.Replicas, name)
	}
	r.Buried = r.Buried.drop(p, now)
}

// asSpent is a share whose claim is taken to be spent.
func (s share) asSpent(p period) cells {
	spent := slices.Clone(s.Spent)
	if s.Claim > 0 {
		spent = spent.add(p.slot(s.Until), s.Claim)
	}
	return spent
}

// rest is what all but one replica have spent, and what they may still spend.
func (r *record) rest(p period, now time.Time, but string) (spent cells, held []claim) {
	spent = slices.Clone(r.Buried)
	for name, s := range r.Replicas {
		if name == but {
			continue
		}
		for _, c := range s.Spent {
			spent = spent.add(c.Slot, c.Sum)
		}
		if s.Claim > 0 {
			held = append(held, claim{s.Claim, s.Until})
		}
	}
	return spent.drop(p, now), held
}

// claim is what another replica may spend, until then.
type claim struct {
	sum   Money
	until time.Time
}
