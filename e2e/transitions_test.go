//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"
)

// transition is one change of a breaker, as the log tells it.
type transition struct {
	Time     time.Time
	Msg      string
	Target   string
	From, To string
}

// transitions are all changes of breakers that a replica has told so far.
func (p *process) transitions() (all []transition) {
	for line := range strings.Lines(p.tail(16 << 20)) {
		var tr transition
		if json.Unmarshal([]byte(line), &tr) == nil && tr.From != "" && tr.Msg == "breaker "+tr.To {
			all = append(all, tr)
		}
	}
	return all
}

func (tr transition) String() string { return fmt.Sprintf("%s: %s -> %s", tr.Target, tr.From, tr.To) }

// tellsEachChangeOnce checks that the log of every replica has one line for each change that its metrics count.
func (s *Stack) tellsEachChangeOnce(t *testing.T) {
	t.Helper()
	for i, service := range s.services {
		eventually(t, patience, func() error {
			m, err := s.metrics(t.Context(), i)
			if err != nil {
				return err
			}
			told, counted := map[string]int{}, map[string]int{}
			for _, tr := range service.transitions() {
				told[tr.String()]++
			}
			for _, sample := range m {
				if sample.name == "understudy_breaker_transitions_total" && sample.value > 0 {
					counted[transition{Target: sample.labels["target"], From: sample.labels["from"], To: sample.labels["to"]}.String()] = int(sample.value)
				}
			}
			if !maps.Equal(told, counted) {
				return fmt.Errorf("replica %d logs %v and counts %v", i, told, counted)
			}
			return nil
		})
	}
}

// The alert "breaker anthropic/sonnet opened" is written on what this test reads.
func TestEachChangeOfABreakerIsOneCountAndOneLine(t *testing.T) {
	t.Parallel()
	c := chain{name: "seen", api: "anthropic", on: []string{"a", "b"}, breaker: fileBreaker{Failures: 5, OpenFor: time.Second}}
	s := startStack(t, plan{chains: []chain{c}})
	const halfOpen = 1
	changed := func(from, to string) {
		t.Helper()
		s.each(t, is(1), "understudy_breaker_transitions_total", "target", "seen/a", "from", from, "to", to)
	}
	s.breaker(t, "seen/a", closed)
	s.each(t, is(0), "understudy_breaker_transitions_total")
	s.fails(t, "seen", 5)
	changed("closed", "open")
	s.breaker(t, "seen/a", halfOpen)
	changed("open", "half-open")
	eventually(t, patience, func() error {
		a := s.sdk(within(t, patience), t, call{path: messages, chain: "seen", script: "*=ok"})
		if got := a.header.Get("x-llm-target"); got != "seen/a" {
			return fmt.Errorf("served by %q, want seen/a", got)
		}
		return nil
	})
	s.breaker(t, "seen/a", closed)
	changed("half-open", "closed")
	s.each(t, is(3), "understudy_breaker_transitions_total")
	s.tellsEachChangeOnce(t)
}
