//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"understudy/internal/scripted"
)

// ordeal is a queue whose service dies again and again while it takes orders, and while it works them off.
type ordeal struct {
	*Stack
	till   *till
	orders []*order
	kills  int             // half of them while it takes, half while it works
	strike func(half int)  // what else befalls in the middle of each half; nil: nothing
	spared int             // so many of the first replicas are not killed while it works, but freeze
	answer string          // how its target answers once it is back
	bound  time.Duration   // of each half: a job whose runs died again and again is left alone for up to five minutes
	live   int             // requests a second, while it works
	seen   map[string]bool // numbers of calls that are some job's result
}

// The chains of orders.
const (
	steady = "steady" // its target comes back
	brief  = "brief"  // its target never does, and its jobs grow old
	// briefEvery is how many orders one is of the brief kind.
	briefEvery = 20
)

// ordealSize is how many orders there are: E2E_JOBS, or n.
func ordealSize(t *testing.T, n int) int {
	t.Helper()
	if size := os.Getenv("E2E_JOBS"); size != "" {
		var err error
		if n, err = strconv.Atoi(size); err != nil {
			t.Fatalf("E2E_JOBS: %v", err)
		}
	}
	return n
}

func startOrdeal(t *testing.T, n int, p plan) *ordeal {
	t.Helper()
	o := &ordeal{till: &till{}, seen: map[string]bool{}, answer: "ok", bound: 7*time.Minute + time.Duration(n)*100*time.Millisecond}
	quick := fileBreaker{Failures: 3, OpenFor: time.Second, MaxOpenFor: 2 * time.Second}
	p.chains = []chain{
		{name: steady, api: "anthropic", on: []string{"a"}, breaker: quick, more: fileChain{Degrade: []string{"queue"}}},
		{name: brief, api: "anthropic", on: []string{"b"}, breaker: quick, more: fileChain{Degrade: []string{"queue"}, Queue: map[string]any{"max_age": "15s"}}},
	}
	p.before = o.till.before
	p.edit = func(f *file) {
		// The budget is of live traffic: all of it, so that the drain of many jobs ends in minutes.
		f.Recovery = map[string]any{"rate": "2000/s", "retry_budget": 1.0}
	}
	o.Stack = startStack(t, p)
	for _, name := range []string{"a", "b"} {
		o.set(t, name, "529")
	}
	for i := range n {
		kind := steady
		if i%briefEvery == 0 {
			kind = brief
		}
		o.orders = append(o.orders, &order{key: fmt.Sprint(orderKey, i), chain: kind})
	}
	return o
}

func (o *ordeal) run(t *testing.T) {
	t.Helper()
	o.accept(t)
	o.repeat(t)
	o.drain(t)
	o.check(t)
	o.survives(t)
}

// accept places every order while nothing answers.
func (o *ordeal) accept(t *testing.T) {
	t.Helper()
	var accepted atomic.Int64
	ctx, began, done := within(t, o.bound), time.Now(), make(chan struct{})
	go func() {
		defer close(done)
		spread(len(o.orders), 40, func(i int) {
			if err := o.place(ctx, t, o.orders[i]); err != nil {
				t.Error(err)
			}
			accepted.Add(1)
		})
	}()
	o.befall(ctx, t, 0, func() int { return int(accepted.Load()) }, len(o.orders), o.kills/2)
	<-done
	took, again := time.Since(began), 0
	for _, order := range o.orders {
		again += order.tries - 1
	}
	if again == 0 && len(o.services) == 1 {
		t.Log("no client had to call again: Envoy bridged the kills")
	}
	t.Logf("%d orders were taken in %s, %.0f a second, %d kills included; clients called %d times again",
		len(o.orders), took.Round(time.Millisecond), float64(len(o.orders))/took.Seconds(), o.kills/2, again)
	if t.Failed() {
		t.FailNow()
	}
}

