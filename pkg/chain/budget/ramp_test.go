package budget

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"understudy/pkg/config"
)

// traffic is what was let through to a target, by the second.
type traffic struct {
	mu     sync.Mutex
	tokens map[int64]int64
}

func (x *traffic) add(n int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tokens[time.Now().Unix()] += n
}

// minute is the tokens of the sixty seconds from one on.
func (x *traffic) minute(from int64) (sum int64) {
	for s := from; s < from+60; s++ {
		sum += x.tokens[s]
	}
	return sum
}

// check looks at every minute, whenever it begins: it has no more than by times the busiest that ended a quarter of an
// hour before it ended, or longer ago; or than by times the floor.
func (x *traffic) check(t *testing.T, by float64, first, last int64) {
	t.Helper()
	minutes := map[int64]int64{}
	for at := first; at+60 <= last; at++ {
		minutes[at] = x.minute(at)
		allowed := int64(rampFloor)
		for before := at - 32*60; before <= at-15*60; before++ {
			allowed = max(allowed, minutes[before])
		}
		if got := minutes[at]; float64(got) > float64(allowed)*by {
			t.Fatalf("%d tokens in the minute from %s, want at most %v times %d", got, time.Unix(at, 0).UTC(), by, allowed)
		}
	}
}

// ramps are the replicas' Ramps.
func ramps(t *testing.T, w *world, n int) (all []*Ramp, links []*link) {
	for i := range n {
		l := &link{w: w}
		r := NewRamp(fmt.Sprint("r", i), l)
		r.Start(t.Context())
		t.Cleanup(r.meter.halt)
		all, links = append(all, r), append(links, l)
	}
	return all, links
}

// send offers tokens at a rate a minute for a while, in requests to any of the replicas, and counts what is let through.
func (x *traffic) send(t *testing.T, all []*Ramp, target *config.Target, perMinute int, d time.Duration) (passed int64) {
	const every = 500 * time.Millisecond
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(every) {
		for left := perMinute / 120; left > 0; {
			n := min(left, 100+rand.IntN(4000))
			left -= n
			if all[rand.IntN(len(all))].Admit(t.Context(), target, int64(n)) {
				x.add(int64(n))
				passed += int64(n)
			}
		}
	}
	return passed
}

func TestAFailoverOfEverythingKeepsToTheRamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := &config.Target{Name: "fallback", MaxRamp: 2}
		all, _ := ramps(t, newWorld(), 3)
		x := &traffic{tokens: map[int64]int64{}}
		first := time.Now().Unix()
		if quiet := x.send(t, all, target, 30_000, 20*time.Minute); quiet < 590_000 {
			t.Errorf("%d tokens of 600000 were let through below the floor, want nearly all", quiet)
		}
		failover := time.Now()
		x.send(t, all, target, 900_000, 36*time.Minute)
		x.check(t, target.MaxRamp, first, time.Now().Unix())
		begin, end := x.minute(failover.Unix()+60), x.minute(time.Now().Unix()-61)
		if begin < 80_000 || end < 350_000 {
			t.Errorf("%d tokens in the second minute and %d in the last one, want most of 100000 and of at least 400000", begin, end)
		}
	})
}

func TestARampSurvivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, target := newWorld(), &config.Target{Name: "primary", MaxRamp: 1.5}
		x := &traffic{tokens: map[int64]int64{}}
		first := time.Now().Unix()
		all, _ := ramps(t, w, 1)
		x.send(t, all, target, 70_000, 20*time.Minute)
		if err := all[0].Stop(t.Context()); err != nil {
			t.Fatalf("Stop = %v", err)
		}
		l := &link{w: w}
		again := NewRamp("another", l)
		again.Start(t.Context())
		t.Cleanup(again.meter.halt)
		passed := x.send(t, []*Ramp{again}, target, 100_000, 3*time.Minute)
		if passed < 280_000 {
			t.Errorf("after a restart %d tokens of 300000 were let through, want nearly all: 1.5 times 70000 a minute are allowed", passed)
		}
		x.check(t, target.MaxRamp, first, time.Now().Unix())
	})
}

func TestWithoutTheStoreARampNeitherGrowsNorStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := &config.Target{Name: "primary", MaxRamp: 2}
		all, links := ramps(t, newWorld(), 1)
		x := &traffic{tokens: map[int64]int64{}}
		x.send(t, all, target, 90_000, 20*time.Minute)
		links[0].set(true, 0)
		time.Sleep(time.Minute) // What was taken before lapses.
		passed := x.send(t, all, target, 300_000, 5*time.Minute)
		if passed < 300_000 || passed > 6*95_000 {
			t.Errorf("%d tokens were let through in five minutes, want about the 90000 a minute of before", passed)
		}
	})
}

func TestARequestThatIsLargerThanAMinutesShareHasAMinuteOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := &config.Target{Name: "new", MaxRamp: 1.5}
		all, _ := ramps(t, newWorld(), 1)
		if !all[0].Admit(t.Context(), target, 10*rampFloor) {
			t.Error("Admit of a large request when nothing else runs = false, want true")
		}
		time.Sleep(time.Second)
		if all[0].Admit(t.Context(), target, 1) {
			t.Error("Admit of another in the same minute = true, want false")
		}
		time.Sleep(62 * time.Second)
		if !all[0].Admit(t.Context(), target, 1) {
			t.Error("Admit a minute later = false, want true")
		}
		if !all[0].Admit(t.Context(), &config.Target{Name: "free"}, 1e12) {
			t.Error("Admit at a target without max_ramp = false, want true")
		}
	})
}
