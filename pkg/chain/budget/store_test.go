package budget

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"understudy/pkg/store"
)

func openStore(t *testing.T, dir string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{Dir: dir})
	if err != nil {
		t.Fatalf("Open = %v", err)
	}
	return s
}

// TestWithTheRealStore: three replicas and 200 exchanges spend no more than the limit, and a process that starts on the
// same folder goes on from there, though one of them died and told nothing.
func TestWithTheRealStore(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	dir, b, worst := t.TempDir(), hourly(20), Dollar/10
	s := openStore(t, dir)
	var all []*Meter
	for i := range 3 {
		m := New(Options{Replica: fmt.Sprint("r", i), Store: s.Bucket(store.BucketOptions{Name: "spend"})})
		m.Start(ctx)
		all = append(all, m)
	}
	var spent atomic.Int64
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			for {
				r, err := all[i%3].Reserve(ctx, support, b, Ask{Worst: worst})
				if err != nil {
					if !errors.Is(err, ErrSpent) {
						t.Errorf("Reserve = %v, want %v", err, ErrSpent)
					}
					return
				}
				spent.Add(int64(worst))
				r.Settle(worst)
			}
		})
	}
	wg.Wait()
	if got, limit := Money(spent.Load()), FromUSD(b.USD); got > limit || got < limit*3/4 {
		t.Errorf("%s of %s were spent, want no more, and most of it", got, limit)
	}
	all[0].halt()
	for _, m := range all[1:] {
		if err := m.Stop(ctx); err != nil {
			t.Errorf("Stop = %v", err)
		}
	}
	if err := s.Close(ctx); err != nil {
		t.Fatalf("Close = %v", err)
	}
	s = openStore(t, dir)
	defer func() { _ = s.Close(ctx) }()
	next := New(Options{Replica: "next", Store: s.Bucket(store.BucketOptions{Name: "spend"})})
	next.Start(ctx)
	defer next.halt()
	for held := Money(0); ; held += worst {
		if _, err := next.Reserve(ctx, support, b, Ask{Worst: worst}); err == nil {
			continue
		}
		if got, limit := Money(spent.Load())+held, FromUSD(b.USD); got > limit {
			t.Errorf("after a restart %s of %s are spent or reserved, want no more", got, limit)
		}
		return
	}
}