// befall kills replicas, at random moments on the way from 0 to all, and starts each again.
func (o *ordeal) befall(ctx context.Context, t *testing.T, half int, progress func() int, all, kills int) {
	t.Helper()
	var moments []int
	for range kills {
		moments = append(moments, 1+rand.IntN(all*9/10))
	}
	slices.Sort(moments)
	for i, moment := range moments {
		for progress() < moment && ctx.Err() == nil {
			wait(ctx, time.Millisecond)
		}
		if i == kills/2 && o.strike != nil {
			o.strike(half)
		}
		victim := rand.IntN(len(o.services))
		if half == 1 {
			victim = o.spared + rand.IntN(len(o.services)-o.spared)
		}
		o.services[victim].kill()
		wait(ctx, time.Duration(rand.IntN(3000))*time.Millisecond) // Envoy makes up for a short absence
		if err := o.startService(t, victim); err != nil {
			t.Fatal(err)
		}
	}
}

// repeat asks again for some orders that have their job: they have it still, and no other.
func (o *ordeal) repeat(t *testing.T) {
	t.Helper()
	ctx := within(t, o.bound)
	spread(len(o.orders)/10, 10, func(i int) {
		before := *o.orders[10*i]
		again := before
		if err := o.place(ctx, t, &again); err != nil || again.id != before.id {
			t.Errorf("%s got job %s, then %s, %v, want one job", before.key, before.id, again.id, err)
		}
	})
}

// drain lets one target come back, and waits until every job has ended.
func (o *ordeal) drain(t *testing.T) {
	t.Helper()
	base, began, ctx := o.till.orders.Load(), time.Now(), within(t, o.bound)
	o.set(t, "a", o.answer)
	stop := o.Stack.live(t, steady, o.live)
	var aside sync.WaitGroup
	aside.Go(func() { o.lookEarly(ctx) })
	for _, service := range o.services[:o.spared] {
		aside.Go(func() { service.sleeps(ctx) })
	}
	o.befall(ctx, t, 1, func() int { return int(o.till.orders.Load() - base) }, len(o.orders)*19/20, o.kills-o.kills/2)
	o.await(ctx, t)
	took := time.Since(began)
	aside.Wait()
	_, failed := stop()
	looked := 0
	for _, order := range o.orders {
		if order.first != nil {
			looked++
		}
	}
	t.Logf("all had ended after %s, %.0f a second, with %d live requests a second (%d of them failed at kills) and %d kills; %d were looked at meanwhile",
		took.Round(time.Millisecond), float64(len(o.orders))/took.Seconds(), o.live, failed, o.kills-o.kills/2, looked)
}

// sleeps freezes a replica that has jobs in flight until others have run them, too: when it thaws it has their answers.
func (s *service) sleeps(ctx context.Context) {
	wait(ctx, 2500*time.Millisecond)
	s.freeze()
	wait(ctx, 38*time.Second) // a job stays with a silent replica for 30 s, and somebody must look before it thaws
	s.thaw()
	wait(ctx, 3*time.Second) // for what it says then
}

// lookEarly notes how jobs have ended while the service still dies: that must be how they stay.
func (o *ordeal) lookEarly(ctx context.Context) {
	for _, order := range o.orders {
		for ctx.Err() == nil {
			e, err := o.look(ctx, o.spared+rand.IntN(len(o.services)-o.spared), order.id)
			if err == nil && e.final() {
				order.first = e
				break
			}
			wait(ctx, 50*time.Millisecond)
		}
		if wait(ctx, 2*time.Millisecond); ctx.Err() != nil {
			return
		}
	}
}

// await waits until no chain has a job that has not ended.
func (o *ordeal) await(ctx context.Context, t *testing.T) {
	t.Helper()
	for said := "nothing was heard of the queues"; ; {
		m, err := o.metrics(ctx, len(o.services)-1)
		left, figures := m.sum("understudy_queue_jobs"), m.count("understudy_queue_jobs")
		if err == nil && left == 0 && figures == 4 { // a queue that does not answer is left out
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("after %s: %s", o.bound, said)
		}
		if said = fmt.Sprintf("%v jobs have not ended, as %d of 4 figures say", left, figures); err != nil {
			said = err.Error()
		}
		wait(ctx, 200*time.Millisecond)
	}
}

