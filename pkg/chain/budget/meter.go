// Package budget says what attempts cost, and stops spending at a limit.
//
// Cost prices an attempt, Worst bounds it before it is made. A Meter keeps the budgets of chains and tenants for all
// replicas: it is the cost breaker, with states as the others have. A Ramp keeps a target's traffic from growing too
// fast for its provider, and a Shaper holds requests that would meet a rate limit.
package budget

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"understudy/pkg/config"
	"understudy/pkg/store"
)

var (
	// ErrSpent says that what the budget has left, open reservations taken off, is less than the attempt may cost.
	ErrSpent = errors.New("the budget is spent")
	// ErrDear says that the soft limit is passed, and the target is not one of the cheaper ones.
	ErrDear = errors.New("the budget is nearly spent and the target is not one of the cheaper ones")
	// ErrPremium says that the attempt may cost more than max_premium times the primary's.
	ErrPremium = errors.New("the target may cost more than max_premium times what the primary does")
	// ErrUnsure says that nobody knows what is left: the store does not answer, and what this replica had taken before
	// is used up or has lapsed. Money is not spent on a guess.
	ErrUnsure = errors.New("what the budget has left is not known")
)

const (
	// beat is how often the loop looks for accounts that have something to tell the store, and beatIdle whether there are
	// any.
	beat     = 100 * time.Millisecond
	beatIdle = time.Second
	// patience bounds one exchange with the store, its repetitions included.
	patience = time.Second
	// abreast is how many of them the loop has going at once.
	abreast = 8
	// maxAccounts bounds the keys that are remembered; an account is half a kilobyte to two.
	maxAccounts = 16384
	shards      = 64
)

// Key names an account: a chain, or a tenant of it.
type Key struct{ Chain, Tenant string }

// Ask is what Reserve decides by: the most that the attempt, the same attempt at the chain's primary, and at the
// cheapest of its rungs may cost. Without Primary nothing is compared; without Cheapest the primary is.
type Ask struct{ Worst, Primary, Cheapest Money }

// dear says whether the soft limit refuses it: "cheaper rungs only". Where no rung is cheaper than the primary, the
// primary itself goes on.
func (q Ask) dear() bool {
	cheapest := q.Cheapest
	if cheapest == 0 {
		cheapest = q.Primary
	}
	return q.Primary > 0 && q.Worst > cheapest && q.Worst >= q.Primary
}

// Bucket is the part of a store's bucket that is needed here. It must have no bound in bytes.
type Bucket interface {
	Get(ctx context.Context, key string) (store.Entry, error)
	Create(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error)
	Update(ctx context.Context, key string, value []byte, rev uint64, ttl time.Duration) (uint64, error)
}

var _ Bucket = (*store.Bucket)(nil)

// Options of a Meter.
type Options struct {
	Replica string // unlike any other's, and that of any process before: a restart is a new replica
	Store   Bucket
	// Notify hears of each change of an account's state, in order, from one goroutine. It is this replica's view; nil for
	// nobody.
	Notify func(Transition)
}

// Meter keeps the budgets of chains and tenants, with the other replicas.
//
// What is left of a budget is in the store. A replica takes a slice of it by compare-and-set, ahead of need and larger
// the more it uses, and reserves from that slice without asking anybody. A slice is at most an eighth of what is left;
// when that is less than an attempt, each reservation is taken from the store by itself. Thus what is spent and what
// is reserved never come to more than the limit, however many replicas there are; only a bill that is larger than its
// reservation goes over it, by the difference.
//
// A replica that dies, or loses the store for good, leaves a slice behind. It may have been spent, and counts as spent
// from when it lapsed. While the store is down a replica spends what it has taken, until that lapses, and refuses then.
//
// Spend counts from when it was reserved. The replicas' clocks should agree within a sixtieth of the window.
//
// Ownership: who calls Start calls Stop, which gives back what is not spent. Concurrency: all methods may be called at
// once; unrelated keys share a lock only to be looked up, as readers.
type Meter struct {
	o      Options
	seed   maphash.Seed
	shards [shards]shard
	count  atomic.Int64 // of accounts

	stop    context.CancelFunc
	loop    sync.WaitGroup
	gate    sync.RWMutex // held to start an exchange with the store, and guards closed
	closed  bool
	fills   sync.WaitGroup
	changes chan struct{} // there are transitions to tell

	mu          sync.Mutex // guards the fields below
	transitions []Transition
}

type shard struct {
	mu       sync.RWMutex // guards accounts
	accounts map[id]*account
}

type id struct {
	key    Key
	period period
}

// terms are a budget's, as the accounts know it.
type terms struct {
	limit  Money // 0: none
	soft   Money // 0: none
	period period
}

func termsOf(b config.Budget) terms {
	limit := FromUSD(b.USD)
	return terms{limit: limit, soft: Money(float64(limit) * b.Soft), period: periodOf(b)}
}

// New makes a Meter.
func New(o Options) *Meter {
	m := &Meter{o: o, seed: maphash.MakeSeed(), changes: make(chan struct{}, 1)}
	for i := range m.shards {
		m.shards[i].accounts = map[id]*account{}
	}
	return m
}

// Start begins to keep in step with the store, until Stop or the end of ctx.
func (m *Meter) Start(ctx context.Context) {
	ctx, m.stop = context.WithCancel(ctx)
	m.loop.Go(func() { m.run(ctx) })
}

// Stop gives back what is reserved for nobody, tells what was spent, and waits for all that Start began. What is still
// reserved then counts as spent.
func (m *Meter) Stop(ctx context.Context) error {
	m.halt()
	var mu sync.Mutex
	var errs []error
	m.each(func(a *account) {
		if err := a.sync(ctx, true); err != nil {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		}
	})
	return errors.Join(errs...)
}

