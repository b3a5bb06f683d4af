package recovery

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"understudy/pkg/config"
	"understudy/pkg/degrade/queue/queuetest"
)

func TestAProviderThatFailsStopsTheDrainAtOnce(t *testing.T) {
	inTap(t, func(p *tap) {
		p.live = 1000
		p.put("a", 300)
		p.answers(takes(700*time.Millisecond, came(200, fine)))
		p.Start(p.t.Context())
		after(10 * time.Second)
		good := p.counted("run a done")
		p.answers(takes(700*time.Millisecond, came(529, problem("overloaded_error", "Overloaded"))))
		for p.counted("run a overloaded") == 0 {
			after(10 * time.Millisecond)
		}
		first := time.Now()
		after(2 * time.Second)
		for _, r := range p.runs() {
			if r.at.After(first) {
				t.Errorf("a job started %s after the failure", r.at.Sub(first))
			}
		}
		if got := p.counted("run a overloaded") + p.counted("run a done") - good; got > 2*flights {
			t.Errorf("%d jobs ended after the change, want no more than what was in flight", got)
		}
	})
}

func TestAStoppedDrainTriesAgainEverMoreSeldom(t *testing.T) {
	inTap(t, func(p *tap) {
		p.cfg.Chains[0].Queue.MaxAge = 24 * time.Hour
		p.put("a", 50)
		p.answers(came(529, problem("overloaded_error", "Overloaded")))
		p.Start(p.t.Context())
		after(30 * time.Minute)
		want := []time.Duration{5, 10, 20, 40, 80, 160, 300, 300, 300}
		runs := p.runs()
		for i, w := range want {
			if got := runs[i+1].at.Sub(runs[i].at); got < w*time.Second || got > w*time.Second+2*lookEvery {
				t.Errorf("pause %d is %s, want %d s", i, got, w)
			}
		}
		p.answers(came(200, fine))
		p.Wake("a")
		n := len(runs)
		after(20 * time.Second)
		if got := len(p.runs()) - n; got < 15 {
			t.Errorf("%d jobs in 20 s after a target closed, want about 20", got)
		}
		p.answers(came(529, problem("overloaded_error", "Overloaded")))
		after(3 * time.Second)
		n = len(p.runs())
		after(5 * time.Second)
		if got := len(p.runs()) - n; got != 1 {
			t.Errorf("%d jobs in 5 s, want one: a success made the pause short again", got)
		}
	})
}

func TestThoseInFlightAreFewAndStopTheDrainOnce(t *testing.T) {
	inTap(t, func(p *tap) {
		p.live = 1000
		p.put("a", 100)
		p.answers(takes(100*time.Second, came(529, problem("overloaded_error", "Overloaded"))))
		p.Start(p.t.Context())
		after(90 * time.Second)
		if got := len(p.runs()); got != flights {
			t.Errorf("%d jobs are in flight, want %d", got, flights)
		}
		after(11 * time.Second) // All have failed, at different times.
		p.answers(came(200, fine))
		after(10 * time.Second)
		if got := p.counted("run a done"); got < 5 {
			t.Errorf("%d jobs ran, want that several failures make one short pause", got)
		}
	})
}

func TestNothingRunsWhileNoTargetMayBeTried(t *testing.T) {
	inTap(t, func(p *tap) {
		p.share = 0
		ids := p.put("a", 3)
		p.Start(p.t.Context())
		p.Wake("a")
		after(time.Minute)
		if got := len(p.runs()); got > 0 {
			t.Errorf("%d jobs ran, want none", got)
		}
		after(time.Hour)
		for _, id := range ids {
			if got := p.is(id); got != "expired" {
				t.Errorf("job = %s, want expired", got)
			}
		}
		p.put("a", 1)
		p.set(func() { p.share = 1 })
		after(3 * time.Second)
		if got := len(p.runs()); got != 1 {
			t.Errorf("%d jobs ran once a target was open, want 1", got)
		}
	})
}

func TestOneChainsFailureDoesNotStopAnother(t *testing.T) {
	inTap(t, func(p *tap) {
		p.put("a", 20)
		p.put("b", 20)
		p.answers(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("idempotency-key")[0] == 'a' {
				came(529, problem("overloaded_error", "Overloaded"))(w, r)
				return
			}
			came(200, fine)(w, r)
		})
		p.Start(p.t.Context())
		after(30 * time.Second)
		if got := p.counted("run b done"); got != 20 {
			t.Errorf("%d jobs of the other chain are done, want 20", got)
		}
	})
}

func TestALongJobStaysWithItsWorker(t *testing.T) {
	inTap(t, func(p *tap) {
		ids := p.put("a", 1)
		p.answers(takes(110*time.Second, came(200, fine)))
		p.Start(p.t.Context())
		after(2 * time.Minute)
		if got := len(p.runs()); got != 1 || p.is(ids[0]) != "done 200 a/m" {
			t.Errorf("%d runs, job %s, want one that is done", got, p.is(ids[0]))
		}
	})
}

func TestAStopWaitsForWhatIsInFlight(t *testing.T) {
	rows := []struct {
		name     string
		patience time.Duration
		want     string
	}{
		{"as long as there is time", time.Minute, "done 200 a/m"},
		{"and gives it back then", time.Second, "queued"},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			inTap(t, func(p *tap) {
				ids := p.put("a", 3)
				p.answers(takes(20*time.Second, came(200, fine)))
				p.Start(p.t.Context())
				after(500 * time.Millisecond)
				ctx, cancel := context.WithTimeout(p.t.Context(), r.patience)
				defer cancel()
				err := p.Stop(ctx)
				if (err == nil) != (r.want != "queued") || err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Stop = %v", err)
				}
				if got := p.is(ids[0]); got != r.want {
					t.Errorf("job = %s, want %s", got, r.want)
				}
				for _, id := range ids[1:] {
					if got := p.is(id); got != "queued" {
						t.Errorf("job = %s, want queued", got)
					}
				}
				if w, err := p.Queue.Next(p.t.Context(), "a"); err != nil {
					t.Errorf("Next = %v, %v, want a job for another replica at once", w, err)
				}
			})
		})
	}
}

func TestAnAnswerThatWasPaidForWaitsForTheStore(t *testing.T) {
	inTap(t, func(p *tap) {
		ids := p.put("a", 1)
		var up atomic.Bool
		p.mem.Fault = func(op, _ string) queuetest.Fault {
			if !up.Load() && op == "put blob" {
				return queuetest.Refused
			}
			return queuetest.None
		}
		p.Start(p.t.Context())
		after(20 * time.Second)
		up.Store(true)
		after(5 * time.Second)
		if got := len(p.runs()); got != 1 || p.is(ids[0]) != "done 200 a/m" {
			t.Errorf("%d runs, job %s, want one that is done", got, p.is(ids[0]))
		}
	})
}

func TestChainsComeAndGo(t *testing.T) {
	inTap(t, func(p *tap) {
		p.put("a", 100)
		p.Start(p.t.Context())
		after(5 * time.Second)
		p.set(func() { p.cfg.Chains = []*config.Chain{chainOf("c")} })
		after(10 * time.Second)
		n := len(p.runs())
		p.put("c", 5)
		after(10 * time.Second)
		if got := p.runs()[n:]; len(got) != 5 || got[0].id[0] != 'c' {
			t.Errorf("runs %v, want those of the new chain alone", got)
		}
	})
}
