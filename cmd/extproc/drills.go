package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"

	"understudy/pkg/admin"
	"understudy/pkg/chain/breaker"
	"understudy/pkg/classify"
	"understudy/pkg/config"
	"understudy/pkg/drill"
	"understudy/pkg/processor"
	"understudy/pkg/store"
	"understudy/pkg/token"
)

const (
	// tooManyErrors ends a drill on clients' requests that does not say itself how many failures are too many.
	tooManyErrors = 0.05
	// judgedOver is how long failures are looked back on, and judgedFrom over how many exchanges at least.
	judgedOver = 10 // seconds
	judgedFrom = 20
	// usualDrill is how long a drill lasts that does not say it itself.
	usualDrill = time.Minute
)

// drills are the game days: which requests meet which faults, and the server that plays them.
//
// Ownership: the app makes it with newDrills, start runs it, stop waits for all that start began.
// Concurrency: its methods from any goroutine.
type drills struct {
	processor *processor.Processor
	plans     *store.Bucket
	log       *slog.Logger
	listener  net.Listener // nil: this configuration plays no faults
	server    *http.Server

	mu    sync.Mutex // mu guards the fields below
	known map[string]*drill.Plan
	seen  map[string]*tally // of clients' exchanges, by chain

	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func newDrills(s *store.Store, p *processor.Processor, log *slog.Logger) (*drills, error) {
	d := &drills{
		processor: p, log: log, plans: s.Bucket(store.BucketOptions{Name: "drills", TTL: 2 * drill.Longest}),
		// A request for a fault is as long as one for its target, which is a little longer than what the client sent.
		server: &http.Server{Handler: http.MaxBytesHandler(drill.Handler(), 2*p.Book().Config.Server.MaxBody),
			ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute},
		known: map[string]*drill.Plan{}, seen: map[string]*tally{},
	}
	if at := p.Book().Config.Drill.Listen; at != (config.Address{}) {
		var err error
		if d.listener, err = listen(at, p.Book().Config.Server.SocketMode); err != nil {
			return nil, fmt.Errorf("drill.listen: %w", err)
		}
	}
	p.Tell(d)
	return d, nil
}

func (d *drills) start(ctx context.Context) {
	ctx, d.cancel = context.WithCancel(ctx)
	d.wg.Go(func() { d.plans.Watch(ctx, d.turn) })
	d.server.BaseContext = func(net.Listener) context.Context { return ctx }
	if d.listener != nil {
		d.wg.Go(func() { _ = d.server.Serve(d.listener) })
	}
}

func (d *drills) stop() error {
	d.cancel()
	err := d.server.Close() // faults that hang would never end by themselves
	d.wg.Wait()
	return err
}

// turn hears of a plan.
func (d *drills) turn(e store.Entry) {
	plan := &drill.Plan{}
	if err := json.Unmarshal(e.Value, plan); e.Deleted || err != nil {
		plan = nil
	}
	known := d.use(e.Key, plan)
	if now := time.Now(); plan != nil && now.Before(plan.Until) && !now.Before(known.Until) {
		d.later(known, "it had ended here before the store knew")
	}
}

// use goes by a plan, nil for none, and returns it as it holds here. Of one plan the earlier end holds: the store, when it
// is back, may still have one that has ended here meanwhile.
func (d *drills) use(chain string, plan *drill.Plan) *drill.Plan {
	d.mu.Lock()
	defer d.mu.Unlock()
	if plan != nil {
		if old := d.known[chain]; old != nil && old.ID == plan.ID && old.Until.Before(plan.Until) {
			plan = old
		}
		plan = plan.Heard(time.Now())
	}
	delete(d.known, chain)
	if plan != nil {
		d.known[chain] = plan
	}
	d.processor.Drill(maps.Clone(d.known))
	return plan
}

// asked is what a caller says of a drill.
type asked struct {
	Chain     string            `json:"chain"`
	Faults    map[string]string `json:"faults"`
	Share     float64           `json:"share"`
	For       string            `json:"for"`
	MaxErrors *float64          `json:"max_errors"`
}

// plan is what is asked, if it can be done.
func (d *drills) plan(js []byte) (*drill.Plan, error) {
	a := asked{}
	dec := json.NewDecoder(bytes.NewReader(js))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&a); err != nil {
		return nil, fmt.Errorf("%w: this is no plan: %w", admin.ErrRefused, err)
	}
	lasts, most := usualDrill, tooManyErrors
	if a.MaxErrors != nil {
		most = *a.MaxErrors
	}
	if a.For != "" {
		var err error
		if lasts, err = time.ParseDuration(a.For); err != nil {
			return nil, fmt.Errorf("%w: for: %w", admin.ErrRefused, err)
		}
	}
	now := time.Now()
	p := &drill.Plan{ID: rand.Text()[:12], Chain: a.Chain, Faults: a.Faults, Share: a.Share, MaxErrors: most,
		Until: now.Add(lasts).UTC(), Lasts: lasts}
	if err := p.Check(d.processor.Book().Config, now); err != nil {
		return nil, fmt.Errorf("%w: %w", admin.ErrRefused, err)
	}
	return p, nil
}

