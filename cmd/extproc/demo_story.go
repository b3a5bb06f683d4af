package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"understudy/pkg/chain/breaker"
)

// shortly bounds what must be true soon after an answer.
const shortly = 5 * time.Second

// story plays the steps on a stage and tells them to a person.
type story struct {
	*stage
	out io.Writer
}

type step struct {
	title string
	play  func(*story, context.Context) error
}

func steps() []step {
	return []step{
		{"A healthy answer", one(healthy)},
		{"The primary is overloaded: 529", one(overloaded)},
		{"A 200 that is overloaded before it says anything, replaced unseen", one(overloadedStream)},
		{"Five failures open the breaker, and the sixth exchange does not call the primary", (*story).trip},
		{"Recovery: one success closes the breaker", (*story).recovery},
		{"An honest end: a stream that dies after content is never made to look whole", (*story).honest},
	}
}

// tell plays all steps; the first that is not true is the end.
func (s *story) tell(ctx context.Context) error {
	began := time.Now()
	s.prologue()
	for i, step := range steps() {
		fmt.Fprintf(s.out, "\n%d  %s\n", i+1, step.title)
		if err := step.play(s, ctx); err != nil {
			return fmt.Errorf("step %d did not come true: %w", i+1, err)
		}
	}
	fmt.Fprintf(s.out, "\nAll %d steps came true, in %.1f s.\n", len(steps()), time.Since(began).Seconds())
	return nil
}

// scene is one exchange: what the primary is told to do, and what must come of it.
type scene struct {
	stream    bool
	behaviour string // of the primary; see scripted.ParseBehaviour
	does      string // the same for people
	want
}

// want is what must come of an exchange.
type want struct {
	target, rung, attempts, reason string // of the x-llm-* headers
	calls                          [2]int // of the primary and of the fallback
	verdict                        string // class of the primary's attempt
	ending                         ending
}

// What the scenes come to.
var (
	fromPrimary = want{target: "primary/sonnet", rung: "0", attempts: "1",
		calls: [2]int{1, 0}, verdict: "ok", ending: wholeEnd}
	fromFallback = want{target: "fallback/sonnet", rung: "1", attempts: "2", reason: "overloaded",
		calls: [2]int{1, 1}, verdict: "overloaded", ending: wholeEnd}
)

// The scenes.
var (
	healthy          = scene{true, "ok", "a good stream", fromPrimary}
	overloaded       = scene{false, "529", "529 overloaded_error", fromFallback}
	overloadedStream = scene{true, "error-start", "200, message_start, ping, then event: error", fromFallback}
	stopped          = scene{true, "cut how=end gate", "200, three pieces of text, then a clean HTTP end without message_stop",
		fromPrimary.but("truncated", errorEnd)}
	reset = scene{true, "cut how=reset gate", "200, three pieces of text, then a connection reset",
		fromPrimary.but("transport", abortedEnd)}
)

func (w want) but(verdict string, e ending) want {
	w.verdict, w.ending = verdict, e
	return w
}

// one is a step of a single scene.
func one(sc scene) func(*story, context.Context) error {
	return func(s *story, ctx context.Context) error { return s.scene(ctx, sc) }
}

// scene plays and tells one exchange.
func (s *story) scene(ctx context.Context, sc scene) error {
	before, err := s.metrics(ctx)
	if err != nil {
		return err
	}
	got, calls, err := s.exchange(ctx, sc)
	if err != nil {
		return err
	}
	s.tellScene(sc, got, calls)
	if err := sc.check(got, calls); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, shortly)
	defer cancel()
	if err := s.awaitVerdict(ctx, before, sc.verdict); err != nil {
		return err
	}
	s.line("verdict", "the primary's answer was: %s", sc.verdict)
	return nil
}

// exchange lets the primary behave as the scene wants, makes one call, and says whom it reached how often.
func (s *story) exchange(ctx context.Context, sc scene) (seen, [2]int, error) {
	if err := s.primary.Set(sc.behaviour); err != nil {
		return seen{}, [2]int{}, err
	}
	before := s.calls()
	got, err := s.ask(ctx, sc.stream)
	after := s.calls()
	return got, [2]int{after[0] - before[0], after[1] - before[1]}, err
}

