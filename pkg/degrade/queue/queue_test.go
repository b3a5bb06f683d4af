package queue_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"understudy/pkg/config"
	"understudy/pkg/degrade/queue"
	"understudy/pkg/degrade/queue/queuetest"
	"understudy/pkg/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	maxAge = time.Hour
	keep   = 24 * time.Hour
)

// desk is a Queue on a store in memory.
type desk struct {
	*queue.Queue
	memory *queuetest.Memory

	mu     sync.Mutex // mu guards counts.
	counts map[string]int
}

func newDesk(parts queue.Parts, m *queuetest.Memory) *desk {
	cfg := &config.Config{Jobs: config.Jobs{Keep: keep}, Chains: []*config.Chain{
		{Name: "chat", Queue: config.Queue{MaxAge: maxAge, Notify: &config.Webhook{}}},
		{Name: "quiet", Queue: config.Queue{MaxAge: maxAge}},
	}}
	d := &desk{memory: m, counts: map[string]int{}}
	d.Queue = &queue.Queue{Parts: parts, Config: func() *config.Config { return cfg }, Count: func(chain, outcome string) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.counts[chain+" "+outcome]++
	}}
	return d
}

// inMemory runs test in a bubble.
func inMemory(t *testing.T, test func(t *testing.T, d *desk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := queuetest.New()
		test(t, newDesk(m.Parts(), m))
	})
}

func ask(key string) queue.Request {
	return queue.Request{
		Chain: "chat", Tenant: "acme", Key: key, Path: "/v1/messages?beta=true", Model: "m", MaxAge: maxAge,
		Headers: map[string]string{"Anthropic-Beta": "a,b", "authorization": "Bearer secret", "cookie": "c"},
		Body:    []byte(`{"model":"m","messages":[]}`),
	}
}

func (d *desk) accept(t *testing.T, r queue.Request) queue.Job {
	t.Helper()
	j, err := d.Accept(t.Context(), r)
	if err != nil {
		t.Fatalf("Accept(%s) = %v, want a job", r.Key, err)
	}
	return j
}

func (d *desk) next(t *testing.T, chain string) *queue.Work {
	t.Helper()
	w, err := d.Next(t.Context(), chain)
	if err != nil {
		t.Fatalf("Next(%s) = %v, want work", chain, err)
	}
	return w
}

func (d *desk) wantEmpty(t *testing.T, chain string) {
	t.Helper()
	if w, err := d.Next(t.Context(), chain); !errors.Is(err, queue.ErrEmpty) {
		t.Errorf("Next(%s) = %+v, %v, want ErrEmpty", chain, w, err)
	}
}

func answer(text string) queue.Result {
	return queue.Result{Status: 200, ContentType: "application/json", Headers: map[string]string{"x-llm-target": "a/m"}, Body: []byte(text)}
}

// wantJob is what Get says of a job, as "state body".
func (d *desk) wantJob(t *testing.T, id, want string) {
	t.Helper()
	j, r, err := d.Get(t.Context(), id, "acme")
	got := string(j.State)
	if r != nil {
		got += fmt.Sprintf(" %d %s", r.Status, r.Body)
	}
	if err != nil || got != want {
		t.Errorf("Get(%s) = %q, %v, want %q", id, got, err, want)
	}
}

