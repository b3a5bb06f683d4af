package rehearse

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"
)

// live is a drill on requests of clients.
type live struct {
	*runner
	p       policy
	call    call
	id      string
	from    time.Time
	depth   float64 // of the queue, before
	asked   int     // requests of our own
	refused error
}

// share lets a share of the chain's requests meet a failing primary until its breaker opens, and sees the chain come back.
// The requests of its own are like those of any client. Whatever happens, the plan is stopped.
func (r *runner) share(ctx context.Context, p policy, c call) {
	c.prompt = usual
	l := &live{runner: r, p: p, call: c}
	why := r.unfit(ctx, p, p.names(0, len(p.Rungs)))
	if why == "" && p.alone() {
		why = "its clients would have nobody else to answer them"
	}
	if why == "" {
		why = l.begin(ctx)
	}
	if why != "" {
		r.add(untold(p, "a share of the traffic meets a failing primary", why))
		return
	}
	defer l.stop(ctx)
	opened := l.opens(ctx)
	r.add(opened)
	if err := l.stop(ctx); err != nil {
		r.add(Result{Chain: p.Name, Name: "the drill stops", Where: "drill", Promised: "the drill ends when it is stopped", Outcome: Broken,
			Why: fmt.Sprintf("drill %s could not be stopped and ends by itself at %s: %v", l.id, l.from.Add(r.o.For).UTC().Format(time.TimeOnly), err)})
	}
	r.add(l.closes(ctx))
}

// begin starts the plan, or says why there is none.
func (l *live) begin(ctx context.Context) string {
	m, err := l.stack.metrics(ctx)
	if err != nil {
		return err.Error()
	}
	l.depth, l.from = m.depth(l.p.Name), time.Now()
	var plan struct{ ID string }
	// Who is interrupted here must know the plan's id all the same, or nobody stops it.
	err = l.stack.told(context.WithoutCancel(ctx), http.MethodPost, "/drills", wish{
		Chain: l.p.Name, Faults: l.p.all(1, l.p.failing().Name), Share: l.o.Share, For: l.o.For.String(),
	}, &plan)
	if err != nil {
		return err.Error()
	}
	l.id = plan.ID
	return ""
}

// stop ends the plan, even when ctx has ended; again it does nothing.
func (l *live) stop(ctx context.Context) error {
	if l.id == "" {
		return nil
	}
	err := l.stack.told(context.WithoutCancel(ctx), http.MethodPost, "/drills/"+l.id+"/stop", nil, nil)
	if told := (refusal{}); errors.As(err, &told) && told.status == http.StatusNotFound {
		err = nil // it is over
	}
	if err == nil {
		l.id = ""
	}
	return err
}

// request is one of a client's. It is to be served whole, by whom ever.
func (l *live) request(ctx context.Context) (rung string, err error) {
	l.asked++
	begins := l.p.patience(l.call.stream)*2 + slack
	a := l.stack.ask(ctx, l.call, "", "", begins, l.p.Deadlines.Total+slack)
	w := promise{status: 200, rung: nobody, mode: a.header.Get("x-llm-degraded"), end: whole, begins: begins}
	if differences := w.compare(a); len(differences) > 0 && ctx.Err() == nil {
		l.refused = fmt.Errorf("request %d of the drill's own was not served: %v (%s)", l.asked, differences, a)
	}
	return a.header.Get("x-llm-rung"), l.refused
}

