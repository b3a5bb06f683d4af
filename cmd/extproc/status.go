package main

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"understudy/pkg/admin"
	"understudy/pkg/chain"
	"understudy/pkg/chain/breaker"
	"understudy/pkg/chain/budget"
	"understudy/pkg/config"
	"understudy/pkg/degrade/queue"
	"understudy/pkg/drill"
	"understudy/pkg/envoyconf/xds"
	"understudy/pkg/recovery"
)

// The Envoys that the service is made for: minor versions between those that are tested.
const (
	oldestEnvoy = "1.36.4"
	newestEnvoy = "1.40.0"
)

// statusPatience bounds what a look at the status waits for the store.
const statusPatience = 500 * time.Millisecond

// status gathers what the status page shows.
func (a *app) status() admin.Status {
	book, now := a.processor.Book(), time.Now()
	s := admin.Status{
		At: now.UTC(), Replica: a.processor.Replica(), Store: "up", Envoy: a.envoys(), Window: int(window / time.Second),
		Chains: []admin.Chain{}, Targets: []admin.Target{}, Providers: a.providers(book), Drills: []admin.Drill{}, Faults: faults(book.Config),
	}
	if a.shared.ready() != nil {
		s.Store = "down"
	}
	a.learnBudgets(book.Config)
	money, queues := a.spent(), a.queues()
	for _, ch := range book.Config.Chains {
		c := a.chain(book.Plan(ch), queues)
		c.SpentUSD = money[ch.Name].USD()
		s.Chains = append(s.Chains, c)
		if p := a.processor.Drilling(ch.Name); p != nil {
			s.Drills = append(s.Drills, admin.Drill{ID: p.ID, Chain: p.Chain, Faults: p.Faults, Share: p.Share, MaxErrors: p.MaxErrors, Until: p.Until})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(book.Config.Targets)) {
		s.Targets = append(s.Targets, target(book, book.Config.Targets[name], now))
	}
	a.lookout.show(&s, book.Config)
	return s
}

// show adds what has happened lately, and forgets what is of no config any more.
func (l *lookout) show(s *admin.Status, c *config.Config) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(c)
	s.Config = l.config
	s.Config.File, s.Config.Hash = c.File, c.Hash
	s.Failovers, s.Transitions = l.failovers.latest(), l.transitions.latest()
	for i := range s.Targets {
		s.Targets[i].Verdicts = []admin.Verdict{}
		if r := l.verdicts[s.Targets[i].Name]; r != nil {
			s.Targets[i].Verdicts = r.latest()
		}
	}
	for i := range s.Chains {
		ch := &s.Chains[i]
		counted(ch, l.traffic[ch.Name].sum(s.At, len(ch.Rungs)))
	}
}

// counted gives a chain the counts of its traffic.
func counted(ch *admin.Chain, c sums) {
	ch.Outcomes = c.Outcomes
	for i, n := range c.rungs {
		ch.Rungs[i].Served = n
		if all := c.Served + c.Fallback; all > 0 {
			ch.Rungs[i].Share = float64(n) / float64(all)
		}
	}
}

// chain is a chain but for its traffic.
func (a *app) chain(p *chain.Plan, queues map[string]queue.Stats) admin.Chain {
	c := p.Chain
	out := admin.Chain{Name: c.Name, API: string(c.API), Observe: c.Observe, Off: a.degraded.offBy(c), Degrade: append([]string{}, c.Degrade...),
		PerSecond: p.Live(), Budget: a.budget(c)}
	for i, r := range c.Rungs {
		rung := admin.Rung{Downshift: c.Downshift > 0 && i >= c.Downshift}
		for _, m := range r.All() {
			rung.Targets = append(rung.Targets, m.Target.Name)
		}
		out.Rungs = append(out.Rungs, rung)
	}
	if plan := a.processor.Drilling(c.Name); plan != nil {
		out.Drill = plan.ID
	}
	if q, ok := queues[c.Name]; ok {
		out.Queue = &admin.Queue{Waiting: int(q.Waiting), Running: int(q.Running)}
		if !q.Oldest.IsZero() {
			out.Queue.Oldest = max(0, time.Since(q.Oldest).Seconds())
		}
	}
	return out
}

// learnBudgets hears from the store what was spent of the chains' budgets: a replica that has served nothing for a while
// does not know. Those of tenants it knows as they come. All are asked at once: of many, the last would never have a turn.
func (a *app) learnBudgets(c *config.Config) {
	ctx, cancel := context.WithTimeout(context.Background(), statusPatience)
	defer cancel()
	var wg sync.WaitGroup
	for _, ch := range c.Chains {
		if ch.Budget.USD > 0 && !ch.Budget.Tenant {
			wg.Go(func() {
				_ = a.ledger.money.Meter.Load(ctx, budget.Key{Chain: ch.Name}, ch.Budget) // the page then shows what is known here
			})
		}
	}
	wg.Wait()
}

