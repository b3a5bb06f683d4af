package fleet

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a store in memory, and the network between it and the replicas.
type world struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change
	buckets map[string]*bucketData
	nodes   []*node
	loss    float64       // share of news lost on the way to each replica
	delay   time.Duration // of news and watches, at most
	seed    *rand.Rand
	calls   int // of the store
}

type bucketData struct {
	seq     uint64
	entries map[string]store.Entry
}

// link is how a replica reaches the store.
type link int

const (
	up      link = iota
	down         // every call fails at once
	hanging      // every call waits for its context
	deaf         // writes are made, but their answers, news and watches are lost
)

// node is one replica's end of the store.
type node struct {
	w    *world
	link link
	subs map[int]func([]byte)
	next int
	busy sync.Mutex // one call of a subscriber at a time
}

func newWorld() *world {
	return &world{changed: make(chan struct{}), buckets: map[string]*bucketData{}, seed: rand.New(rand.NewPCG(1, 2))}
}

func (w *world) node() *node {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := &node{w: w, subs: map[int]func([]byte){}}
	w.nodes = append(w.nodes, n)
	return n
}

// change runs f with the world locked, and lets the watches look.
func (w *world) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	close(w.changed)
	w.changed = make(chan struct{})
}

func (n *node) set(l link) { n.w.change(func() { n.link = l }) }

// rough makes news be lost, and everything late by at most delay.
func (w *world) rough(loss float64, delay time.Duration) {
	w.change(func() { w.loss, w.delay = loss, delay })
}

// asked is how many calls the store has had.
func (w *world) asked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls
}

func (w *world) late() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wait()
}

// wait is how late something is. Caller holds mu.
func (w *world) wait() time.Duration {
	if w.delay == 0 {
		return 0
	}
	return time.Duration(w.seed.Int64N(int64(w.delay)))
}

// Publish implements News.
func (n *node) Publish(_ string, data []byte) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if n.link != up && n.link != deaf {
		return
	}
	for _, to := range n.w.nodes {
		if n.w.seed.Float64() >= n.w.loss {
			time.AfterFunc(n.w.wait(), func() { to.deliver(data) })
		}
	}
}

func (n *node) deliver(data []byte) {
	n.busy.Lock()
	defer n.busy.Unlock()
	n.w.mu.Lock()
	subs := slices.Collect(maps.Values(n.subs))
	if n.link != up {
		subs = nil
	}
	n.w.mu.Unlock()
	for _, f := range subs {
		f(data)
	}
}

// Subscribe implements News.
func (n *node) Subscribe(_ string, f func([]byte)) (stop func()) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.next++
	id := n.next
	n.subs[id] = f
	return func() {
		n.w.mu.Lock()
		defer n.w.mu.Unlock()
		delete(n.subs, id)
	}
}

// bucket is a replica's view of a bucket.
type bucket struct {
	n    *node
	name string
}

// Create implements Bucket.
func (b bucket) Create(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error) {
	return b.write(ctx, key, value, ttl, func(e store.Entry, there bool) error {
		if there {
			return store.ErrExists
		}
		return nil
	})
}

// Update implements Bucket.
func (b bucket) Update(ctx context.Context, key string, value []byte, rev uint64, ttl time.Duration) (uint64, error) {
	return b.write(ctx, key, value, ttl, func(e store.Entry, there bool) error {
		if !there || e.Revision != rev {
			return store.ErrConflict
		}
		return nil
	})
}

func (b bucket) write(ctx context.Context, key string, value []byte, ttl time.Duration, ok func(store.Entry, bool) error) (rev uint64, err error) {
	w := b.n.w
	if err := b.n.reach(ctx); err != nil {
		return 0, err
	}
	w.change(func() {
		d := w.data(b.name)
		e, there := d.entries[key]
		if err = ok(e, there); err != nil {
			return
		}
		d.seq++
		e = store.Entry{Key: key, Value: slices.Clone(value), Revision: d.seq}
		d.entries[key] = e
		if ttl > 0 {
			time.AfterFunc(ttl, func() { w.expire(b.name, e) })
		}
		if rev = d.seq; b.n.link == deaf {
			rev, err = 0, store.ErrDown
		}
	})
	time.Sleep(b.n.w.late())
	return rev, err
}

// reach fails where the store cannot be reached.
func (n *node) reach(ctx context.Context) error {
	n.w.mu.Lock()
	n.w.calls++
	l := n.link
	n.w.mu.Unlock()
	switch l {
	case down:
		return store.ErrDown
	case hanging:
		<-ctx.Done()
		return fmt.Errorf("%w: %w", store.ErrDown, ctx.Err())
	}
	return ctx.Err()
}

func (w *world) data(name string) *bucketData {
	d := w.buckets[name]
	if d == nil {
		d = &bucketData{entries: map[string]store.Entry{}}
		w.buckets[name] = d
	}
	return d
}

func (w *world) expire(name string, e store.Entry) {
	w.change(func() {
		if d := w.data(name); d.entries[e.Key].Revision == e.Revision {
			delete(d.entries, e.Key)
		}
	})
}