// told are the chain's notices, as "id state".
func (d *desk) told(t *testing.T, chain string) (told []string) {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		n, err := d.Notices().Next(ctx, chain)
		cancel()
		if err != nil {
			return told
		}
		told = append(told, n.ID+" "+string(n.State))
		if err := n.Done(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestAJobIsAcceptedRunAndTold(t *testing.T) {
	inMemory(t, func(t *testing.T, d *desk) {
		j := d.accept(t, ask("k"))
		d.wantJob(t, j.ID, "queued")
		w := d.next(t, "chat")
		if string(w.Body) != string(ask("k").Body) || w.Job.Path != ask("k").Path || w.Job.Key != "k" {
			t.Errorf("Next = %+v with body %s, want what was accepted", w.Job, w.Body)
		}
		if want := map[string]string{"anthropic-beta": "a,b"}; !maps.Equal(w.Job.Headers, want) {
			t.Errorf("headers %v are kept, want %v: no credential", w.Job.Headers, want)
		}
		d.wantJob(t, j.ID, "running")
		if err := w.Finish(t.Context(), answer("hello"), queue.Done); err != nil {
			t.Fatal(err)
		}
		d.wantJob(t, j.ID, "done 200 hello")
		if got, want := d.told(t, "chat"), []string{j.ID + " done"}; !slices.Equal(got, want) {
			t.Errorf("notices %q, want %q", got, want)
		}
		if bodies := d.memory.Keys("bodies/"); len(bodies) > 0 {
			t.Errorf("bodies %q are left of a job that is done", bodies)
		}
		time.Sleep(keep + time.Second)
		if _, _, err := d.Get(t.Context(), j.ID, "acme"); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("Get after keep = %v, want ErrNotFound", err)
		}
	})
}

func TestAJobIsShownToItsTenantOnly(t *testing.T) {
	inMemory(t, func(t *testing.T, d *desk) {
		j := d.accept(t, ask("k"))
		for _, id := range []string{j.ID, "nothing", "", strings.Repeat("x", 5000)} {
			if _, _, err := d.Get(t.Context(), id, "evil"); !errors.Is(err, queue.ErrNotFound) {
				t.Errorf("Get(%.20q) of another tenant = %v, want ErrNotFound", id, err)
			}
		}
		if got, _, err := d.Show(t.Context(), j.ID); err != nil || got.ID != j.ID {
			t.Errorf("Show = %v, %v, want the job", got.ID, err)
		}
	})
}

func TestWhatAKeyStandsFor(t *testing.T) {
	rows := []struct {
		name   string
		change func(*queue.Request)
		same   bool
		err    error
	}{
		{"the same request again is the same job", func(*queue.Request) {}, true, nil},
		{"another body under the same key is refused", func(r *queue.Request) { r.Body = []byte("{}") }, false, queue.ErrKeyReused},
		{"another path under the same key is refused", func(r *queue.Request) { r.Path = "/v1/messages" }, false, queue.ErrKeyReused},
		{"another tenant's key is another job", func(r *queue.Request) { r.Tenant = "b" }, false, nil},
		{"another chain's key is another job", func(r *queue.Request) { r.Chain = "quiet" }, false, nil},
		{"tenant and key do not run together", func(r *queue.Request) { r.Tenant, r.Key = "acmek", "" }, false, errors.New("needs an idempotency key")},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, d *desk) {
				first := d.accept(t, ask("k"))
				q := ask("k")
				r.change(&q)
				second, err := d.Accept(t.Context(), q)
				if (err == nil) != (r.err == nil) || err != nil && !errors.Is(err, r.err) && !strings.Contains(err.Error(), r.err.Error()) {
					t.Errorf("Accept = %v, want %v", err, r.err)
				}
				if err == nil && (first.ID == second.ID) != r.same {
					t.Errorf("Accept = %s after %s, want the same: %t", second.ID, first.ID, r.same)
				}
			})
		})
	}
}

func TestAKeyHasItsJobInEveryState(t *testing.T) {
	inMemory(t, func(t *testing.T, d *desk) {
		j := d.accept(t, ask("k"))
		again := func(want queue.State) {
			t.Helper()
			if got := d.accept(t, ask("k")); got.ID != j.ID || got.State != want {
				t.Errorf("Accept again = %s %s, want %s %s", got.ID, got.State, j.ID, want)
			}
		}
		for range 5 { // A client that asks again and again does not fill the line.
			again(queue.Queued)
			time.Sleep(5 * time.Minute)
		}
		if s, err := d.Stats(t.Context(), "chat"); err != nil || s.Waiting > 2 {
			t.Errorf("Stats = %+v, %v, want at most one item more than jobs", s, err)
		}
		w := d.next(t, "chat")
		again(queue.Running)
		if err := w.Finish(t.Context(), answer("x"), queue.Failed); err != nil {
			t.Fatal(err)
		}
		again(queue.Failed)
		d.wantEmpty(t, "chat")
		time.Sleep(keep + maxAge + 2*time.Hour)
		if got := d.accept(t, ask("k")); got.ID == j.ID {
			t.Errorf("Accept after the job was forgotten = %s again, want a new one", got.ID)
		}
	})
}

func TestAKeyWhoseJobIsForgottenStandsForANewOne(t *testing.T) {
	inMemory(t, func(t *testing.T, d *desk) {
		j := d.accept(t, ask("k"))
		if err := d.next(t, "chat").Finish(t.Context(), answer("x"), queue.Done); err != nil {
			t.Fatal(err)
		}
		time.Sleep(keep + time.Second) // The key lives as long as a job that waits.
		if got := d.accept(t, ask("k")); got.ID == j.ID || got.State != queue.Queued {
			t.Errorf("Accept = %s %s, want a new job: receivers drop what they know", got.ID, got.State)
		}
	})
}

