package recovery

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"understudy/pkg/config"
	"understudy/pkg/degrade/queue"
)

const (
	// tellersPerChain is how many receivers' calls a chain may have open at once, on each replica.
	tellersPerChain = 4
	// recheckHooks is the pause between two looks at which chains have a webhook.
	recheckHooks = time.Second
	// settleBound ends the word to the queue about what came of a call.
	settleBound = 5 * time.Second
	// leastTime is how long after its end a job is told of at least, before that is given up: tries that a crash or a
	// lost store spent do not count for more than they were.
	leastTime = 20 * time.Hour
)

// tellPauses are the pauses between two calls about one job: ten calls in 22 hours. The last pause may come again.
var tellPauses = []time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, time.Hour, 3 * time.Hour,
	6 * time.Hour, 6 * time.Hour, 6 * time.Hour,
}

// Told is what came of a call of a webhook.
type Told string

// The outcomes of a call: the receiver took it, it will be called again, or nobody will.
const (
	Delivered Told = "delivered"
	Retried   Told = "retried"
	GivenUp   Told = "dead"
)

// Notices hands out what is to be told: queue.Notices.
type Notices interface {
	// Next waits a while for a notice of chain, which is nobody else's for at least 30 s, and fails with queue.ErrEmpty
	// when there is none.
	Next(ctx context.Context, chain string) (*queue.Notice, error)
}

// Notifier tells the webhooks of chains of the jobs that have ended, by the rules of Standard Webhooks, at least once
// each. The result itself is not told: it may be large, and is for those only who may fetch it at the job's location.
//
// These calls do not go through Envoy, as those to providers do: a receiver is no provider, has no target, breaker or
// credential there, and none of its failures may count against one; what protects these calls, the check of every
// address that is dialed, has to sit where the dialing is done.
//
// Ownership: Run owns every goroutine and waits for it. A chain has its own callers, so that a receiver that is slow or
// dead holds up nobody else's notices. Concurrency: Run is called once.
type Notifier struct {
	cfg     func() *config.Config
	notices Notices
	count   func(chain string, t Told)
	log     *slog.Logger

	public, private http.RoundTripper // private: for webhooks with allow_private
	deaf            atomic.Bool       // the queue does not answer, which is logged once
}

// NewNotifier makes a Notifier that reads cfg for every decision, and tells count what came of every call.
func NewNotifier(cfg func() *config.Config, notices Notices, count func(chain string, t Told), log *slog.Logger) *Notifier {
	return &Notifier{
		cfg: cfg, notices: notices, count: count, log: log,
		public:  direct(newGuard(net.DefaultResolver).dial),
		private: direct((&net.Dialer{Timeout: tellBound}).DialContext),
	}
}

// Run tells until ctx is done. What it is about then is given back for another replica, or for the next start.
func (n *Notifier) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	crews := map[string]context.CancelFunc{}
	for {
		n.staff(ctx, crews, &wg)
		if !pause(ctx, recheckHooks) {
			return
		}
	}
}

// staff gives every chain with a webhook its crew, and sends the others' home once they are done with what they have.
func (n *Notifier) staff(ctx context.Context, crews map[string]context.CancelFunc, wg *sync.WaitGroup) {
	cfg := n.cfg()
	for chain, leave := range crews {
		if hookOf(cfg, chain) == nil {
			leave()
			delete(crews, chain)
		}
	}
	for _, ch := range cfg.Chains {
		if crews[ch.Name] != nil || ch.Queue.Notify == nil {
			continue
		}
		hired, leave := context.WithCancel(ctx)
		crews[ch.Name] = leave
		for range tellersPerChain {
			wg.Go(func() { n.serve(ctx, hired, ch.Name) })
		}
	}
}

// hookOf is the webhook of a chain; nil: nobody is told.
func hookOf(cfg *config.Config, chain string) *config.Webhook {
	if ch := cfg.ChainNamed(chain); ch != nil {
		return ch.Queue.Notify
	}
	return nil
}

// serve takes and tells notices of a chain until hired is done. A call that has begun then is cut only by ctx.
func (n *Notifier) serve(ctx, hired context.Context, chain string) {
	for hired.Err() == nil {
		switch notice, err := n.notices.Next(hired, chain); {
		case err == nil:
			n.deaf.Store(false)
			n.tell(ctx, notice)
		case errors.Is(err, queue.ErrEmpty):
			n.deaf.Store(false)
		default:
			if hired.Err() == nil && n.deaf.CompareAndSwap(false, true) {
				n.log.Warn("webhooks wait: their queue does not answer", "error", err.Error())
			}
			pause(hired, jittered(time.Second, 1))
		}
	}
}

// tell calls the webhook of a notice's chain once, and settles the notice by what comes of it.
func (n *Notifier) tell(ctx context.Context, notice *queue.Notice) {
	cfg := n.cfg()
	hook := hookOf(cfg, notice.Chain)
	if hook == nil { // since a moment: the notice waits for the day that there is one again
		n.settle(ctx, notice, Retried, nil, tellPauses[0])
		return
	}
	err := n.post(ctx, hook, notice)
	if err != nil && ctx.Err() != nil { // it is us who hung up
		n.settle(ctx, notice, Retried, nil, tellPauses[0])
		return
	}
	outcome := judgeCall(err, notice, time.Now())
	n.report(ctx, notice, hook, outcome, err)
	n.settle(ctx, notice, outcome, err, waitAfter(err, notice.Deliveries, cfg.Recovery.Jitter))
}

// judgeCall says what is to become of a notice whose call ended with err.
func judgeCall(err error, notice *queue.Notice, now time.Time) Told {
	switch {
	case err == nil:
		return Delivered
	case final(err), notice.Deliveries > len(tellPauses) && now.Sub(notice.Finished) >= leastTime:
		return GivenUp
	}
	return Retried
}

// waitAfter is the pause before the next call: the schedule's, or what the receiver asks for if that is longer. A
// shorter one would only use up the calls.
func waitAfter(err error, deliveries int, jitter float64) time.Duration {
	wait := jittered(tellPauses[min(max(deliveries, 1), len(tellPauses))-1], jitter)
	var a answered
	if errors.As(err, &a) {
		return max(wait, a.retryAfter)
	}
	return wait
}

// report counts and logs a call. Of the URL only the host is shown: its path and query may hold a token.
func (n *Notifier) report(ctx context.Context, notice *queue.Notice, hook *config.Webhook, outcome Told, err error) {
	n.count(notice.Chain, outcome)
	level, why := slog.LevelInfo, ""
	if err != nil {
		why = err.Error()
	}
	if outcome == GivenUp {
		level = slog.LevelWarn
	}
	n.log.Log(ctx, level, "webhook", "chain", notice.Chain, "job", notice.ID, "state", string(notice.State),
		"receiver", hook.URL.Host, "result", string(outcome), "try", notice.Deliveries, "why", why)
}

// settle tells the queue, also when ctx has just ended. If that fails the notice comes again, and is told again.
func (n *Notifier) settle(ctx context.Context, notice *queue.Notice, outcome Told, why error, after time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleBound)
	defer cancel()
	var err error
	switch outcome {
	case Delivered:
		err = notice.Done(ctx)
	case GivenUp:
		err = notice.Dead(ctx, why.Error())
	default:
		err = notice.Later(ctx, after)
	}
	if err != nil {
		n.log.Warn("a webhook's notice will come again: the queue did not hear what came of it",
			"chain", notice.Chain, "job", notice.ID, "error", err.Error())
	}
}