// Watch implements Bucket.
func (b bucket) Watch(ctx context.Context, f func(store.Entry)) {
	w, seen := b.n.w, map[string]uint64{}
	linked := true
	for {
		w.mu.Lock()
		changed, wait := w.changed, w.wait()
		var tell []store.Entry
		if b.n.link == up {
			if !linked { // all current values come again
				tell = slices.Collect(maps.Values(w.data(b.name).entries))
			}
			tell = append(tell, w.data(b.name).news(seen)...)
		}
		linked = b.n.link == up
		w.mu.Unlock()
		if wait > 0 && len(tell) > 0 {
			time.Sleep(wait)
		}
		for _, e := range tell {
			f(e)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// news is what has changed since seen.
func (d *bucketData) news(seen map[string]uint64) (tell []store.Entry) {
	for key, e := range d.entries {
		if seen[key] != e.Revision {
			seen[key] = e.Revision
			tell = append(tell, e)
		}
	}
	for key, rev := range seen {
		if _, there := d.entries[key]; !there {
			delete(seen, key)
			tell = append(tell, store.Entry{Key: key, Revision: rev, Deleted: true})
		}
	}
	return tell
}

// provider is what the targets' provider is like, for probes.
type provider struct {
	mu      sync.Mutex
	answer  breaker.Outcome
	takes   time.Duration // for one probe
	probes  []time.Time   // when each began
	running []string      // by whom, now
	most    int           // at once
}

func (p *provider) is(answer breaker.Outcome, takes time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer, p.takes = answer, takes
}

func (p *provider) probed() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.probes)
}

// atOnce is how many probes ran at once, at most.
func (p *provider) atOnce() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most
}

// by is who probes now.
func (p *provider) by() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.running)
}

func (p *provider) begin(name string) (answer breaker.Outcome, takes time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.probes, p.running = append(p.probes, time.Now()), append(p.running, name)
	p.most = max(p.most, len(p.running))
	return p.answer, p.takes
}

func (p *provider) end(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = slices.DeleteFunc(p.running, func(by string) bool { return by == name })
}

// replica is one process of the fleet.
type replica struct {
	name    string
	node    *node
	breaker *breaker.Breaker
	fleet   *Fleet
	target  Target
	mu      sync.Mutex
	heard   []breaker.Transition
}

const target = "a/sonnet"

func settings() breaker.Settings {
	return breaker.Settings{Failures: 5, OpenFor: time.Minute, MaxOpenFor: 2 * time.Minute, Probe: true}
}

// replica starts a process on its own node of the world.
func (w *world) replica(t testing.TB, s breaker.Settings, p *provider) *replica {
	w.mu.Lock()
	name := fmt.Sprint("r", len(w.nodes))
	w.mu.Unlock()
	return start(t, name, w.node(), s, p)
}

func start(t testing.TB, name string, n *node, s breaker.Settings, p *provider, edit ...func(*Options)) *replica {
	r := &replica{name: name, node: n}
	r.breaker = breaker.New(target, s, func(tr breaker.Transition) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.heard = append(r.heard, tr)
	})
	r.target = Target{Name: target, Breaker: r.breaker, Probe: s.Probe, Ratio: s.Ratio > 0}
	o := Options{Replica: name, Targets: func() []Target { return []Target{r.target} }, News: n,
		Probe:  func(ctx context.Context, _ string) { r.probe(ctx, p) },
		Truths: bucket{n, "truths"}, Cooldowns: bucket{n, "cooldowns"}, Trials: bucket{n, "trials"}}
	for _, e := range edit {
		e(&o)
	}
	r.fleet = New(o)
	r.fleet.Start(t.Context())
	return r
}

// probe is what the prober of pkg/recovery does, without the call.
func (r *replica) probe(ctx context.Context, p *provider) {
	permit, err := r.breaker.Trial()
	if err != nil {
		return
	}
	defer permit.Release()
	answer, takes := p.begin(r.name)
	defer p.end(r.name)
	select {
	case <-time.After(takes):
		permit.Done(answer)
	case <-ctx.Done():
	}
}

// call makes a request and says whether the breaker let it.
func (r *replica) call(o breaker.Outcome) bool {
	permit, err := r.breaker.Allow()
	if err != nil {
		return false
	}
	permit.Done(o)
	return true
}

func (r *replica) fail(n int) {
	for range n {
		r.call(breaker.Failure)
	}
}

// kill ends a process as the machine does: nothing is given back, and a probe that runs gets no answer.
func (r *replica) kill() {
	r.node.set(down)
	r.fleet.Stop()
}

func stop(all ...*replica) {
	for _, r := range all {
		r.fleet.Stop()
	}
}

// went counts how often the replica's breaker went to a state.
func (r *replica) went(to breaker.State) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, tr := range r.heard {
		if tr.To == to {
			n++
		}
	}
	return n
}

func states(all ...*replica) (s []string) {
	for _, r := range all {
		s = append(s, r.breaker.State().String())
	}
	return s
}

// expect says whether all replicas' breakers are in one state, with one truth that the store has, too.
func expect(t testing.TB, want breaker.State, all ...*replica) {
	t.Helper()
	truths := map[breaker.Truth]bool{}
	for _, r := range all {
		truths[r.breaker.Truth()] = true
	}
	if got := states(all...); len(truths) != 1 || slices.ContainsFunc(got, func(s string) bool { return s != want.String() }) {
		t.Errorf("states = %v with truths %v, want all %s with one truth", got, slices.Collect(maps.Keys(truths)), want)
	}
}
