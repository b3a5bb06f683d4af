package processor

import (
	"sync"
	"time"

	"understudy/pkg/classify"
)

// end is how an attempt's stream ended that had no verdict: an upstream reset and a client's hang-up both just
// end the gRPC stream.
type end struct {
	by     side
	status int // that left Envoy's hop, as far as known: a commit may come too late, and Envoy's own reply go out
}

// side is who ended a stream.
type side uint8

const (
	bySomebody side = iota
	byProvider      // its side died
	byClient        // it went away
)

// endKey names an attempt.
type endKey struct {
	exchange string
	attempt  int
}

// How long an attempt without a verdict waits for the access log to say why it ended, and the other way round.
// Losing the log makes a breaker slower, never stuck.
const (
	endWait = 2 * time.Second
	maxEnds = 4096
)

// ends brings together attempts that ended without a verdict and the reports of why: from the access log, or
// from the next attempt of the same exchange. Either may come first.
//
// Concurrency: safe for all; touched only by attempts that end abnormally.
type ends struct {
	mu      sync.Mutex
	waiters map[endKey]*waiter
	early   map[endKey]end
	order   []endKey // of early, oldest first
}

type waiter struct {
	timer   *time.Timer
	resolve func(end)
}

func newEnds() *ends {
	return &ends{waiters: make(map[endKey]*waiter), early: make(map[endKey]end)}
}

// await calls resolve once: with what is told of k, or after endWait with bySomebody. Of two attempts of one name, as when
// Envoy opens a stream anew, what is told is the later one's; the one before ends at once.
func (e *ends) await(k endKey, resolve func(end)) {
	w := &waiter{resolve: resolve}
	e.mu.Lock()
	why, told := e.early[k]
	before := e.waiters[k]
	if !told {
		w.timer = time.AfterFunc(endWait, func() { e.give(k, w) })
		e.waiters[k] = w
	}
	e.mu.Unlock()
	switch {
	case told:
		resolve(why)
	case before != nil:
		before.timer.Stop()
		before.resolve(end{})
	}
}

// give resolves w, if it still waits, without an answer.
func (e *ends) give(k endKey, w *waiter) {
	e.mu.Lock()
	waits := e.waiters[k] == w
	if waits {
		delete(e.waiters, k)
	}
	e.mu.Unlock()
	if waits {
		w.resolve(end{})
	}
}

// tell says how attempt k ended, and whether somebody waited for it.
func (e *ends) tell(k endKey, why end) bool {
	e.mu.Lock()
	w := e.waiters[k]
	delete(e.waiters, k)
	if w == nil && why.by != bySomebody {
		e.noteLocked(k, why)
	}
	e.mu.Unlock()
	if w == nil {
		return false
	}
	w.timer.Stop()
	w.resolve(why)
	return true
}

func (e *ends) noteLocked(k endKey, why end) {
	if _, ok := e.early[k]; !ok {
		e.order = append(e.order, k)
	}
	e.early[k] = why
	for len(e.order) > maxEnds {
		delete(e.early, e.order[0])
		e.order = e.order[1:]
	}
}

// await settles an attempt whose stream ended without a verdict, as soon as it is known why.
func (p *Processor) await(a *attempt) {
	p.open.Add(1)
	k := endKey{a.head.exchange.ID, a.head.exchange.Attempt}
	p.ends.await(k, func(why end) {
		defer p.open.Add(-1)
		a.settle(why)
		a.publish()
	})
}

// settle counts an attempt by how its stream ended. No other goroutine touches it any more.
func (a *attempt) settle(why end) {
	if a.conn.gone() { // Envoy did not end the stream: this says nothing about the provider, nor about the client
		v := a.abort(classify.Canceled, "connection to envoy lost")
		a.report(v)
		if a.state == committed {
			a.abandonKey()
			a.p.account(a, v, OutcomeFailed)
		}
		return
	}
	if why.by == byProvider {
		v := a.abort(classify.Transport, "reset")
		if a.observing() {
			a.broken(v)
			return
		}
		a.report(v)
		if a.state == committed && why.status == a.answer.status {
			a.abandonKey()
			a.p.account(a, v, OutcomeFailed)
		} else {
			a.p.memo.Add(a.head.exchange.ID, a.pastOf(v))
		}
		return
	}
	v := a.abort(classify.Canceled, "client")
	a.report(v)
	a.abandonKey()
	a.p.account(a, v, OutcomeCanceled)
}
