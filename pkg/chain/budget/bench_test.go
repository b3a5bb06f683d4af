package budget

import (
	"fmt"
	"sync/atomic"
	"testing"

	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// BenchmarkReserveSettle is a budget's part in an attempt, alone and with many callers of one key or of many.
func BenchmarkReserveSettle(b *testing.B) {
	hour, month := hourly(1e6), config.Budget{USD: 1e6, Month: true}
	for name, budget := range map[string]config.Budget{"hour": hour, "month": month} {
		m := newWorld().replica(b, "r", nil)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				buy(b, m, support, budget)
			}
		})
		b.Run(name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					buy(b, m, support, budget)
				}
			})
		})
	}
	b.Run("tenants", func(b *testing.B) {
		m := newWorld().replica(b, "r", nil)
		var n atomic.Int64
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			key := Key{"support", fmt.Sprint(n.Add(1))}
			for pb.Next() {
				buy(b, m, key, hour)
			}
		})
	})
}

func buy(b *testing.B, m *replica, key Key, budget config.Budget) {
	r, err := m.Reserve(b.Context(), key, budget, Ask{Worst: 1000, Primary: 1000})
	if err != nil {
		b.Error(err)
		return
	}
	r.Settle(1)
}

func BenchmarkCost(b *testing.B) {
	t, v := sonnet(), classify.Verdict{Class: classify.OK, Complete: true, ServedTier: "priority", Usage: classify.Usage{Input: 1000, Output: 500, CacheRead: 10000, CacheWrite: 2000}}
	b.ReportAllocs()
	for b.Loop() {
		_ = (*Prices)(nil).Cost(t, v, Request{})
	}
}

func BenchmarkWorst(b *testing.B) {
	t := sonnet()
	b.ReportAllocs()
	for b.Loop() {
		_ = Worst(t, Request{InputBytes: 4000, MaxTokens: 1000})
	}
}