// Begin implements admin.Drills.
func (d *drills) Begin(ctx context.Context, js []byte) ([]byte, error) {
	p, err := d.plan(js)
	if err != nil {
		return nil, err
	}
	if p.Share == 0 {
		return nil, fmt.Errorf("%w: share: say which part of the traffic is to meet the faults, up to 1", admin.ErrRefused)
	}
	if js, err = json.Marshal(p); err == nil {
		err = d.first(ctx, p.Chain, js)
	}
	if err != nil {
		return nil, err
	}
	d.use(p.Chain, p) // who is told that it has begun may stop it here
	d.log.Warn("drill begins", "drill", p.ID, "chain", p.Chain, "share", p.Share, "until", p.Until)
	return js, nil
}

// first puts a chain's plan where no other one runs: whoever began that must find it, and can stop it.
func (d *drills) first(ctx context.Context, chain string, js []byte) error {
	e, err := d.plans.Get(ctx, chain)
	before := &drill.Plan{}
	switch {
	case errors.Is(err, store.ErrNotFound):
		_, err = d.plans.Create(ctx, chain, js, 0)
	case err == nil && json.Unmarshal(e.Value, before) == nil && time.Now().Before(before.Until):
		return fmt.Errorf("%w: chain %s is in drill %s until %s: stop that first", admin.ErrRefused, chain, before.ID, before.Until.Format(time.RFC3339))
	case err == nil:
		_, err = d.plans.Update(ctx, chain, js, e.Revision, 0)
	}
	if errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("%w: another drill of chain %s has just begun or ended", admin.ErrRefused, chain)
	}
	return err
}

// Token implements admin.Drills.
func (d *drills) Token(_ context.Context, js []byte) ([]byte, error) {
	p, err := d.plan(js)
	if err != nil {
		return nil, err
	}
	if p.Share != 0 {
		return nil, fmt.Errorf("%w: share: a token is for the requests that carry it", admin.ErrRefused)
	}
	name, err := p.Name()
	if err != nil {
		return nil, err
	}
	return json.Marshal(struct {
		ID      string    `json:"id"`
		Token   string    `json:"token"`
		Expires time.Time `json:"expires"`
	}{p.ID, token.SignUntil(d.processor.Key(), token.Drill, name, p.Until), p.Until})
}

// Stop implements admin.Drills. This replica stops at once, whatever the store says; of a drill that it has not heard of yet
// the store knows.
func (d *drills) Stop(ctx context.Context, id string) error {
	found := d.heard(id)
	if found == nil {
		var err error
		if found, err = d.stored(ctx, id); err != nil {
			return err
		}
	}
	return d.end(ctx, found, "as told")
}

// heard is the plan of that id that this replica goes by or went by last, nil for none.
func (d *drills) heard(id string) *drill.Plan {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.known {
		if p.ID == id {
			return p
		}
	}
	return nil
}

