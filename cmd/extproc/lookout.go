package main

import (
	"cmp"
	"maps"
	"strings"
	"sync"
	"time"

	"understudy/pkg/admin"
	"understudy/pkg/chain/breaker"
	"understudy/pkg/classify"
	"understudy/pkg/config"
	"understudy/pkg/processor"
)

const (
	// window is how far back a chain's traffic is counted, in slots.
	window  = 5 * time.Minute
	slot    = 10 * time.Second
	windows = int64(window / slot)
	// keptVerdicts are of each target; keptEvents are failovers, and transitions.
	keptVerdicts = 8
	keptEvents   = 50
	// maxWord is what is kept of a word that a client or a provider has said, in bytes.
	maxWord = 120
	// maxText is what is kept of a text of ours, in bytes: a file can have a fault in each of its lines.
	maxText = 4 << 10
)

// lookout remembers what has happened lately, for the status page.
//
// Concurrency: it hears of what happens on the goroutine to which it happens. Its lock is held for as long as it takes to
// write down a few words, at the end of an attempt or an exchange.
type lookout struct {
	book func() *config.Config
	why  func(target string) string // why a target failed last
	kept func(target string) bool   // an operator keeps its breaker open

	mu          sync.Mutex // guards the fields below
	verdicts    map[string]*ring[admin.Verdict]
	failovers   ring[admin.Failover]
	transitions ring[admin.Transition]
	traffic     map[string]*flow // by chain
	config      admin.Config     // but for file and hash
}

func newLookout(p *processor.Processor) *lookout {
	return &lookout{
		book: func() *config.Config { return p.Book().Config },
		why:  func(target string) string { return lastOf(p.Book().Breaker(target)) },
		kept: func(target string) bool {
			b := p.Book().Breaker(target)
			return b != nil && b.Forced() == breaker.ForcedOpen
		},
		verdicts: map[string]*ring[admin.Verdict]{}, traffic: map[string]*flow{},
		config: admin.Config{Loaded: time.Now().UTC(), OK: true},
	}
}

func lastOf(b *breaker.Breaker) string {
	if b == nil {
		return ""
	}
	return b.Last()
}

// Attempt implements processor.Watcher.
func (l *lookout) Attempt(target string, v classify.Verdict) {
	what := admin.Verdict{At: time.Now().UTC(), Class: v.Class.String(), Detail: word(v.Detail)}
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.verdicts[target]
	if r == nil {
		r = &ring[admin.Verdict]{}
		l.verdicts[target] = r
	}
	r.add(what, keptVerdicts)
}

// Exchange implements processor.Watcher. Runs of jobs, and marked drill requests, are no traffic of clients.
func (l *lookout) Exchange(r *processor.Record) {
	if r.Job || r.Marked {
		return
	}
	over, failed := l.failover(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.traffic[r.Chain]
	if t == nil {
		t = &flow{}
		l.traffic[r.Chain] = t
	}
	t.add(r)
	if failed {
		l.failovers.add(over, keptEvents)
	}
}

// failover is what is told of an exchange that its first target has not served.
func (l *lookout) failover(r *processor.Record) (f admin.Failover, ok bool) {
	switch r.Outcome {
	case processor.OutcomeFallback, processor.OutcomeDegraded, processor.OutcomeFailed:
	default:
		return f, false
	}
	f = admin.Failover{
		At: r.End.UTC(), Chain: r.Chain, Exchange: word(cmp.Or(r.ID, r.RequestID)), Outcome: r.Outcome, Mode: r.Mode, Why: r.Reason,
		Attempts: r.Attempts, Took: max(0, r.End.Sub(r.Start).Milliseconds()), Drill: r.Drill,
	}
	if r.Outcome == processor.OutcomeFallback {
		f.To = r.Target
	}
	if ch := l.book().ChainNamed(r.Chain); ch != nil {
		f.From = ch.Rungs[0].Target.Name
	}
	if n := len(r.Past); n > 0 {
		f.From, f.Lost = r.Past[0].Target, max(0, r.Past[n-1].At.Sub(r.Start).Milliseconds())
	}
	f.Why = cmp.Or(f.Why, l.reason(r, f.From))
	return f, true
}

// reason is why a target has not served an exchange that tells no reason itself.
func (l *lookout) reason(r *processor.Record, from string) string {
	switch {
	case r.Outcome == processor.OutcomeFailed && r.Verdict.Class != classify.None:
		return r.Verdict.Class.String()
	case len(r.Past) == 0 && l.kept(from):
		return "forced open"
	}
	return ""
}

// Transition implements processor.Watcher.
func (l *lookout) Transition(t breaker.Transition) {
	by := "the fleet"
	if t.Own {
		by = "this replica"
	}
	l.note(admin.Transition{Target: t.Target, From: t.From.String(), To: t.To.String(), Why: l.why(t.Target), By: by})
}

// forced hears of an operator's word on a breaker.
func (l *lookout) forced(target string, from, to breaker.Force) {
	l.note(admin.Transition{Target: target, From: inWords(from), To: inWords(to), By: "an operator"})
}

func inWords(f breaker.Force) string {
	if f == breaker.Released {
		return "released"
	}
	return "forced " + f.String()
}

func (l *lookout) note(t admin.Transition) {
	t.At = time.Now().UTC()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.transitions.add(t, keptEvents)
}

// reloaded hears what became of a changed config.
func (l *lookout) reloaded(err error) {
	now := time.Now().UTC()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.config.OK, l.config.Error, l.config.Tried = false, text(err.Error()), &now
		return
	}
	l.config = admin.Config{Loaded: now, OK: true}
	l.forget(l.book())
}