func (a *app) budget(c *config.Chain) *admin.Budget {
	b, meter := c.Budget, a.ledger.money.Meter
	if b.USD <= 0 {
		return nil
	}
	out := &admin.Budget{USD: b.USD, Remaining: meter.Remaining(c.Name, b).USD(), State: meter.Strictest(c.Name, b).String(), Per: "month", Tenant: b.Tenant}
	if !b.Month {
		out.Per = b.Window.String()
	}
	if !b.Tenant {
		out.Reopens = known(meter.Reopens(budget.Key{Chain: c.Name}, b))
	}
	return out
}

// spent is what this replica has spent, by chain.
func (a *app) spent() map[string]budget.Money {
	sums := map[string]budget.Money{}
	a.ledger.money.Spend.Each(func(chain, _ string, sum budget.Sum) { sums[chain] += sum.Total })
	return sums
}

// queues are the queues that answer, by chain.
func (a *app) queues() map[string]queue.Stats {
	all := map[string]queue.Stats{}
	a.degraded.queues.Each(func(chain string, s queue.Stats) { all[chain] = s })
	return all
}

// target is a target but for its verdicts.
func target(book *chain.Book, t *config.Target, now time.Time) admin.Target {
	b := book.Breaker(t.Name)
	out := admin.Target{Name: t.Name, Provider: t.Provider.Name, Model: t.Model, Chains: []string{}, State: b.State().String(), Share: b.Share(), Why: b.Last()}
	if f := b.Forced(); f != breaker.Released {
		out.Forced = f.String()
	} else if truth := b.Truth(); truth.Open && truth.Until.After(now) {
		out.Until = known(truth.Until)
	}
	if at := b.Cooling(); at.After(now) {
		out.Cooling = known(at)
	}
	for _, ch := range book.Config.Chains {
		if ch.Has(t.Name) {
			out.Chains = append(out.Chains, ch.Name)
		}
	}
	return out
}

// known is nil for a time that nobody knows.
func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func (a *app) providers(book *chain.Book) []admin.Provider {
	feeds := a.calls.feeds.Statuses()
	all := []admin.Provider{}
	for _, name := range slices.Sorted(maps.Keys(book.Config.Providers)) {
		p := admin.Provider{Name: name, Ready: book.Ready == nil || book.Ready(book.Config.Providers[name]) == nil}
		if f, ok := feeds[name]; ok {
			p.Feed, p.Incident, p.Heard = vendorSays(f.Level()), f.Incident, known(f.At)
		}
		all = append(all, p)
	}
	return all
}

// vendorSays is a status page's level in words.
func vendorSays(l recovery.Level) string {
	switch l {
	case recovery.Operational:
		return "operational"
	case recovery.Degraded:
		return "degraded"
	case recovery.PartialOutage:
		return "partial outage"
	case recovery.MajorOutage:
		return "major outage"
	}
	return "unknown"
}

// envoys is which Envoys are connected and what they say, where this replica tells them their configuration.
func (a *app) envoys() admin.Envoy {
	out := admin.Envoy{Oldest: oldestEnvoy, Newest: newestEnvoy}
	if a.xds == nil {
		return out
	}
	s := a.xds.Status()
	peers := []admin.Peer{}
	for _, e := range s.Envoys {
		peers = append(peers, peer(e))
	}
	out.Config, out.Connected = s.Config, &peers
	if r := s.Refused; r != nil {
		out.Refused = &admin.Refusal{Node: r.Node, Version: r.Envoy, Type: r.Type, Why: r.Why}
	}
	return out
}

func peer(e xds.Envoy) admin.Peer {
	return admin.Peer{Node: e.Node, Version: e.Version, Supported: isMadeFor(e.Version), Hop: e.Hop, Accepted: e.Accepted, Refused: e.Refused, Refusing: e.Refusing}
}

// isMadeFor says whether an Envoy of that version is one that the service is made for.
func isMadeFor(version string) bool {
	return compareVersions(version, oldestEnvoy) >= 0 && compareVersions(minor(version), minor(newestEnvoy)) <= 0
}

func minor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// compareVersions compares numbers between dots; what is no number comes before all numbers.
func compareVersions(a, b string) int {
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(x, y string) int {
		return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y))
	})
}

// faults are those that a drill of clients' requests can play.
func faults(c *config.Config) []string {
	names := []string{}
	if c.Drill.Listen == (config.Address{}) {
		return names
	}
	for _, f := range drill.Faults() {
		if f.Hidden {
			names = append(names, f.Name)
		}
	}
	return names
}
