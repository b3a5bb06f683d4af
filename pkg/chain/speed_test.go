package chain

import (
	"testing"
	"time"

	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// BenchmarkBegin is the hot path: the first attempt of an exchange, at a target that answers.
func BenchmarkBegin(b *testing.B) {
	cfg := conf(func(c *config.Chain) { c.Retry.Budget = 0.1 }, targets("a", "b", "c"))
	plan := NewBook(cfg, nil, nil).Plan(cfg.Chains[0])
	x := Exchange{ID: "7f3a2c1e-0000-4000-8000-000000000001", Attempt: 1, Start: time.Now()}
	b.ReportAllocs()
	for b.Loop() {
		try, err := plan.Begin(x, nil)
		if err != nil {
			b.Fatal(err)
		}
		try.Report(classify.Verdict{Class: classify.OK})
		try.Release()
	}
}