func TestManyWhoAskAtOnceGetOneJob(t *testing.T) {
	inMemory(t, func(t *testing.T, d *desk) {
		ids := make([]string, 20)
		calls := atomic.Int64{}
		d.memory.Fault = func(string, string) queuetest.Fault { // Every call lasts differently long.
			time.Sleep(time.Duration(calls.Add(1)*7919%13) * time.Millisecond)
			return queuetest.None
		}
		var wg sync.WaitGroup
		for i := range ids {
			wg.Go(func() {
				j, err := d.Accept(t.Context(), ask("k"))
				if err != nil {
					t.Error(err)
				}
				ids[i] = j.ID
			})
		}
		wg.Wait()
		if ids = slices.Compact(ids); len(ids) != 1 || d.counts["chat accepted"] != 1 {
			t.Errorf("Accept = %q, counts %v, want one job", ids, d.counts)
		}
	})
}

func TestTwoWorkersOfOneJobRecordOneResult(t *testing.T) {
	inMemory(t, func(t *testing.T, d *desk) {
		j := d.accept(t, ask("k"))
		slow := d.next(t, "chat")
		time.Sleep(queuetest.AckWait + time.Second) // without a Hold
		quick := d.next(t, "chat")
		var wg sync.WaitGroup
		for _, w := range []*queue.Work{slow, quick} {
			wg.Go(func() {
				if err := w.Finish(t.Context(), answer("same"), queue.Done); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		d.wantJob(t, j.ID, "done 200 same")
		if got := d.memory.Keys("results/"); len(got) != 1 || d.counts["chat done"] != 1 {
			t.Errorf("results %q, counts %v, want one", got, d.counts)
		}
		if err := slow.Finish(t.Context(), answer("late"), queue.Failed); err != nil {
			t.Error(err)
		}
		if err := quick.Expire(t.Context()); err != nil {
			t.Error(err)
		}
		d.wantJob(t, j.ID, "done 200 same")
		if got := d.told(t, "chat"); len(got) != 1 {
			t.Errorf("notices %q, want one", got)
		}
	})
}

func TestAJobThatIsTooOldExpires(t *testing.T) {
	end := map[string]func(*testing.T, *desk){
		"when it is pulled": func(t *testing.T, d *desk) { d.wantEmpty(t, "chat") },
		"by a sweep, while nothing drains": func(t *testing.T, d *desk) {
			if err := d.Sweep(t.Context(), "chat"); err != nil {
				t.Error(err)
			}
		},
	}
	for name, end := range end {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, d *desk) {
				var old []string
				for i := range 40 {
					old = append(old, d.accept(t, ask(fmt.Sprint("old", i))).ID)
				}
				time.Sleep(maxAge - time.Second)
				young := d.accept(t, ask("young"))
				if err := d.Sweep(t.Context(), "chat"); err != nil {
					t.Error(err)
				}
				d.wantJob(t, old[0], "queued")
				time.Sleep(time.Second)
				if name == "when it is pulled" {
					if w := d.next(t, "chat"); w.Job.ID != young.ID {
						t.Errorf("Next = %s, want the young job", w.Job.ID)
					}
				} else {
					end(t, d)
					d.wantJob(t, young.ID, "queued")
				}
				for _, id := range old {
					d.wantJob(t, id, "expired")
				}
				if got := d.told(t, "chat"); len(got) != len(old) || d.counts["chat expired"] != len(old) {
					t.Errorf("%d notices, counts %v, want %d", len(got), d.counts, len(old))
				}
			})
		})
	}
}

func TestNobodyIsToldWithoutAWebhook(t *testing.T) {
	inMemory(t, func(t *testing.T, d *desk) {
		r := ask("k")
		r.Chain = "quiet"
		d.accept(t, r)
		if err := d.next(t, "quiet").Finish(t.Context(), answer("x"), queue.Done); err != nil {
			t.Error(err)
		}
		if s, err := d.Outbox.Stats(t.Context(), "quiet"); err != nil || s != (queue.Stats{}) {
			t.Errorf("notices %+v, %v, want none", s, err)
		}
	})
}

