// Package processor translates between Envoy's protocols (ext_proc, access log service) and attempts: one
// gRPC stream is one attempt. A pump moves messages and time; a step decides, without I/O.
package processor

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"understudy/pkg/chain"
	"understudy/pkg/chain/breaker"
	"understudy/pkg/chain/budget"
	"understudy/pkg/config"
	"understudy/pkg/degrade"
	"understudy/pkg/drill"
	"understudy/pkg/once"
	"understudy/pkg/provider/credential"
)

// Processor serves attempts.
//
// Ownership: cmd makes one, registers it at a gRPC server, and calls Drain before it stops that server.
// Concurrency: one goroutine a stream owns its attempt; what attempts share is safe for all.
type Processor struct {
	extproc.UnimplementedExternalProcessorServer

	live    atomic.Pointer[live]
	memo    *chain.Memo
	ends    *ends
	metrics *Metrics
	log     *slog.Logger
	replica string // tells this process's attempts from another's in the access log

	key      atomic.Pointer[[]byte] // checks x-llm-internal
	ladder   *degrade.Ladder
	hints    Hints               // nil: none
	homes    Homes               // nil: none
	once     *once.Keys          // nil: none
	money    *Money              // nil: nothing is priced
	closed   func(target string) // hears of breakers that close
	watchers []Watcher
	tracer   Tracer                          // nil: nothing is traced
	off      atomic.Pointer[map[string]bool] // chains that an operator has switched off

	drills atomic.Pointer[map[string]*drill.Plan] // for clients' requests, by chain

	forcing sync.Mutex               // guards forced, and that every breaker in use goes by it
	forced  map[string]breaker.Force // by target; what is missing is released

	inflight atomic.Int64 // bytes of request bodies and held answers
	held     atomic.Int64 // bytes of held answers alone

	bodies sync.Pool // *bodyMessage

	open     atomic.Int64 // running attempts, and ended ones that wait for the access log
	pumps    sync.Map     // *pump of every attempt whose stream is open
	draining atomic.Bool
}

// live is what an attempt keeps from its beginning: the config with the state of its targets, and the credentials.
type live struct {
	book  *chain.Book
	creds *credential.Set // nil: keys of the config only

	prices *budget.Prices
}

// Hints are what replicas tell each other and nothing depends on: which target a conversation is with.
type Hints interface {
	Get(key string) string // "": unknown
	Put(key, value string, ttl time.Duration)
}

// Homes is where what a provider holds was made, by its id.
type Homes interface {
	Find(ctx context.Context, id string) string // the provider's name; "": unknown
	Put(id, provider string)
}

// New makes a Processor for cfg that counts into m.
func New(cfg *config.Config, m *Metrics, log *slog.Logger) *Processor {
	p := &Processor{memo: chain.NewMemo(), ends: newEnds(), metrics: m, log: log, replica: rand.Text(),
		ladder: &degrade.Ladder{}, bodies: sync.Pool{New: newBodyMessage}}
	m.watch(p)
	p.Use(cfg, nil)
	return p
}

// Use makes cfg and its credentials those of every attempt that begins from now on. Targets that stay keep their state.
func (p *Processor) Use(cfg *config.Config, creds *credential.Set) {
	book := chain.NewBook(cfg, p.Book(), p.transition)
	if creds != nil {
		book.Ready = func(provider *config.Provider) error { return creds.Ready(provider.Name) }
	}
	p.metrics.expect(cfg)
	p.forcing.Lock()
	defer p.forcing.Unlock()
	p.forceLocked(book)
	p.live.Store(&live{book, creds, budget.NewPrices(cfg)})
}

// Force makes operators' words on breakers, by target, hold from now on, and no others.
func (p *Processor) Force(targets map[string]breaker.Force) {
	p.forcing.Lock()
	defer p.forcing.Unlock()
	p.forced = targets
	p.forceLocked(p.Book())
}