// check holds what the service says against what the providers have seen.
func (o *ordeal) check(t *testing.T) {
	t.Helper()
	calls := o.callsByKey(t)
	runs, twice, jobs := 0, 0, map[string]string{}
	for _, order := range o.orders {
		e, err := o.look(within(t, patience), 0, order.id)
		if err != nil {
			t.Errorf("%s: %v", order.key, err)
			continue
		}
		o.ended(t, order, e, calls[order.key])
		if other := jobs[order.id]; other != "" {
			t.Errorf("%s and %s have one job", other, order.key)
		}
		jobs[order.id] = order.key
		runs += len(calls[order.key])
		if well(calls[order.key]) > 1 {
			twice++
		}
	}
	for i := range o.services {
		for _, id := range o.services[i].jobsRun(t) {
			if jobs[id] == "" {
				t.Errorf("replica %d ran job %s, which no client knows", i, id)
			}
		}
	}
	t.Logf("%d jobs, %d calls of providers under their keys, clients' own included; %d jobs were answered more than once", len(o.orders), runs, twice)
}

// well is how many of the calls were answered well.
func well(calls []scripted.Request) (n int) {
	for _, r := range calls {
		if r.Step.Kind == "ok" {
			n++
		}
	}
	return n
}

// callsByKey are the calls of all providers; none has a key that no client used, or the body of another's request.
func (o *ordeal) callsByKey(t *testing.T) map[string][]scripted.Request {
	t.Helper()
	calls := map[string][]scripted.Request{}
	for _, order := range o.orders {
		calls[order.key] = nil
	}
	for _, name := range []string{"a", "b"} {
		for _, r := range o.providers[name].Requests("") {
			keys := r.Header.Values(keyHeader)
			if len(keys) == 1 && strings.HasPrefix(keys[0], liveKey) {
				continue
			}
			if _, known := calls[strings.Join(keys, ",")]; !known || len(keys) != 1 {
				t.Errorf("provider %s was called with the keys %q, want one of an order", name, keys)
				continue
			}
			if !strings.Contains(string(r.Body), "this is "+keys[0]+".") {
				t.Errorf("provider %s was sent %s under %s", name, r.Body, keys[0])
			}
			calls[keys[0]] = append(calls[keys[0]], r)
		}
	}
	return calls
}

// ended checks one job's end.
func (o *ordeal) ended(t *testing.T, order *order, e *end, calls []scripted.Request) {
	t.Helper()
	if order.first != nil && !order.first.same(e) {
		t.Errorf("%s was %+v, and is %+v", order.key, order.first, e)
	}
	want := map[string]string{steady: "done", brief: "expired"}[order.chain]
	if e.State != want || e.Key != order.key {
		t.Errorf("%s is %s under the key %s, want %s", order.key, e.State, e.Key, want)
		return
	}
	if want == "expired" {
		return
	}
	number := e.answer()
	given := slices.ContainsFunc(calls, func(r scripted.Request) bool { return r.ID == number && r.Step.Kind == "ok" })
	if !given || o.seen[number] {
		t.Errorf("%s has the answer of call %q, seen before: %v, which is none of the %d under its key", order.key, number, o.seen[number], len(calls))
	}
	o.seen[number] = true
}

// jobsRun are the jobs of which the replica says that it has run them, before and after its deaths.
func (s *service) jobsRun(t *testing.T) (ids []string) {
	t.Helper()
	log, err := os.ReadFile(s.log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		var said struct{ Msg, Job string }
		if json.Unmarshal([]byte(line), &said) == nil && said.Msg == "job" {
			ids = append(ids, said.Job)
		}
	}
	if len(ids) == 0 {
		t.Errorf("%s says of no job that it has run", s.name)
	}
	return ids
}

// E2E_JOBS=10000 is the whole of it: ten thousand orders and ten kills.
func TestNoAcceptedJobIsLostOrDoubledByKills(t *testing.T) {
	t.Parallel()
	n := ordealSize(t, 1000)
	o := startOrdeal(t, n, plan{})
	o.kills, o.live = 5, 100
	if n >= 10_000 {
		o.kills, o.live = 10, 200
	}
	o.run(t)
}

func TestAFleetLosesNoJobWithANATSServerKilled(t *testing.T) {
	t.Parallel()
	nats := startNATS(t, 3)
	o := startOrdeal(t, ordealSize(t, 200), plan{replicas: 3, nats: nats})
	o.kills, o.live, o.answer = 4, 100, "ok after=300ms"
	o.strike = func(half int) {
		if half == 0 {
			nats.nodes[nats.leader(t, "jobs")].kill()
			return
		}
		nats.start(t) // the first one is back before another goes
		nats.nodes[rand.IntN(3)].kill()
	}
	o.spared = 1 // it freezes instead
	o.run(t)
}
