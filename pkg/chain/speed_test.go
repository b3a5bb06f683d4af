package chain

import (
	"testing"
	"time"

	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// TestAPlainChainLaysOutNothingForAnExchange: only members and conversations need an order of their own.
func TestAPlainChainLaysOutNothingForAnExchange(t *testing.T) {
	b := newBench(t, retrySame, "a", "b", "c")
	p := b.plan()
	if got := testing.AllocsPerRun(100, func() { p.order(&b.x, nil) }); got != 0 {
		t.Errorf("the order of an exchange costs %v allocations, want none", got)
	}
}

// BenchmarkBegin is the hot path: the first attempt of an exchange, at a target that answers.
func BenchmarkBegin(b *testing.B) { benchmarkBegin(b, "a", "b", "c") }

// BenchmarkBeginMembers is the same where three targets share the first rung.
func BenchmarkBeginMembers(b *testing.B) { benchmarkBegin(b, "a+b+c", "d") }

func benchmarkBegin(b *testing.B, names ...string) {
	cfg := conf(func(c *config.Chain) { c.Retry.Budget = 0.1 }, targets(names...))
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
