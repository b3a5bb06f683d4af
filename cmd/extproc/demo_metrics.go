package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"understudy/pkg/chain/breaker"
)

// metrics are samples of the service's /metrics page, by series as it is written there.
type metrics map[string]float64

func parseMetrics(page string) metrics {
	m := metrics{}
	for line := range strings.Lines(page) {
		series, value, _ := cutLast(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseFloat(value, 64); err == nil && !strings.HasPrefix(line, "#") {
			m[series] = n
		}
	}
	return m
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func (s *stage) metrics(ctx context.Context) (metrics, error) {
	page, err := s.get(ctx, s.admin+"/metrics")
	return parseMetrics(page), err
}

// state is the state of the primary's breaker.
func (m metrics) state() string {
	n, ok := m[`understudy_breaker_state{target="primary/sonnet"}`]
	if !ok || n < 0 || n > float64(breaker.Open) {
		return "unknown"
	}
	return breaker.State(n).String()
}

// verdicts are the classes of the primary's attempts with their numbers.
func (m metrics) verdicts() map[string]int {
	got := map[string]int{}
	for series, n := range m {
		rest, ok := strings.CutPrefix(series, `understudy_attempts_total{chain="chat",class="`)
		if !ok {
			continue
		}
		if class, ok := strings.CutSuffix(rest, `",target="primary/sonnet"}`); ok {
			got[class] = int(n)
		}
	}
	return got
}

// awaitState waits until the primary's breaker is in a state.
func (s *stage) awaitState(ctx context.Context, want breaker.State) error {
	return poll(ctx, func(ctx context.Context) error {
		m, err := s.metrics(ctx)
		if err == nil && m.state() != want.String() {
			err = fmt.Errorf("the breaker of primary/sonnet is %s, want %s", m.state(), want)
		}
		return err
	})
}

// awaitVerdict waits until one more attempt at the primary than before is counted as class: some verdicts come
// after the answer, with Envoy's access log.
func (s *stage) awaitVerdict(ctx context.Context, before metrics, class string) error {
	return poll(ctx, func(ctx context.Context) error {
		m, err := s.metrics(ctx)
		if err != nil {
			return err
		}
		was, is := before.verdicts(), m.verdicts()
		if is[class] == was[class]+1 {
			return nil
		}
		return fmt.Errorf("the attempts at primary/sonnet are counted as %v after %v, want one more %s", is, was, class)
	})
}
