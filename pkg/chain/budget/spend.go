package budget

import (
	"maps"
	"sync"
)

// Spend is what this process has spent, by chain and target, for metrics; there are as many sums as the config has
// pairs. Of the fleet the metrics' reader makes the sum; what budgets count is with the Meter.
//
// Concurrency: safe for all.
type Spend struct {
	mu   sync.Mutex // guards sums
	sums map[pair]Sum
}

type pair struct{ chain, target string }

// Sum is what was spent, and the parts of it that were estimated or went by another model's price.
type Sum struct{ Total, Estimated, Assumed Money }

// Add counts a bill.
func (s *Spend) Add(chain, target string, b Bill) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sums == nil {
		s.sums = map[pair]Sum{}
	}
	sum := s.sums[pair{chain, target}]
	sum.Total = sum.Total.plus(b.Amount)
	if b.Estimated {
		sum.Estimated = sum.Estimated.plus(b.Amount)
	}
	if b.Assumed {
		sum.Assumed = sum.Assumed.plus(b.Amount)
	}
	s.sums[pair{chain, target}] = sum
}

// Each calls f with each sum so far, in no order.
func (s *Spend) Each(f func(chain, target string, sum Sum)) {
	s.mu.Lock()
	sums := maps.Clone(s.sums)
	s.mu.Unlock()
	for k, v := range sums {
		f(k.chain, k.target, v)
	}
}