// stored is the plan of that id that the store has.
func (d *drills) stored(ctx context.Context, id string) (*drill.Plan, error) {
	chains, err := d.plans.Keys(ctx)
	if err != nil {
		return nil, err
	}
	for _, chain := range chains {
		p := &drill.Plan{}
		if e, err := d.plans.Get(ctx, chain); err == nil && json.Unmarshal(e.Value, p) == nil && p.ID == id {
			return p, nil
		}
	}
	return nil, admin.ErrUnknown
}

// end ends a plan here, and tells the others.
func (d *drills) end(ctx context.Context, p *drill.Plan, why string) error {
	over := *p
	over.Until = time.Now().UTC()
	d.use(p.Chain, &over)
	d.log.Warn("drill ends", "drill", p.ID, "chain", p.Chain, "why", why)
	js, err := json.Marshal(over)
	if err != nil {
		return err
	}
	// A watch says nothing of a value that was deleted before it began.
	if _, err = d.plans.Put(ctx, p.Chain, js, 0); err != nil {
		return fmt.Errorf("the drill has ended on this replica; the others could not be told: %w", err)
	}
	return nil
}

// later ends a plan from where nobody can wait for the store.
func (d *drills) later(p *drill.Plan, why string) {
	d.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), learnPatience)
		defer cancel()
		if err := d.end(ctx, p, why); err != nil {
			d.log.Error("other replicas could not be told that a drill ended", "drill", p.ID, "error", err.Error())
		}
	})
}

// Exchange implements processor.Watcher: a drill that hurts clients ends by itself.
func (d *drills) Exchange(r *processor.Record) {
	plan := d.processor.Drilling(r.Chain)
	if plan == nil || r.Job || r.Drill != "" && plan.ID != r.Drill {
		return
	}
	d.mu.Lock()
	t := d.seen[r.Chain]
	if t == nil || t.drill != plan.ID {
		t = &tally{drill: plan.ID}
		d.seen[r.Chain] = t
	}
	stop := t.add(r.End, failed(r), plan.MaxErrors)
	d.mu.Unlock()
	if stop {
		d.later(plan, "too many requests fail")
	}
}

// failed says whether an exchange came to nothing for its client, also where that has left before a fault was over.
func failed(r *processor.Record) bool {
	return r.Outcome == processor.OutcomeFailed || r.Outcome == processor.OutcomeCanceled && r.Committed.IsZero() && (r.Fault != "" || r.Drill != "" && len(r.Past) > 0)
}

// Attempt implements processor.Watcher.
func (d *drills) Attempt(string, classify.Verdict) {}

// Transition implements processor.Watcher.
func (d *drills) Transition(breaker.Transition) {}

// tally is what became of a chain's exchanges during a drill: of those in the last seconds, and of the last few where
// there were no more in that time. Each replica judges by itself, from its own: it needs no store for that.
type tally struct {
	drill  string
	second [judgedOver]struct {
		at          int64
		all, failed int
	}
	last [judgedFrom]bool // which failed; those that have not come yet did not
	next int
	told bool
}

// add counts an exchange and says, once, that a larger part than most has failed.
func (t *tally) add(at time.Time, failed bool, most float64) bool {
	now := at.Unix()
	s := &t.second[now%judgedOver]
	if s.at != now {
		s.at, s.all, s.failed = now, 0, 0
	}
	s.all++
	if failed {
		s.failed++
	}
	t.last[t.next] = failed
	t.next = (t.next + 1) % judgedFrom
	all, bad := t.lately(now)
	if t.told || float64(bad) <= most*float64(all) {
		return false
	}
	t.told = true
	return true
}

// lately is how many exchanges are judged, and how many of them failed.
func (t *tally) lately(now int64) (all, bad int) {
	for _, s := range t.second {
		if now-s.at < judgedOver {
			all, bad = all+s.all, bad+s.failed
		}
	}
	if all >= judgedFrom {
		return all, bad
	}
	bad = 0
	for _, failed := range t.last {
		if failed {
			bad++
		}
	}
	return judgedFrom, bad
}