func TestANoticeThatNobodyTakesIsKeptForTheOperator(t *testing.T) {
	inMemory(t, func(t *testing.T, d *desk) {
		j := d.accept(t, ask("k"))
		if err := d.next(t, "chat").Finish(t.Context(), answer("x"), queue.Done); err != nil {
			t.Fatal(err)
		}
		n, err := d.Notices().Next(t.Context(), "chat")
		if err != nil || n.Key != "k" || n.Location != "/jobs/"+j.ID || n.Finished.IsZero() || n.Deliveries != 1 {
			t.Fatalf("Next = %+v, %v, want a notice of the job", n, err)
		}
		if err := errors.Join(n.Hold(t.Context()), n.Later(t.Context(), time.Minute)); err != nil {
			t.Fatal(err)
		}
		if n, err = d.Notices().Next(t.Context(), "chat"); err != nil || n.Deliveries != 2 {
			t.Fatalf("Next = %+v, %v, want the notice again", n, err)
		}
		if err := n.Dead(t.Context(), "410 Gone"); err != nil {
			t.Error(err)
		}
		e, err := d.Queue.Dead.Get(t.Context(), j.ID)
		if err != nil || !strings.Contains(string(e.Value), `"why":"410 Gone"`) || d.counts["chat dead"] != 1 {
			t.Errorf("dead = %s, %v, counts %v", e.Value, err, d.counts)
		}
		if got := d.told(t, "chat"); got != nil {
			t.Errorf("notices %q, want none", got)
		}
	})
}

func TestNothingIsAcceptedThatIsNotKept(t *testing.T) {
	for fault, want := range map[queuetest.Fault]error{queuetest.Refused: store.ErrDown, queuetest.Full: store.ErrFull} {
		inMemory(t, func(t *testing.T, d *desk) {
			d.memory.Fault = func(op, _ string) queuetest.Fault { return fault }
			if _, err := d.Accept(t.Context(), ask("k")); !errors.Is(err, want) {
				t.Errorf("Accept = %v, want %v", err, want)
			}
		})
	}
}

func TestNoJobIsBegunThatAFullStoreCouldNotFinish(t *testing.T) {
	inMemory(t, func(t *testing.T, d *desk) {
		j := d.accept(t, ask("k"))
		d.memory.Fault = func(op, _ string) queuetest.Fault {
			if op == "update" {
				return queuetest.Full
			}
			return queuetest.None
		}
		if w, err := d.Next(t.Context(), "chat"); !errors.Is(err, store.ErrFull) {
			t.Errorf("Next = %v, %v, want ErrFull", w, err)
		}
		d.memory.Fault = nil
		time.Sleep(5 * time.Second)
		if w := d.next(t, "chat"); w.Job.ID != j.ID {
			t.Errorf("Next = %s, want %s: it is safe", w.Job.ID, j.ID)
		}
	})
}

func TestJobsThatNoKeyOpensHoldUpNoOthers(t *testing.T) {
	inMemory(t, func(t *testing.T, d *desk) {
		old := map[string]bool{}
		for i := range 20 {
			old["job/"+d.accept(t, ask(fmt.Sprint("old", i))).ID] = true
		}
		d.memory.Fault = func(op, key string) queuetest.Fault {
			if op == "get" && old[key] {
				return queuetest.Sealed
			}
			return queuetest.None
		}
		if w, err := d.Next(t.Context(), "chat"); !errors.Is(err, store.ErrSealed) {
			t.Errorf("Next = %v, %v, want ErrSealed, which somebody should hear of", w, err)
		}
		for i := range 20 { // The old ones have come again and again meanwhile.
			time.Sleep(time.Minute)
			j := d.accept(t, ask(fmt.Sprint("new", i)))
			begun := time.Now()
			w := d.next(t, "chat")
			if took := time.Since(begun); w.Job.ID != j.ID || took > time.Second {
				t.Fatalf("Next = %s after %s, want %s at once", w.Job.ID, took, j.ID)
			}
			if err := w.Finish(t.Context(), queue.Result{Status: 200}, queue.Done); err != nil {
				t.Fatal(err)
			}
			if n, err := d.Notices().Next(t.Context(), "chat"); err != nil || n.ID != j.ID || n.Done(t.Context()) != nil {
				t.Fatalf("Notices.Next = %+v, %v, want one of %s", n, err, j.ID)
			}
		}
		if err := d.Sweep(t.Context(), "chat"); err != nil {
			t.Errorf("Sweep = %v, want nil", err)
		}
		d.memory.Fault = nil // The key is back.
		time.Sleep(20 * time.Minute)
		for range len(old) {
			if w := d.next(t, "chat"); !old["job/"+w.Job.ID] {
				t.Errorf("Next = %s, want one of the old jobs: none is lost", w.Job.ID)
			}
		}
	})
}