// halt ends the loop and whatever is going on with the store.
func (m *Meter) halt() {
	m.gate.Lock()
	m.closed = true
	m.gate.Unlock()
	m.stop()
	m.loop.Wait()
	m.fills.Wait()
}

// Reserve sets aside what an attempt may cost, before it is made. Its outcome must be told to the reservation. It fails
// with one of the errors above, and waits for the store only where what this replica has taken does not suffice; then
// not longer than a second, or ctx. A budget without a limit only counts.
func (m *Meter) Reserve(ctx context.Context, key Key, b config.Budget, ask Ask) (*Reservation, error) {
	if b.MaxPremium > 0 && ask.Primary > 0 && exceeds(ask.Worst, b.MaxPremium, ask.Primary) {
		return nil, fmt.Errorf("%w: %s against %s", ErrPremium, ask.Worst, ask.Primary)
	}
	return m.reserve(ctx, key, termsOf(b), ask)
}

func (m *Meter) reserve(ctx context.Context, key Key, t terms, ask Ask) (*Reservation, error) {
	ask.Worst = max(ask.Worst, 0)
	for range rounds {
		a, err := m.account(key, t.period)
		if err != nil {
			return nil, err
		}
		r, wait, err := a.reserve(t, ask)
		if wait == nil {
			if r != nil && a.low() {
				m.fill(ctx, a)
			}
			return r, err
		}
		if wait == again {
			continue
		}
		m.fill(ctx, a)
		select {
		case <-wait.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ErrUnsure, ctx.Err())
		}
	}
	return nil, fmt.Errorf("%w: others are taking it", ErrSpent)
}

// rounds is how often a reservation looks at the store: others may take what was meant for it.
const rounds = 16

// Load hears from the store what was spent of a budget before, so that the first request need not wait for it and a page
// shows what is left.
func (m *Meter) Load(ctx context.Context, key Key, b config.Budget) error {
	t := termsOf(b)
	a, err := m.account(key, t.period)
	if err != nil {
		return err
	}
	a.agree(t)
	return m.fresh(ctx, a, flushEvery)
}

// Charge counts what was spent without a reservation, such as a probe.
func (m *Meter) Charge(key Key, b config.Budget, spent Money) {
	m.charge(key, periodOf(b), spent)
}

func (m *Meter) charge(key Key, p period, spent Money) {
	for range rounds {
		a, err := m.account(key, p)
		if err != nil || a.charge(spent) {
			return
		}
	}
}

// account finds the account of a key, or opens it.
func (m *Meter) account(key Key, p period) (*account, error) {
	s := m.shard(key)
	if a := s.find(id{key, p}); a != nil {
		return a, nil
	}
	if m.count.Load() >= maxAccounts {
		return nil, fmt.Errorf("%w: %d tenants are being kept account of, which is the most", ErrUnsure, maxAccounts)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.accounts[id{key, p}]
	if a == nil {
		a = newAccount(m, key, p)
		s.accounts[id{key, p}] = a
		m.count.Add(1)
	}
	return a, nil
}

func (m *Meter) shard(key Key) *shard {
	h := maphash.String(m.seed, key.Chain) ^ maphash.String(m.seed, key.Tenant)*31
	return &m.shards[h%shards]
}

func (s *shard) find(of id) *account {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.accounts[of]
}

// forget drops an account that has nothing to tell.
func (m *Meter) forget(a *account) {
	s := m.shard(a.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.close() {
		delete(s.accounts, id{a.key, a.period})
		m.count.Add(-1)
	}
}

// all are the accounts of this moment.
func (m *Meter) all() []*account {
	accounts := make([]*account, 0, m.count.Load())
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.RLock()
		for _, a := range s.accounts {
			accounts = append(accounts, a)
		}
		s.mu.RUnlock()
	}
	return accounts
}

// each does something for every account, some at once.
func (m *Meter) each(do func(*account)) {
	accounts := make(chan *account)
	var wg sync.WaitGroup
	for range abreast {
		wg.Go(func() {
			for a := range accounts {
				do(a)
			}
		})
	}
	for _, a := range m.all() {
		accounts <- a
	}
	close(accounts)
	wg.Wait()
}

func (m *Meter) run(ctx context.Context) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			m.tell()
			return
		case <-m.changes:
		case <-tick.C:
			m.look(ctx)
			tick.Reset(m.pause())
		}
		m.tell()
	}
}

// pause is the time until the next look.
func (m *Meter) pause() time.Duration {
	if m.count.Load() == 0 {
		return beatIdle
	}
	return beat
}

// look has the accounts that need it speak with the store, and drops those that nobody uses.
func (m *Meter) look(ctx context.Context) {
	now := time.Now()
	idle := idleFor
	if m.count.Load() > maxAccounts/2 {
		idle = idleCrowded
	}
	for _, a := range m.all() {
		switch a.due(now, idle) {
		case dueFill:
			m.fill(ctx, a)
		case dueClose:
			m.forget(a)
		}
	}
}

// tell passes on what changed.
func (m *Meter) tell() {
	m.mu.Lock()
	news := m.transitions
	m.transitions = nil
	m.mu.Unlock()
	if m.o.Notify == nil {
		return
	}
	for _, t := range news {
		m.o.Notify(t)
	}
}

// changed notes a transition, in the order in which the accounts had them.
func (m *Meter) changed(t Transition) {
	m.mu.Lock()
	m.transitions = append(m.transitions, t)
	m.mu.Unlock()
	select {
	case m.changes <- struct{}{}:
	default:
	}
}
