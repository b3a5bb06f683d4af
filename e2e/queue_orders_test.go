//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"understudy/internal/scripted"
)

// keyHeader carries what makes a repeated request the same one.
const keyHeader = "Idempotency-Key"

// till numbers the calls of providers, so that no two answers are the same, and counts those of orders.
type till struct{ calls, orders atomic.Int64 }

func (l *till) before(provider string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Header.Get(keyHeader), orderKey) {
			l.orders.Add(1)
		}
		r.Header.Set(scripted.IDHeader, fmt.Sprintf("%s-%d", provider, l.calls.Add(1)))
		h.ServeHTTP(w, r)
	})
}

// The keys of orders and of live requests begin so.
const (
	orderKey = "order-"
	liveKey  = "live-"
)

// order is a request whose client keeps calling, with one key, until the service has taken it.
type order struct {
	key, chain string
	tries      int
	id         string // of its job
	first      *end   // as soon as somebody looked
}

// end is what has become of a job, as the admin listener shows it.
type end struct {
	State    string    `json:"state"`
	Key      string    `json:"idempotency_key"`
	Finished time.Time `json:"finished"`
	Result   *struct {
		Status int             `json:"status"`
		Body   json.RawMessage `json:"body"`
	} `json:"result"`
}

func (e *end) final() bool {
	return slices.Contains([]string{"done", "failed", "expired"}, e.State)
}

func (e *end) same(other *end) bool {
	if e.State != other.State || !e.Finished.Equal(other.Finished) || (e.Result == nil) != (other.Result == nil) {
		return false
	}
	return e.Result == nil || bytes.Equal(e.Result.Body, other.Result.Body)
}

// answer is the number of the call whose answer the result is.
func (e *end) answer() string {
	var body struct {
		ID string `json:"id"`
	}
	if e.Result == nil || json.Unmarshal(e.Result.Body, &body) != nil {
		return ""
	}
	return strings.TrimPrefix(body.ID, "msg_")
}

// order makes an order's call once; the id of its job is empty without one.
func (s *Stack) order(ctx context.Context, t testing.TB, o *order) (id string, a answer) {
	c := call{path: messages, chain: o.chain, header: map[string]string{keyHeader: o.key}}
	body := strings.Replace(requestBody(messages, false), "hello", "this is "+o.key+".", 1)
	a = s.do(s.request(ctx, t, c, strings.NewReader(body)))
	id, ok := strings.CutPrefix(a.header.Get("location"), "/jobs/")
	if a.err != nil || a.status != http.StatusAccepted || !ok {
		return "", a
	}
	return id, a
}

// place calls until there is a job.
func (s *Stack) place(ctx context.Context, t testing.TB, o *order) error {
	for {
		o.tries++
		id, a := s.order(ctx, t, o)
		if id != "" {
			o.id = id
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s has no job after %d tries, the last got %d %s %w", o.key, o.tries, a.status, a.body, errors.Join(a.err, ctx.Err()))
		}
		wait(ctx, 100*time.Millisecond)
	}
}

// spread does n things, some at a time.
func spread(n, atOnce int, do func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wg.Wait()
}

// look asks replica i for a job.
func (s *Stack) look(ctx context.Context, i int, id string) (*end, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.services[i].admin+"/jobs/"+id, nil)
	if err != nil {
		return nil, err
	}
	a := s.do(req)
	if a.err == nil && a.status != http.StatusOK {
		a.err = fmt.Errorf("GET /jobs/%s = %d %s", id, a.status, a.body)
	}
	if a.err != nil {
		return nil, a.err
	}
	var e end
	return &e, json.Unmarshal([]byte(a.body), &e)
}

// live calls a chain so many times a second, taking nothing degraded, until it is told to stop; then it returns how long
// each served call took. Calls that fail are only counted.
func (s *Stack) live(t testing.TB, chain string, perSecond int) (stop func() (took []time.Duration, failed int)) {
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var took []time.Duration
	failed := 0
	one := func(i int) {
		c := call{path: messages, chain: chain, id: t.Name() + " live",
			header: map[string]string{keyHeader: fmt.Sprint(liveKey, i), "x-llm-degrade": "none"}}
		began := time.Now()
		a := s.raw(within(t, patience), t, c)
		mu.Lock()
		defer mu.Unlock()
		if a.err != nil || a.status != http.StatusOK {
			failed++
		} else {
			took = append(took, time.Since(began))
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(perSecond))
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-tick.C:
				wg.Go(func() { one(i) })
			case <-ctx.Done():
				return
			}
		}
	})
	return func() ([]time.Duration, int) {
		cancel()
		wg.Wait()
		return took, failed
	}
}

// quantile of some durations.
func quantile(of []time.Duration, q float64) time.Duration {
	if len(of) == 0 {
		return 0
	}
	of = slices.Sorted(slices.Values(of))
	return of[min(len(of)-1, int(q*float64(len(of))))]
}
