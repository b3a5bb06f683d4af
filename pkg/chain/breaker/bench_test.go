package breaker

import (
	"testing"
	"time"
)

// BenchmarkAllowDone is a breaker's part in an attempt, with the callers of a busy target side by side.
func BenchmarkAllowDone(b *testing.B) {
	usual := Settings{Failures: 5, OpenFor: time.Minute, MaxOpenFor: 10 * time.Minute}
	ratio := usual
	ratio.Ratio, ratio.Window, ratio.MinCalls = 0.5, 30*time.Second, 20
	for name, s := range map[string]Settings{"row": usual, "ratio": ratio} {
		br := New("a", s, func(Transition) {})
		b.Run(name, func(b *testing.B) { b.ReportAllocs(); allowDone(b, br) })
		b.Run(name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					succeed(b, br)
				}
			})
		})
	}
}

func allowDone(b *testing.B, br *Breaker) {
	for b.Loop() {
		succeed(b, br)
	}
}

func succeed(b *testing.B, br *Breaker) {
	p, err := br.Allow()
	if err != nil {
		b.Error(err)
		return
	}
	p.Done(Success)
}

// BenchmarkCheck is a slot passed over: the target is closed, open, or ramping.
func BenchmarkCheck(b *testing.B) {
	s := Settings{Failures: 1, OpenFor: time.Hour, Ramp: Ramp{time.Hour, 0.1}}
	rows := map[string]Truth{"closed": {}, "open": {Gen: 1, Open: true, Until: time.Now().Add(time.Hour)}, "ramping": {Gen: 1, Since: time.Now()}}
	for name, truth := range rows {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			br := New("a", s, func(Transition) {})
			br.Follow(truth)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					_ = br.Check()
				}
			})
		})
	}
}

// BenchmarkObserve is the news of one beat of another replica.
func BenchmarkObserve(b *testing.B) {
	b.ReportAllocs()
	br := New("a", Settings{Failures: 5, OpenFor: time.Minute}, func(Transition) {})
	for b.Loop() {
		br.Observe(Tally{OK: 10, Failed: 2, Trailing: 1})
	}
}
