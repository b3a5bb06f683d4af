//go:build e2e

package e2e

import (
	"testing"
	"time"
)

// With two replicas behind Envoy's round-robin, each attempt may meet another one: nothing may depend on a replica
// having seen the one before.
func TestTwoReplicasPassTheSameRows(t *testing.T) { // alone: it is heavy
	failing, chains := failoverRows(clientKinds[:4])
	replaced, more := unseenRows()
	for i := range more {
		more[i].name = "unseen-" + more[i].name
		replaced[i].call.chain = more[i].name
		replaced[i].want.target = more[i].target("b")
	}
	patient := chain{name: "patient", api: "anthropic", on: []string{"a", "b"}}
	patient.more.Deadlines = fileDeadlines{FirstContent: time.Second, Answer: time.Minute}
	chains = append(append(append(chains, more...), flowing...), patient)
	s := startStack(t, plan{replicas: 2, nats: startNATS(t, 1), chains: chains})
	t.Run("rows", func(t *testing.T) {
		for _, row := range failing {
			row.want.noHints = true
			t.Run(row.name(), func(t *testing.T) { row.run(t, s) })
		}
		for _, row := range replaced {
			row.want.noHints = true
			t.Run(row.name, func(t *testing.T) { row.run(t, s) })
		}
	})
	t.Run("a slow healthy answer", func(t *testing.T) {
		c := call{path: messages, chain: "patient", script: "a=ok after=3s"}
		served{by: "a", target: "patient/a", rung: 0, attempts: 1}.check(t, c, s.sdk(within(t, time.Minute), t, c))
	})
	t.Run("integrity", func(t *testing.T) { integrity(t, s) })
	for i := range s.services {
		m, err := s.metrics(t.Context(), i)
		if err != nil {
			t.Fatal(err)
		}
		if m.sum("understudy_attempts_total") == 0 {
			t.Errorf("replica %d has seen no attempt: Envoy did not use both", i)
		}
	}
	s.survives(t)
}

// Two replicas that share a store have one breaker for each target.
func TestTwoReplicasPassTheBreakerRows(t *testing.T) {
	t.Parallel()
	nats := startNATS(t, 1)
	for _, row := range breakerRows {
		t.Run(row.name, func(t *testing.T) { row.run(t, plan{replicas: 2, nats: nats}) })
	}
}
