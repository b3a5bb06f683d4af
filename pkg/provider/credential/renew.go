package credential

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"
)

const (
	fetchLimit = 30 * time.Second // of one try to get a credential
	firstWait  = 2 * time.Second  // of a call for a credential that is being fetched
	maxAhead   = 10 * time.Minute // before the end of a credential that the next one is asked for
	maxBackoff = time.Minute      // between tries
	filesEvery = time.Second      // between looks at the files
	maxFile    = 1 << 20          // bytes of a credentials file
)

// lease is a proof and when it ends; the zero end is never.
type lease struct {
	proof proof
	ends  time.Time
}

func (l lease) lasts() bool { return l.proof != nil && (l.ends.IsZero() || time.Now().Before(l.ends)) }

// outcome is how things stand after a try. It is never changed.
type outcome struct {
	held lease         // the latest that could be had; the zero lease before
	err  error         // of the latest try; nil after a good one, and before the first
	next chan struct{} // closed when a newer outcome has taken its place
}

// renewer keeps one credential at hand. A new one is asked for well before the held one ends, when a file it comes from
// changes, and when a call finds that it has ended; after a failure again and again, with growing pauses, while the
// held one serves as long as it lasts.
//
// Concurrency: one goroutine of its own asks, so there is never more than one try at once; proof and ready are
// anybody's.
type renewer struct {
	what  string // is missing when the try fails, for messages
	fetch func(context.Context) (lease, error)
	files []string
	log   *slog.Logger

	latest atomic.Pointer[outcome]
	late   atomic.Pointer[outcome] // a call has waited in vain for this one to be replaced
	ended  chan *outcome           // a call found no lease in this one; when it is no longer the latest, that is no news
	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has ended
}

func newRenewer(what string, fetch func(context.Context) (lease, error), files []string, log *slog.Logger) *renewer {
	r := &renewer{what: what, fetch: fetch, files: files, log: log, ended: make(chan *outcome, 1)}
	r.latest.Store(&outcome{next: make(chan struct{})})
	return r
}

func (r *renewer) start(ctx context.Context) {
	ctx, r.cancel = context.WithCancel(ctx)
	r.done = make(chan struct{})
	go func() {
		defer close(r.done)
		r.run(ctx)
	}()
}

func (r *renewer) run(ctx context.Context) {
	for failed := 0; ; {
		seen := digest(r.files)
		r.renew(ctx)
		o := r.latest.Load()
		if failed++; o.err == nil {
			failed = 0
		}
		if !r.rest(ctx, pause(o, failed), seen) {
			return
		}
	}
}

// pause is how long to wait after the outcome of a try, the failed-th in a row that went wrong.
func pause(o *outcome, failed int) time.Duration {
	switch {
	case failed > 0:
		backoff := min(time.Second<<min(failed-1, 10), maxBackoff)
		return time.Duration(float64(backoff) * (0.8 + 0.4*rand.Float64())) // so that replicas do not ask in step
	case o.held.ends.IsZero():
		return 1<<63 - 1
	}
	// A metadata server may hand out its own cached token until minutes before the end. The pauses then shrink with what
	// is left of it.
	left := time.Until(o.held.ends)
	return max(left-min(left/5, maxAhead), time.Second)
}

// renew tries once.
func (r *renewer) renew(ctx context.Context) {
	held, err := r.try(ctx)
	if ctx.Err() != nil {
		return // stopped: that says nothing about the credential
	}
	before := r.latest.Load()
	o := &outcome{held: held, next: make(chan struct{})}
	if err != nil {
		o.held, o.err = before.held, fmt.Errorf("%s: %s", r.what, reason(err))
	}
	r.latest.Store(o)
	close(before.next)
	r.tell(before, o)
}

var errEnded = said{errors.New("it had ended when it came: is this machine's clock right?")}

func (r *renewer) try(ctx context.Context) (lease, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	l, err := r.fetch(ctx)
	if err == nil && !l.lasts() {
		err = errEnded
	}
	return l, err
}

// tell logs where the tries begin to fail and where they end to.
func (r *renewer) tell(before, now *outcome) {
	switch {
	case before.err == nil && now.err != nil && now.held.lasts():
		r.log.Warn("the credential cannot be renewed; the one at hand serves while it lasts",
			"error", now.err.Error(), "ends", now.held.ends)
	case before.err == nil && now.err != nil:
		r.log.Warn("the provider is not called until there is a credential", "error", now.err.Error())
	case before.err != nil && now.err == nil:
		r.log.Info("the credential is renewed again")
	}
}

// rest waits until the next try is due. It is false when there is to be none.
func (r *renewer) rest(ctx context.Context, d time.Duration, seen [sha256.Size]byte) bool {
	due := time.NewTimer(d)
	defer due.Stop()
	var look <-chan time.Time
	if len(r.files) > 0 {
		ticker := time.NewTicker(filesEvery)
		defer ticker.Stop()
		look = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-due.C:
			return true
		case o := <-r.ended:
			if o == r.latest.Load() {
				return true
			}
		case <-look:
			if digest(r.files) != seen {
				return true
			}
		}
	}
}

// proof is the one at hand. Without one it waits for the try that is under way, but not for a further one after that
// has failed.
func (r *renewer) proof(ctx context.Context) (proof, error) {
	if o := r.latest.Load(); o.held.lasts() {
		return o.held.proof, nil
	}
	limit := time.NewTimer(firstWait)
	defer limit.Stop()
	for {
		o := r.latest.Load()
		if o.held.lasts() {
			return o.held.proof, nil
		}
		if err := r.missing(o); err != nil {
			return nil, err
		}
		select { // timers stand still while a machine sleeps, so the lease may have ended unseen
		case r.ended <- o:
		default:
		}
		select {
		case <-o.next:
		case <-limit.C:
			r.late.Store(o)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// missing is why there is nothing at hand; nil while the try that is under way may still change that in time.
func (r *renewer) missing(o *outcome) error {
	if o.err == nil && r.late.Load() == o {
		return fmt.Errorf("%s yet: it is still being fetched", r.what)
	}
	return o.err
}

func (r *renewer) ready() error {
	if o := r.latest.Load(); !o.held.lasts() {
		return r.missing(o)
	}
	return nil
}

// digest is of what the files hold; one that cannot be read holds nothing.
func digest(files []string) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, f := range files {
		data, err := readFile(f)
		fmt.Fprint(h, len(data), err == nil, ":")
		h.Write(data)
	}
	h.Sum(sum[:0])
	return sum
}

var errFile = said{errors.New("not a regular file of at most 1 MiB")}

// readFile reads a whole file. A pipe could block for ever, and gives what it has only once.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errFile
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = errFile
	}
	return data, err
}
