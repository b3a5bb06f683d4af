package recovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"understudy/pkg/config"
	"understudy/pkg/degrade/queue"
)

const (
	// flights is how many of a chain's jobs run at once, on each replica.
	flights = 4
	// pauseFirst and pauseMost bound how long a drain that a failure stopped waits for a target to close before it tries
	// again by itself; the pause doubles with every failure until a job succeeds.
	pauseFirst = 5 * time.Second
	pauseMost  = 5 * time.Minute
	// lookEvery is the pause between two looks at whether there is something to do, and the longest time for which a
	// new rate, share or config goes unheard.
	lookEvery = time.Second
	// sweepEvery is the pause between two looks for jobs that have grown too old.
	sweepEvery = 30 * time.Second
	// giveBack ends the word to the queue that a job was not run.
	giveBack = 2 * time.Second
)

// Drainer runs queued requests, through Envoy and along their chain, while a target of the chain may be tried.
//
// Live traffic comes first: a chain's jobs start at no more than retry_budget times its live requests a second, on this
// replica, or recovery.floor when that is more; all chains' together at no more than recovery.rate; and both times the
// share of traffic that a target which comes back takes. No two of them start at once, whatever was saved up.
//
// What stops a chain's drain: an answer that says a provider fails, or none; and a job that a fallback had to serve,
// because a target before it fails. From then on no job starts until a pause has passed or Wake says that a target has
// closed. Those in flight end.
//
// Ownership: whoever makes it fills the fields, then calls Start and Stop, each once. Concurrency: Wake may be called by
// any goroutine between them.
type Drainer struct {
	Config func() *config.Config
	Queue  *queue.Queue
	Key    func() []byte // signs x-llm-internal; empty: there is none yet
	Client *http.Client  // goes to Envoy and follows no redirect: the token is for nobody else
	// Open is the largest share of traffic that a target of the chain takes: 0, none may be tried now, to 1.
	Open func(chain string) float64
	// Live is the chain's requests a second, jobs not counted.
	Live func(chain string) float64
	// Count hears of every run by its outcome: done, failed, or the class for which it is to run again.
	Count func(chain, outcome string)
	Log   *slog.Logger

	wg         sync.WaitGroup
	idle       context.Context // ends what has not begun a job
	stopIdle   context.CancelFunc
	flying     context.Context // ends jobs
	stopFlying context.CancelFunc

	mu   sync.Mutex // mu guards the fields below, and what drains points to.
	pace *rate.Limiter
	// drains are those of the chains that are in the config, by name.
	drains map[string]*drain
}

// drain is one chain's. The Drainer's mu guards the fields from pace on.
type drain struct {
	*Drainer
	chain string
	bell  chan struct{} // rings when a change of state may end a wait
	seats chan struct{} // holds a token for each job in flight
	swept time.Time     // last sweep; of run alone, as is deaf
	deaf  bool          // the queue does not answer, which was logged

	pace  *rate.Limiter
	after time.Time     // no job starts before; jitter
	stops int           // how often a failure stopped it: a job begun before the last time says nothing new
	pause time.Duration // the next
	until time.Time     // no job starts before
}

// Start begins to drain. ctx gives values only.
func (d *Drainer) Start(ctx context.Context) {
	d.idle, d.stopIdle = context.WithCancel(context.WithoutCancel(ctx))
	d.flying, d.stopFlying = context.WithCancel(context.WithoutCancel(ctx))
	d.pace, d.drains = rate.NewLimiter(0, 1), map[string]*drain{}
	d.wg.Go(d.watch)
}

// Stop starts no more jobs and waits for those in flight as long as ctx lasts. Those that are left then go back into
// the queue; the error says how many.
func (d *Drainer) Stop(ctx context.Context) error {
	d.stopIdle()
	done := make(chan struct{})
	go func() { d.wg.Wait(); close(done) }()
	defer d.stopFlying()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	n := d.inFlight()
	d.stopFlying()
	<-done // bounded by giveBack
	return fmt.Errorf("drain: %d jobs were in flight and went back into the queue: %w", n, ctx.Err())
}

func (d *Drainer) inFlight() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, x := range d.drains {
		n += len(x.seats)
	}
	return n
}

// Wake says that a target of the chain has closed: its drain need not wait any longer.
func (d *Drainer) Wake(chain string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if x := d.drains[chain]; x != nil {
		x.until = time.Time{}
		x.ring()
	}
}

// watch gives every chain its drain. A drain ends by itself when its chain is gone.
func (d *Drainer) watch() {
	for {
		for _, ch := range d.Config().Chains {
			d.take(ch.Name)
		}
		if !pause(d.idle, lookEvery) {
			return
		}
	}
}