// forget forgets what is of no config any more, also where nobody looks. Caller holds mu.
func (l *lookout) forget(c *config.Config) {
	maps.DeleteFunc(l.verdicts, func(target string, _ *ring[admin.Verdict]) bool { return c.Targets[target] == nil })
	maps.DeleteFunc(l.traffic, func(name string, _ *flow) bool { return c.ChainNamed(name) == nil })
}

// ring keeps the latest of what is added.
type ring[T any] struct {
	items []T
	next  int // the oldest, once it is full
}

// add keeps an item, and at most so many.
func (r *ring[T]) add(item T, most int) {
	if len(r.items) < most {
		r.items = append(r.items, item)
		return
	}
	r.items[r.next] = item
	r.next = (r.next + 1) % most
}

// latest is a copy, the latest first.
func (r *ring[T]) latest() []T {
	out := make([]T, 0, len(r.items))
	for i := range r.items {
		out = append(out, r.items[(r.next+len(r.items)-1-i)%len(r.items)])
	}
	return out
}

// flow counts a chain's exchanges, in slots of time that are used again and again.
type flow struct {
	slots [windows]struct {
		at    int64
		count sums
	}
}

// sums are what became of exchanges, and how many each rung has answered.
type sums struct {
	admin.Outcomes
	rungs []int
}

func (t *flow) add(r *processor.Record) {
	at := r.End.UnixNano() / int64(slot)
	s := &t.slots[at%windows]
	if s.at != at {
		s.at = at
		s.count = sums{rungs: s.count.rungs[:0]}
	}
	s.count.add(r.Outcome, r.Rung)
}

func (c *sums) add(outcome string, rung int) {
	switch outcome {
	case processor.OutcomeServed:
		c.Served++
	case processor.OutcomeFallback:
		c.Fallback++
	case processor.OutcomeDegraded:
		c.Degraded++
		return
	case processor.OutcomeFailed:
		c.Failed++
		return
	default:
		c.Canceled++
		return
	}
	for rung >= len(c.rungs) {
		c.rungs = append(c.rungs, 0)
	}
	if rung >= 0 {
		c.rungs[rung]++
	}
}

// sum is the window that ends now, with as many rungs as the chain has.
func (t *flow) sum(now time.Time, rungs int) sums {
	sum := sums{rungs: make([]int, rungs)}
	if t == nil {
		return sum
	}
	for _, s := range t.slots {
		if now.UnixNano()/int64(slot)-s.at >= windows {
			continue
		}
		sum.Served += s.count.Served
		sum.Fallback += s.count.Fallback
		sum.Degraded += s.count.Degraded
		sum.Failed += s.count.Failed
		sum.Canceled += s.count.Canceled
		for i, n := range s.count.rungs[:min(rungs, len(s.count.rungs))] {
			sum.rungs[i] += n
		}
	}
	return sum
}

// text is the beginning of a text of ours.
func text(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "…"
}

// word is a piece of what somebody else has said, without the rest of it in memory.
func word(s string) string {
	return strings.Clone(strings.ToValidUTF8(s[:min(len(s), maxWord)], ""))
}
