package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

func TestLease(t *testing.T) {
	s := openEmbedded(t)
	testLease(t, s, s)
}

// testLease lets two replicas contend.
func testLease(t *testing.T, one, two *Store) {
	ctx := bounded(t)
	a, b := one.Bucket(BucketOptions{Name: "leases"}), two.Bucket(BucketOptions{Name: "leases"})
	l := wantOneWinner(t, ctx, a, b)
	began := time.Now()
	if err := l.Renew(ctx); err != nil {
		t.Fatalf("Renew() = %v, want nil", err)
	}
	if until := l.Until(); until.Before(began.Add(l.ttl)) || until.After(time.Now().Add(l.ttl)) {
		t.Errorf("Until() = %s, want a ttl from the renewal on", until)
	}
	if err := l.Release(ctx); err != nil {
		t.Fatalf("Release() = %v, want nil", err)
	}
	if err := l.Renew(ctx); !errors.Is(err, ErrHeld) {
		t.Errorf("Renew() of a released lease = %v, want ErrHeld", err)
	}
	next, err := b.Lease(ctx, "probe", "two", time.Second)
	if err != nil {
		t.Fatalf("Lease() after release = %v, want it", err)
	}
	if err := l.Release(ctx); err != nil {
		t.Errorf("Release() of what another holds = %v, want nil", err)
	}
	if err := next.Renew(ctx); err != nil {
		t.Errorf("Renew() after another's late release = %v, want nil", err)
	}
	// Here the holder dies.
	var after *Lease
	eventually(t, "the end of a dead holder's lease", func() (err error) {
		after, err = a.Lease(ctx, "probe", "one", time.Minute)
		return err
	})
	if now := time.Now(); now.Before(next.Until()) {
		t.Errorf("the lease was free %s before its end", next.Until().Sub(now))
	}
	if err := next.Renew(ctx); !errors.Is(err, ErrHeld) {
		t.Errorf("Renew() of a lease taken over = %v, want ErrHeld", err)
	}
	if err := after.Release(ctx); err != nil {
		t.Errorf("Release() = %v, want nil", err)
	}
}

func wantOneWinner(t *testing.T, ctx context.Context, a, b *Bucket) *Lease {
	t.Helper()
	won := make(chan *Lease, 8)
	var wg sync.WaitGroup
	for n := range cap(won) {
		bucket := []*Bucket{a, b}[n%2]
		wg.Go(func() {
			l, err := bucket.Lease(ctx, "probe", fmt.Sprint(n), time.Minute)
			switch {
			case err == nil:
				won <- l
			case !errors.Is(err, ErrHeld):
				t.Errorf("Lease() = %v, want it or ErrHeld", err)
			}
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Fatalf("%d of %d contenders won, want 1", len(won), cap(won))
	}
	return <-won
}

func TestARenewalWhoseAnswerWasLostLosesNoLease(t *testing.T) {
	ctx := bounded(t)
	b := openEmbedded(t).Bucket(BucketOptions{Name: "leases"})
	l, err := b.Lease(ctx, "probe", "one", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Update(ctx, "probe", l.value, l.rev, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := l.Renew(ctx); err != nil {
		t.Errorf("Renew() = %v, want nil", err)
	}
	if _, err := b.Update(ctx, "probe", l.value, l.rev, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := l.Release(ctx); err != nil {
		t.Errorf("Release() = %v, want nil", err)
	}
	if _, err := b.Get(ctx, "probe"); !errors.Is(err, ErrNotFound) {
		t.Errorf("Get() of a released lease = %v, want ErrNotFound", err)
	}
}

func TestALeaseWithoutAnEndIsRefused(t *testing.T) {
	if _, err := openEmbedded(t).Bucket(BucketOptions{Name: "leases"}).Lease(bounded(t), "k", "h", 0); err == nil {
		t.Error("Lease() with ttl 0 = nil, want an error")
	}
}
