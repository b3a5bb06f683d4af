package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Lease is the right to something for a while, held by one replica of the fleet. A holder that dies loses it after its
// ttl; so does one that does not renew in time.
//
// Concurrency: all methods may be called at once.
type Lease struct {
	bucket *Bucket
	key    string
	value  []byte // unlike any other lease's
	ttl    time.Duration

	mu    sync.Mutex // mu guards the fields below.
	rev   uint64
	until time.Time
}

// tenure is what stands under a lease's key.
type tenure struct {
	Holder string `json:"holder"`
	ID     string `json:"id"` // tells two leases of one holder apart
}

// Lease takes the lease key for holder, or fails with ErrHeld. ttl is rounded up to whole seconds. After ErrDown the
// lease may be taken all the same, by nobody, and is free after ttl.
func (b *Bucket) Lease(ctx context.Context, key, holder string, ttl time.Duration) (*Lease, error) {
	if ttl <= 0 {
		return nil, fmt.Errorf("store: lease %q in %s: a ttl of %s, want more than 0", key, b.opt.Name, ttl)
	}
	value, err := json.Marshal(tenure{Holder: holder, ID: rand.Text()})
	if err != nil {
		return nil, err
	}
	l := &Lease{bucket: b, key: key, value: value, ttl: ttl}
	began := time.Now()
	rev, err := b.Create(ctx, key, value, ttl)
	if errors.Is(err, ErrExists) {
		return nil, fmt.Errorf("store: lease %q in %s: %w", key, b.opt.Name, ErrHeld)
	}
	if err != nil {
		return nil, err
	}
	l.extend(rev, began)
	return l, nil
}

// Until is when the holder must stop unless it renews before. It is reckoned from before the call that took or renewed
// the lease, so that it is never later than the store's own reckoning.
func (l *Lease) Until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// Renew holds the lease for another ttl, or fails with ErrHeld when it was lost meanwhile.
func (l *Lease) Renew(ctx context.Context) error {
	began := time.Now()
	rev, err := l.bucket.Update(ctx, l.key, l.value, l.revision(), l.ttl)
	if errors.Is(err, ErrConflict) {
		// An earlier call whose answer was lost may have moved the revision.
		if rev, err = l.actual(ctx); err == nil {
			rev, err = l.bucket.Update(ctx, l.key, l.value, rev, l.ttl)
		}
	}
	if err != nil {
		return l.lost(err)
	}
	l.extend(rev, began)
	return nil
}

// Release gives the lease back. A lease that was lost meanwhile is left to its new holder.
func (l *Lease) Release(ctx context.Context) error {
	err := l.bucket.Delete(ctx, l.key, l.revision())
	if errors.Is(err, ErrConflict) {
		var rev uint64
		if rev, err = l.actual(ctx); err == nil {
			err = l.bucket.Delete(ctx, l.key, rev)
		}
	}
	if err = l.lost(err); errors.Is(err, ErrHeld) {
		return nil
	}
	return err
}

// actual returns the revision of the key while its value is this lease's.
func (l *Lease) actual(ctx context.Context) (uint64, error) {
	e, err := l.bucket.Get(ctx, l.key)
	if err == nil && string(e.Value) != string(l.value) {
		err = ErrConflict
	}
	return e.Revision, err
}

// lost names what it means when the key is gone or another's.
func (l *Lease) lost(err error) error {
	if errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound) {
		return fmt.Errorf("store: lease %q in %s is lost: %w", l.key, l.bucket.opt.Name, ErrHeld)
	}
	return err
}

func (l *Lease) revision() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rev
}

// extend keeps the newest outcome: two renewals may end in the other order.
func (l *Lease) extend(rev uint64, began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if rev > l.rev {
		l.rev, l.until = rev, began.Add(l.ttl)
	}
}
