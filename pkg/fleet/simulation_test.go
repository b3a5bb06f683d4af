package fleet

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"understudy/pkg/chain/breaker"
)

// simulation is where what a thousand replicas tell each other is written, a line of JSON for each case: envoy/sizing.md is
// made from it. Without it the test takes fewer replicas.
var simulation = flag.String("simulation", "", "file for the figures of the simulated fleets")

// counted is News that counts what is published.
type counted struct {
	News
	messages, bytes *atomic.Int64
}

func (c counted) Publish(subject string, data []byte) {
	c.messages.Add(1)
	c.bytes.Add(int64(len(data)))
	c.News.Publish(subject, data)
}

// simulated is a fleet of many replicas on one store, with some milliseconds of network between them.
type simulated struct {
	w               *world
	p               *provider
	all             []*replica
	messages, bytes atomic.Int64
}

func simulate(t *testing.T, n int, f func(s *simulated)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &simulated{w: newWorld(), p: &provider{answer: breaker.Success, takes: time.Second}}
		s.w.rough(0, 5*time.Millisecond)
		for i := range n {
			time.Sleep(beat / time.Duration(n)) // replicas' beats fall at different times
			s.all = append(s.all, start(t, fmt.Sprint("r", i), s.w.node(), settings(), s.p,
				func(o *Options) { o.News = counted{o.News, &s.messages, &s.bytes} }))
		}
		f(s)
		stop(s.all...)
	})
}

// until counts how long it takes until all breakers are in a state.
func (s *simulated) until(t *testing.T, want breaker.State, patience time.Duration) time.Duration {
	t.Helper()
	for from := time.Now(); ; time.Sleep(time.Millisecond) {
		left := 0
		for _, r := range s.all {
			if r.breaker.State() != want {
				left++
			}
		}
		took := time.Since(from)
		if left == 0 {
			return took
		}
		if took > patience {
			t.Fatalf("replicas that are not %s after %s = %d of %d, want none", want, took, left, len(s.all))
		}
	}
}

// traffic makes each replica serve so many calls a second for a while, of which a share fails, at random times.
func (s *simulated) traffic(perSecond, failing float64, lasts time.Duration) time.Duration {
	random := rand.New(rand.NewPCG(3, 4))
	const tick = time.Millisecond
	for range lasts / tick {
		time.Sleep(tick)
		for _, r := range s.all {
			if random.Float64() >= perSecond*tick.Seconds() {
				continue
			}
			outcome := breaker.Success
			if random.Float64() < failing {
				outcome = breaker.Failure
			}
			r.call(outcome)
		}
	}
	return lasts
}

// figures are what a case comes to: what passes the store until it is over, and how long that takes.
type figures struct {
	Case     string  `json:"case"`
	Replicas int     `json:"replicas"`
	Messages int64   `json:"messages"` // published; each goes to every replica
	Bytes    int64   `json:"bytes"`    // of them
	Calls    int     `json:"calls"`    // of the store's buckets
	Millis   float64 `json:"millis"`
}

// during counts what passes while f runs.
func (s *simulated) during(name string, f func() time.Duration) figures {
	messages, bytes, calls := s.messages.Load(), s.bytes.Load(), s.w.asked()
	took := f()
	return figures{name, len(s.all), s.messages.Load() - messages, s.bytes.Load() - bytes, s.w.asked() - calls, float64(took.Microseconds()) / 1000}
}

// fleetCases are what happens in a fleet, one after the other: from an opening to the end of it, and the next.
var fleetCases = []struct {
	name string
	// messages and calls are the most that there may be of each for a replica. Neither may depend on the fleet's size, or
	// the sum would grow with its square.
	messages, calls float64
	happens         func(t *testing.T, s *simulated) time.Duration
}{
	{"1: all is well, 10 calls/s a replica, for 1 s", 0, 0, func(t *testing.T, s *simulated) time.Duration {
		return s.traffic(10, 0, time.Second)
	}},
	{"2: one call in a hundred fails, 10 calls/s a replica, for 1 s", 2, 0, func(t *testing.T, s *simulated) time.Duration {
		return s.traffic(10, 0.01, time.Second)
	}},
	{"3: one replica's breaker opens", 1, 1, func(t *testing.T, s *simulated) time.Duration {
		s.all[0].fail(5)
		return s.until(t, breaker.Open, time.Second)
	}},
	{"4: half-open, tried and closed", 1, 2, func(t *testing.T, s *simulated) time.Duration {
		time.Sleep(settings().OpenFor)
		return s.until(t, breaker.Closed, 10*time.Second)
	}},
	{"5: the provider fails everywhere at once", 1, 1, func(t *testing.T, s *simulated) time.Duration {
		for _, r := range s.all {
			r.fail(2)
		}
		return s.until(t, breaker.Open, time.Second)
	}},
}

func TestAnOpeningReachesALargeFleetWithBoundedNews(t *testing.T) {
	sizes := []int{10, 30}
	if *simulation != "" {
		sizes = []int{10, 30, 100, 300, 1000}
	}
	var told []figures
	for _, n := range sizes {
		simulate(t, n, func(s *simulated) {
			for _, c := range fleetCases {
				f := s.during(c.name, func() time.Duration { return c.happens(t, s) })
				t.Logf("%5d replicas: %-64s %5d messages %6d bytes %5d calls %6.0f ms", n, f.Case, f.Messages, f.Bytes, f.Calls, f.Millis)
				if float64(f.Messages) > c.messages*float64(n) || float64(f.Calls) > c.calls*float64(n) {
					t.Errorf("%d replicas: %s: messages, calls = %d, %d, want at most %v and %v a replica", n, f.Case, f.Messages, f.Calls, c.messages, c.calls)
				}
				told = append(told, f)
				time.Sleep(few)
			}
			if got := len(s.p.probed()); got != 1 {
				t.Errorf("%d replicas: probes of one half-open state = %d, want 1", n, got)
			}
		})
	}
	if *simulation != "" {
		save(t, *simulation, told)
	}
}

func save(t *testing.T, path string, all []figures) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	enc := json.NewEncoder(file)
	for _, f := range all {
		if err := enc.Encode(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}
