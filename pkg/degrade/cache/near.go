package cache

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"understudy/pkg/config"
	"understudy/pkg/store"
)

const (
	// wordingsMost is how many requests with the same gist are known, the newest.
	wordingsMost = 8
	// listTries bounds how often a list is written anew because another replica was faster.
	listTries = 4
)

// wording is a request whose answer is kept, among those with the same gist.
type wording struct {
	Exact    digest
	At       time.Time
	Shingles []uint64
}

func nearKey(d digest) string { return "near/" + d.String() }

// list adds the request of k to those with its gist. Whoever loses the race against another replica tries again.
func (c *Cache) list(ctx context.Context, k Key, at time.Time, ttl time.Duration) error {
	var err error
	for range listTries {
		var all []wording
		var rev uint64
		if all, rev, err = c.wordings(ctx, k.near.id); err != nil {
			return err
		}
		all = slices.DeleteFunc(all, func(w wording) bool { return w.Exact == k.exact || time.Since(w.At) > ttl })
		all = slices.Insert(all, 0, wording{Exact: k.exact, At: at, Shingles: k.near.shingles})
		err = c.write(ctx, nearKey(k.near.id), all[:min(len(all), wordingsMost)], rev, ttl)
		if !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrExists) {
			return err
		}
	}
	return err
}

// write replaces the list that was read at revision rev, 0 for none.
func (c *Cache) write(ctx context.Context, key string, all []wording, rev uint64, ttl time.Duration) error {
	value, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if rev == 0 {
		_, err = c.bucket.Create(ctx, key, value, ttl)
	} else {
		_, err = c.bucket.Update(ctx, key, value, rev, ttl)
	}
	if err != nil {
		return fmt.Errorf("list an answer: %w", err)
	}
	return nil
}

// wordings reads the list under d. One that is damaged is as good as empty, and replaced.
func (c *Cache) wordings(ctx context.Context, d digest) ([]wording, uint64, error) {
	e, err := c.bucket.Get(ctx, nearKey(d))
	if errors.Is(err, store.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("find a near answer: %w", err)
	}
	var all []wording
	if json.Unmarshal(e.Value, &all) != nil {
		all = nil
	}
	return all, e.Revision, nil
}

// findNear returns the answer to the request that is the most alike of those with the same gist, the newest of equals.
func (c *Cache) findNear(ctx context.Context, k Key, o config.Cache) (Entry, bool, error) {
	all, _, err := c.wordings(ctx, k.near.id)
	if err != nil {
		return Entry{}, false, err
	}
	similar := func(w wording) float64 { return alike(w.Shingles, k.near.shingles) }
	slices.SortStableFunc(all, func(a, b wording) int {
		return cmp.Or(cmp.Compare(similar(b), similar(a)), b.At.Compare(a.At))
	})
	for _, w := range all {
		s := similar(w)
		if s < o.Near {
			break
		}
		e, err := c.answer(ctx, w.Exact)
		switch {
		case errors.Is(err, store.ErrNotFound): // It made room for others.
		case err != nil:
			return Entry{}, false, err
		case w.Exact != k.exact && e.serves(o):
			e.Near, e.Similarity = true, s
			return e, true, nil
		}
	}
	return Entry{}, false, nil
}
