//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// sample is one line of an exposition.
type sample struct {
	name   string
	labels map[string]string
	value  float64
}

// metrics is what one replica's /metrics said.
type metrics []sample

var (
	sampleLine = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$`)
	labelPair  = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"`)
)

func parseMetrics(text string) metrics {
	var m metrics
	for line := range strings.Lines(text) {
		match := sampleLine.FindStringSubmatch(strings.TrimSpace(line))
		if match == nil {
			continue // a comment
		}
		value, err := strconv.ParseFloat(match[3], 64)
		if err != nil {
			continue
		}
		labels := map[string]string{}
		for _, pair := range labelPair.FindAllStringSubmatch(match[2], -1) {
			labels[pair[1]] = pair[2]
		}
		m = append(m, sample{match[1], labels, value})
	}
	return m
}

// sum adds the samples of a name that have all the given labels (name, value, name, value …).
func (m metrics) sum(name string, labels ...string) float64 {
	total := 0.0
	for _, s := range m {
		if s.name == name && s.has(labels) {
			total += s.value
		}
	}
	return total
}

// count is how many samples of a name there are.
func (m metrics) count(name string) (n int) {
	for _, s := range m {
		if s.name == name {
			n++
		}
	}
	return n
}

func (s sample) has(labels []string) bool {
	for i := 0; i < len(labels); i += 2 {
		if s.labels[labels[i]] != labels[i+1] {
			return false
		}
	}
	return true
}

// metrics reads replica i.
func (s *Stack) metrics(ctx context.Context, i int) (metrics, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.services[i].admin+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return parseMetrics(string(body)), err
}

// reads waits until a sum over all replicas is as wanted.
func (s *Stack) reads(t testing.TB, want func(float64) bool, name string, labels ...string) {
	t.Helper()
	eventually(t, patience, func() error {
		total, err := s.total(t, name, labels...)
		if err == nil && !want(total) {
			err = fmt.Errorf("%s%v = %v", name, labels, total)
		}
		return err
	})
}

// total is a sum over all replicas.
func (s *Stack) total(t testing.TB, name string, labels ...string) (float64, error) {
	total := 0.0
	for i := range s.services {
		m, err := s.metrics(t.Context(), i)
		if err != nil {
			return 0, err
		}
		total += m.sum(name, labels...)
	}
	return total, nil
}

func is(want float64) func(float64) bool { return func(got float64) bool { return got == want } }

func atMost(want float64) func(float64) bool { return func(got float64) bool { return got <= want } }

func atLeast(want float64) func(float64) bool { return func(got float64) bool { return got >= want } }

// The values of understudy_breaker_state.
const (
	closed = 0
	open   = 2
)

// breaker waits until the breaker of a target is in a state, on every replica.
func (s *Stack) breaker(t testing.TB, target string, state float64) {
	t.Helper()
	s.each(t, is(state), "understudy_breaker_state", "target", target)
}

// each waits until a sum is as wanted on every replica.
func (s *Stack) each(t testing.TB, want func(float64) bool, name string, labels ...string) {
	t.Helper()
	eventually(t, patience, func() error {
		for i := range s.services {
			m, err := s.metrics(t.Context(), i)
			if err != nil {
				return err
			}
			if got := m.sum(name, labels...); !want(got) {
				return fmt.Errorf("replica %d: %s%v = %v", i, name, labels, got)
			}
		}
		return nil
	})
}