// opens waits until the primary's breaker opens. All requests are served meanwhile.
func (l *live) opens(ctx context.Context) (result Result) {
	primary := l.p.Rungs[0].Target
	result = Result{
		Chain: l.p.Name, Name: fmt.Sprintf("%g of the traffic meets a failing primary: clients are served, and its breaker opens", l.o.Share),
		Where: "targets." + primary.Name + ".breaker", Drills: []string{l.id}, Began: time.Now(), Outcome: Kept,
		Promised: fmt.Sprintf("every request is served; the breaker of %s opens after %d failures in a row", primary.Name, primary.Breaker.Failures),
	}
	defer func() { result.Took = time.Since(result.Began) }()
	gone := false
	err := until(ctx, l.o.For, func(ctx context.Context) error {
		if _, err := l.request(ctx); err != nil {
			return nil // it cannot get better
		}
		m, err := l.stack.metrics(ctx)
		if err != nil {
			return err
		}
		if on, told := m.of("drill_active", "chain", l.p.Name); told && on == 0 && l.asked > 1 {
			gone = true
			return nil
		}
		if state, _ := m.of("breaker_state", "target", primary.Name); state == 0 {
			return errors.New("the breaker is closed")
		}
		return nil
	})
	result.Seen = fmt.Sprintf("%d requests of the drill's own; the breaker opened", l.asked)
	switch {
	case ctx.Err() != nil:
		result.Seen, result.Outcome, result.Why = "", Untold, interrupted
	case l.refused != nil:
		result.Seen, result.Outcome, result.Why = l.refused.Error(), Broken, fmt.Sprintf("chains.%s: %v", l.p.Name, l.refused)
	case gone && time.Since(l.from) < l.o.For-time.Second:
		result.Outcome, result.Why = Broken, fmt.Sprintf("chains.%s: the service ended the drill by itself, as too many of the chain's requests failed", l.p.Name)
		result.Seen = "the drill ended by itself"
	case err != nil && l.o.Share < 1:
		result.Seen = fmt.Sprintf("%d requests of the drill's own were served; %v", l.asked, err)
		result.Outcome, result.Why = Untold, fmt.Sprintf("at a share of %g the breaker of %s did not see enough failures: say --share 1 where that may be", l.o.Share, primary.Name)
	case err != nil || gone:
		result.Seen = fmt.Sprintf("%d requests of the drill's own were served; the breaker stayed closed", l.asked)
		result.Outcome, result.Why = Broken, fmt.Sprintf("targets.%s.breaker: it did not open within %s", primary.Name, l.o.For)
	}
	return result
}

// closes waits until the primary has all of its traffic again, and the queue is as it was.
func (l *live) closes(ctx context.Context) (result Result) {
	primary := l.p.Rungs[0].Target
	bound := l.back()
	l.refused = nil // what became of a request before has been told
	result = Result{
		Chain: l.p.Name, Name: "the drill is over: the breaker closes, the primary serves, and the queue is as it was", Outcome: Kept,
		Where: "targets." + primary.Name + ".breaker.open_for", Began: time.Now(),
		Promised: fmt.Sprintf("%s serves all requests again, and at most %g jobs wait, within %s", primary.Name, l.depth, bound.Round(time.Second)),
	}
	err := until(ctx, bound, func(ctx context.Context) error {
		rung, err := l.request(ctx)
		if err != nil {
			return nil
		}
		m, err := l.stack.metrics(ctx)
		switch {
		case err != nil:
			return err
		case m.unfit(primary.Name) != "":
			return errors.New(m.unfit(primary.Name))
		case rung != "0":
			return fmt.Errorf("rung %s serves", rung)
		case m.depth(l.p.Name) > l.depth:
			return fmt.Errorf("%g jobs wait, %g before the drill", m.depth(l.p.Name), l.depth)
		}
		if on, _ := m.of("drill_active", "chain", l.p.Name); on > 0 {
			return errors.New("the drill has not stopped")
		}
		return nil
	})
	result.Took = time.Since(result.Began)
	result.Seen = fmt.Sprintf("so it is after %s", result.Took.Round(time.Millisecond))
	if err == nil {
		err = l.refused
	}
	switch {
	case ctx.Err() != nil:
		result.Outcome, result.Why = Untold, interrupted
	case err != nil:
		result.Seen, result.Outcome = err.Error(), Broken
		result.Why = fmt.Sprintf("%s: %v", result.Where, err)
	}
	return result
}

// back bounds how long the primary may stay away: it may have been tried, and failed, once while the plan was on, which
// doubles its open period; then its share doubles with each interval.
func (l *live) back() time.Duration {
	b := l.p.Rungs[0].Target.Breaker
	ramp := time.Duration(math.Ceil(math.Log2(1/b.Ramp.Share))) * b.Ramp.Interval
	return min(2*b.OpenFor, max(b.OpenFor, b.MaxOpenFor)) + ramp + patience + 2*slack
}