// forceLocked makes the breakers of book go by what operators say. Caller must hold forcing.
func (p *Processor) forceLocked(book *chain.Book) {
	for target, b := range book.Breakers() {
		b.Force(p.forced[target])
	}
}

// Identify lets keys stand for one execution each, where chains promise that. It is called before the first attempt.
func (p *Processor) Identify(keys *once.Keys) { p.once = keys }

// later runs f in the background, also when ctx ends; Wait waits for it.
func (p *Processor) later(ctx context.Context, f func(ctx context.Context)) {
	ctx = context.WithoutCancel(ctx)
	p.open.Add(1)
	go func() {
		defer p.open.Add(-1)
		f(ctx)
	}()
}

// Spend prices every attempt and keeps it in m's bounds. It is called before the first attempt.
func (p *Processor) Spend(m *Money) { p.money = m }

// Remember lets conversations stay with a target, and calls that name what a provider holds find it. It is called before
// the first attempt.
func (p *Processor) Remember(hints Hints, homes Homes) { p.hints, p.homes = hints, homes }

// Book is the configuration and the live state in use now.
func (p *Processor) Book() *chain.Book {
	if l := p.live.Load(); l != nil {
		return l.book
	}
	return nil
}

// Degrade makes l the degraded modes, and closed hear of every target whose breaker closes. It is called before
// the first attempt; until then there is `off` only.
func (p *Processor) Degrade(l *degrade.Ladder, closed func(target string)) {
	p.ladder, p.closed = l, closed
}

// SwitchOff makes chains, and no others, give their `off` answer to every request, as `off.force` does.
func (p *Processor) SwitchOff(chains map[string]bool) { p.off.Store(&chains) }

// isOff says whether a chain is switched off, by the config or by an operator.
func (p *Processor) isOff(c *config.Chain) bool {
	off := p.off.Load()
	return c.Off.Force || off != nil && (*off)[c.Name]
}

// Pace is the share of its usual rate at which a chain may run jobs now, 0 to 1. A chain that is switched off takes none,
// nor does one that only observes: a job is run along its chain, which decides nothing there.
func (p *Processor) Pace(chain string) float64 {
	book := p.Book()
	c := book.Config.ChainNamed(chain)
	if c == nil || c.Observe || p.isOff(c) {
		return 0
	}
	return book.Plan(c).Pace()
}

// Live is how many requests of clients a chain has seen here a second, lately.
func (p *Processor) Live(chain string) float64 {
	book := p.Book()
	if c := book.Config.ChainNamed(chain); c != nil {
		return book.Plan(c).Live()
	}
	return 0
}

func (p *Processor) transition(t breaker.Transition) {
	if t.To == breaker.Closed && p.closed != nil {
		p.closed(t.Target)
	}
	for _, w := range p.watchers {
		w.Transition(t)
	}
	p.metrics.transitions.WithLabelValues(t.Target, t.From.String(), t.To.String()).Inc()
	p.log.Warn("breaker "+t.To.String(), "target", t.Target, "from", t.From.String(), "to", t.To.String())
}

// Replica tells this process from another.
func (p *Processor) Replica() string { return p.replica }

// SetKey makes key the one that our own calls are signed with. Until then none is let in.
func (p *Processor) SetKey(key []byte) { p.key.Store(&key) }

// Key is the key that our own calls are signed with, nil before SetKey.
func (p *Processor) Key() []byte {
	if k := p.key.Load(); k != nil {
		return *k
	}
	return nil
}

// Drain ends, in the honest way, every attempt that is still running, and soon every later one. Its caller has waited as
// long as it would.
func (p *Processor) Drain() {
	p.draining.Store(true)
	for u := range p.pumps.Range {
		go u.(*pump).drain() // a slow client holds up its own attempt only
	}
}

// Wait waits until no attempt runs and every end is accounted for, or until ctx is done.
func (p *Processor) Wait(ctx context.Context) error {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for p.open.Load() > 0 {
		select {
		case <-look.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