func (s *story) calls() [2]int { return [2]int{s.primary.Count(""), s.fallback.Count("")} }

// check compares what the client saw, and whom the exchange reached, with what must be.
func (w want) check(got seen, calls [2]int) error {
	var faults []string
	differs := func(what, got, want string) {
		if got != want {
			faults = append(faults, fmt.Sprintf("%s is %q, want %q", what, got, want))
		}
	}
	differs("the status", fmt.Sprint(got.status), "200")
	differs("x-llm-target", got.header.Get("x-llm-target"), w.target)
	differs("x-llm-rung", got.header.Get("x-llm-rung"), w.rung)
	differs("x-llm-attempts", got.header.Get("x-llm-attempts"), w.attempts)
	differs("x-llm-fallback-reason", got.header.Get("x-llm-fallback-reason"), w.reason)
	differs("the number of calls to primary and fallback", fmt.Sprint(calls), fmt.Sprint(w.calls))
	differs("what the client got", string(got.ending()), string(w.ending))
	if got.has("event: ") {
		differs("the number of message_start events", fmt.Sprint(got.starts()), "1")
	}
	if w.rung == "1" && got.has("[primary ") {
		faults = append(faults, "the fallback's answer holds text of the primary")
	}
	if faults == nil {
		return nil
	}
	return errors.New(strings.Join(faults, "; "))
}

// trip lets the primary fail until its breaker opens, and calls once more.
func (s *story) trip(ctx context.Context) error {
	s.line("sent", "a good one, which clears the count of failures, then six POST /v1/messages")
	s.line("primary", "200, then 529 to every call")
	failures := s.cfg.Targets["primary/sonnet"].Breaker.Failures
	row, done := s.table("exchange", "status", "x-llm-target", "x-llm-attempts", "x-llm-fallback-reason", "calls to primary", "breaker")
	defer done()
	for i := range failures + 2 {
		sc, state := overloaded, breaker.Closed
		switch {
		case i == 0:
			sc = scene{want: fromPrimary, behaviour: "ok"}
		case i > failures:
			sc.calls = [2]int{0, 1}
		}
		if i >= failures {
			state = breaker.Open
		}
		if err := s.tripOnce(ctx, sc, state, func(got seen, calls int) {
			row(i, got.status, got.header.Get("x-llm-target"), got.header.Get("x-llm-attempts"),
				got.header.Get("x-llm-fallback-reason"), calls, state)
		}); err != nil {
			return fmt.Errorf("exchange %d: %w", i, err)
		}
	}
	return nil
}

// tripOnce plays one exchange after which the breaker must be in a state.
func (s *story) tripOnce(ctx context.Context, sc scene, state breaker.State, tell func(got seen, calls int)) error {
	got, calls, err := s.exchange(ctx, sc)
	if err != nil {
		return err
	}
	if err := sc.check(got, calls); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, shortly)
	defer cancel()
	if err := s.awaitState(ctx, state); err != nil {
		return err
	}
	tell(got, calls[0])
	return nil
}

// recovery waits until the primary may be tried, and lets it succeed.
func (s *story) recovery(ctx context.Context) error {
	began := time.Now()
	soon, cancel := context.WithTimeout(ctx, shortly)
	defer cancel()
	if err := s.awaitState(soon, breaker.HalfOpen); err != nil {
		return err
	}
	// The right to try a target is one for the whole fleet; the service takes it in the store first.
	try := s.service.processor.Book().Breaker("primary/sonnet")
	if err := poll(soon, func(context.Context) error { return try.Check() }); err != nil {
		return err
	}
	s.line("waited", "%.1f s of open_for: the breaker is half-open and lets one exchange try", time.Since(began).Seconds())
	if err := s.scene(ctx, scene{want: fromPrimary, behaviour: "ok", does: "well again"}); err != nil {
		return err
	}
	soon, cancel = context.WithTimeout(ctx, shortly)
	defer cancel()
	if err := s.awaitState(soon, breaker.Closed); err != nil {
		return err
	}
	s.line("breaker", "closed")
	return nil
}

// honest lets streams die in the two ways that there are.
func (s *story) honest(ctx context.Context) error {
	if err := s.scene(ctx, stopped); err != nil {
		return err
	}
	fmt.Fprintln(s.out)
	return s.scene(ctx, reset)
}
