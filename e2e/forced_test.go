//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// force says a word on a target's breaker to replica i.
func (s *Stack) force(t *testing.T, i int, how, target string) {
	t.Helper()
	eventually(t, patience, func() error {
		req, err := http.NewRequestWithContext(within(t, patience), http.MethodPost, "http://"+s.services[i].admin+"/breakers/"+how+"/"+target, nil)
		if err != nil {
			return err
		}
		resp, err := s.http.Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("POST %s = %s", req.URL.Path, resp.Status)
		}
		return nil
	})
}

// What an operator says to one replica holds on all, and is known to one that comes back before it is asked for anything.
func TestAForcedBreakerIsForcedOnAllReplicas(t *testing.T) {
	t.Parallel()
	nats := startNATS(t, 1)
	s := startStack(t, plan{replicas: 2, nats: nats, chains: []chain{
		{name: "forced", api: "anthropic", on: []string{"a", "b"}, breaker: fileBreaker{Failures: 3, OpenFor: time.Hour}}}})
	one := []*Stack{s.solo(t, 0), s.solo(t, 1)}
	s.each(t, is(1), "understudy_store_up")

	s.force(t, 0, "open", "forced/a")
	s.each(t, is(1), "understudy_breaker_forced", "target", "forced/a")
	s.each(t, is(open), "understudy_breaker_state", "target", "forced/a")
	for _, view := range one {
		view.skips(t, "forced")
	}
	s.services[1].kill()
	if err := s.startService(t, 1); err != nil {
		t.Fatal(err)
	}
	if m, err := s.metrics(within(t, patience), 1); err != nil || m.sum("understudy_breaker_forced", "target", "forced/a") != 1 {
		t.Errorf("right after its restart replica 1 does not know that the breaker is forced open: %v", err)
	}

	s.force(t, 1, "closed", "forced/a")
	s.each(t, is(-1), "understudy_breaker_forced", "target", "forced/a")
	one[0].fails(t, "forced", 6) // each tries the target
	s.each(t, is(closed), "understudy_breaker_state", "target", "forced/a")
	s.force(t, 0, "release", "forced/a")
	s.each(t, is(0), "understudy_breaker_forced", "target", "forced/a")
	one[0].fails(t, "forced", 1)
	s.each(t, is(open), "understudy_breaker_state", "target", "forced/a")
	s.each(t, is(1), "understudy_breaker_transitions_total", "target", "forced/a")
	s.survives(t)
}
