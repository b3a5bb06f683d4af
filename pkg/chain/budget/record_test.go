package budget

import (
	"encoding/json"
	"testing"
	"time"
)

// FuzzRecord: what is in the store is read, or refused, and what is read never gives money back that was spent.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"id":"a","buried":[{"t":5,"m":7}],"replicas":{"r":{"spent":[{"t":6,"m":1}],"told":1,"claim":2,"until":"2026-11-30T12:00:00Z"}}}`))
	f.Add([]byte(`{"replicas":{"r":{"claim":-1}}}`))
	f.Add([]byte(`{"buried":[{"t":6,"m":1},{"t":5,"m":1}]}`))
	f.Add([]byte(`{"buried":[{"t":9223372036854775807,"m":9223372036854775807},{"t":-9223372036854775808,"m":1}]}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecord(b)
		if err != nil {
			return
		}
		now, p := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), period{time.Hour}
		before := sumOf(r, p, now)
		r.bury(p, now, "r")
		if after := sumOf(r, p, now); before < 0 || after < before {
			t.Fatalf("%s: %s were spent before the burial and %s after it", b, before, after)
		}
		if again, err := json.Marshal(r); err != nil {
			t.Fatalf("Marshal = %v", err)
		} else if _, err := decodeRecord(again); err != nil {
			t.Fatalf("decodeRecord of what was made from %s: %v", b, err)
		}
	})
}

// sumOf is all that counts against a limit.
func sumOf(r record, p period, now time.Time) Money {
	spent, held := r.rest(p, now, "nobody")
	for _, c := range held {
		if now.Before(c.until) || p.counts(p.slot(c.until), now) {
			spent = spent.add(p.slot(c.until), c.sum)
		}
	}
	total := Money(0)
	for _, c := range spent {
		total = total.plus(c.Sum)
	}
	return total
}