func (d *Drainer) take(chain string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.drains[chain] != nil {
		return
	}
	x := &drain{
		Drainer: d, chain: chain, bell: make(chan struct{}, 1), seats: make(chan struct{}, flights),
		pace: rate.NewLimiter(0, 1), pause: pauseFirst,
	}
	d.drains[chain] = x
	d.wg.Go(x.run)
}

// run starts jobs, one after the other, until the chain is gone.
func (x *drain) run() {
	defer x.leave()
	for x.idle.Err() == nil && x.Config().ChainNamed(x.chain) != nil {
		x.sweep()
		if x.resting() > 0 || !x.seat() {
			x.wait(lookEvery)
			continue
		}
		if !x.next() {
			<-x.seats
			x.wait(lookEvery)
		}
	}
}

func (x *drain) leave() {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.drains, x.chain)
}

// seat takes a place for a job in flight, if there is one.
func (x *drain) seat() bool {
	select {
	case x.seats <- struct{}{}:
		return true
	default:
		return false
	}
}

// rise gives a job's place back.
func (x *drain) rise() {
	<-x.seats
	x.ring()
}

func (x *drain) ring() {
	select {
	case x.bell <- struct{}{}:
	default:
	}
}

// wait waits for d, less if something changes.
func (x *drain) wait(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-x.bell:
	case <-x.idle.Done():
	}
}

// sweep expires what has grown too old. It matters most while nothing drains.
func (x *drain) sweep() {
	if time.Since(x.swept) < sweepEvery {
		return
	}
	x.swept = time.Now()
	if err := x.Queue.Sweep(x.idle, x.chain); err != nil {
		x.hear(err)
	}
}

// resting is for how long no job may start; 0: one may, as far as providers are concerned.
func (x *drain) resting() time.Duration {
	if x.Open(x.chain) <= 0 {
		return lookEvery
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return max(0, time.Until(x.until))
}

// next starts a job, or returns false when there is none or none may start.
func (x *drain) next() bool {
	work, err := x.Queue.Next(x.idle, x.chain)
	if err != nil {
		x.hear(err)
		return false
	}
	x.deaf = false
	f := &flight{drain: x, work: work}
	f.hold()
	if !x.clear(f) {
		f.back(0)
		return false
	}
	x.wg.Go(f.run)
	return true
}

// hear logs that the queue does not answer, once.
func (x *drain) hear(err error) {
	if errors.Is(err, queue.ErrEmpty) || x.idle.Err() != nil || x.deaf {
		x.deaf = x.deaf && !errors.Is(err, queue.ErrEmpty)
		return
	}
	x.deaf = true
	x.Log.Warn("jobs wait: their queue does not answer", "chain", x.chain, "error", err.Error())
}

// clear waits until f may start, and returns whether it may.
func (x *drain) clear(f *flight) bool {
	for x.idle.Err() == nil && x.resting() == 0 {
		wait := x.room(f)
		if wait <= 0 {
			return true
		}
		x.wait(min(wait, lookEvery))
	}
	return false
}

// room takes the right to start now, or returns how long it is until there may be one.
func (x *drain) room(f *flight) time.Duration {
	cfg, share, live := x.Config().Recovery, x.Open(x.chain), x.Live(x.chain)
	if share <= 0 {
		return lookEvery
	}
	most := share * min(cfg.Rate, max(cfg.Floor, cfg.RetryBudget*live))
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	x.pace.SetLimitAt(now, rate.Limit(most))
	x.Drainer.pace.SetLimitAt(now, rate.Limit(cfg.Rate))
	wait := max(time.Until(x.after), time.Until(x.until), untilToken(x.pace, now), untilToken(x.Drainer.pace, now))
	if wait > 0 {
		return wait
	}
	x.pace.AllowN(now, 1)
	x.Drainer.pace.AllowN(now, 1)
	x.after = now.Add(time.Duration((1 + cfg.Jitter*rand.Float64()) / most * float64(time.Second)))
	f.stops = x.stops
	return 0
}

// untilToken is how long a limiter has none to give.
func untilToken(l *rate.Limiter, now time.Time) time.Duration {
	r := l.ReserveN(now, 1)
	defer r.CancelAt(now)
	return r.DelayFrom(now)
}

// stop lets no job start for a while, because of one that began when it had been stopped that often.
func (x *drain) stop(stops int, why string) {
	x.mu.Lock()
	if stops != x.stops {
		x.mu.Unlock()
		return
	}
	rest := jittered(x.pause, x.Config().Recovery.Jitter)
	x.stops++
	x.until = time.Now().Add(rest)
	x.pause = min(2*x.pause, pauseMost)
	x.mu.Unlock()
	x.ring()
	x.Log.Warn("drain stops", "chain", x.chain, "why", why, "rest", rest)
}

// well says that a job succeeded: the next pause is a short one again.
func (x *drain) well(stops int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if stops == x.stops {
		x.pause = pauseFirst
	}
}
