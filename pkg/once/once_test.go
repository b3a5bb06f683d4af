package once

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"understudy/pkg/store"
)

const freed = "idempotency: wait: the idempotency key is free again"

func TestClaimsOfOneKey(t *testing.T) {
	first := ask("x")
	with := func(change func(*Request)) Request {
		r := ask("y")
		change(&r)
		return r
	}
	finish := func(c *Claim) error { return c.Finish(context.Background(), answer("a"), window) }
	fail := func(c *Claim) error { return c.Fail(context.Background(), answer("a")) }
	abandon := func(c *Claim) error { return c.Abandon(context.Background()) }
	none := func(*Claim) error { return nil }
	for _, row := range []struct {
		name  string
		end   func(*Claim) error
		after time.Duration
		next  Request
		want  Outcome
	}{
		{"another attempt of the exchange runs on, on another replica too", none, 0, first, Mine},
		{"another exchange waits", none, 0, ask("y"), Running},
		{"another request is refused while the first runs", none, 0, with(func(r *Request) { r.Digest = "e" }), Conflict},
		{"another request of the same exchange is refused", none, 0, with(func(r *Request) { r.Exchange, r.Digest = "x", "e" }), Conflict},
		{"another tenant's key is another key", none, 0, with(func(r *Request) { r.Tenant = "evil" }), Mine},
		{"another chain's key is another key", none, 0, with(func(r *Request) { r.Chain = "other" }), Mine},
		{"tenant, chain and key do not run together", none, 0, with(func(r *Request) { r.Tenant, r.Chain, r.Key = "acmec", "hat", "k" }), Mine},
		{"a key of a dead owner is not free before its life is over", none, life - time.Second, ask("y"), Running},
		{"a key of a dead owner is free after its life", none, life + time.Second, ask("y"), Mine},
		{"a key of a dead owner is free for another request too", none, life + time.Second, with(func(r *Request) { r.Digest = "e" }), Mine},
		{"the answer is there within the window", finish, window - time.Second, ask("y"), Finished},
		{"the answer is there for its own exchange", finish, 0, first, Finished},
		{"another request is refused within the window", finish, window - time.Second, with(func(r *Request) { r.Digest = "e" }), Conflict},
		{"after the window the request runs anew", finish, window + time.Second, ask("y"), Mine},
		{"a failure does not stick", fail, 0, ask("y"), Mine},
		{"a failure does not stick for another request", fail, 0, with(func(r *Request) { r.Digest = "e" }), Mine},
		{"an abandoned key is free", abandon, 0, ask("y"), Mine},
		{"a key may be 64 KiB of any bytes", none, 0, with(func(r *Request) { r.Key = strings.Repeat("\x00\xff\n*>.", 11000) }), Mine},
	} {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				c := w.claim(0, first, Mine)
				if err := row.end(c); err != nil {
					t.Fatal(err)
				}
				time.Sleep(row.after)
				got := w.claim(1, row.next, row.want)
				if text := said(got.Answer, nil); row.want == Finished && text != said(answer("a"), nil) {
					t.Errorf("the answer is %s, want %s", text, said(answer("a"), nil))
				}
			})
		})
	}
}

func TestAClaimWithoutALifeIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		r := ask("x")
		r.Life = 0
		c, err := w.replicas[0].Claim(t.Context(), r)
		if err == nil || c.Outcome != Unknown || w.claims.called("get") > 0 {
			t.Errorf("Claim() = %s, %v, want an error and no call", c.Outcome, err)
		}
		if err := w.claim(0, ask("x"), Mine).Finish(t.Context(), answer("a"), 0); err == nil {
			t.Error("Finish() with no window = nil, want an error")
		}
	})
}

func TestWaitersHearHowARunEnds(t *testing.T) {
	bad := Answer{Status: 529, ContentType: "application/json", Body: []byte("overloaded")}
	for _, row := range []struct {
		name string
		end  func(w *world, c *Claim) error
		want string
	}{
		{"its good answer", func(_ *world, c *Claim) error { return c.Finish(context.Background(), answer("a"), window) }, said(answer("a"), nil)},
		{"its failing answer", func(_ *world, c *Claim) error { return c.Fail(context.Background(), bad) }, said(bad, nil)},
		{"that its owner left", func(_ *world, c *Claim) error { return c.Abandon(context.Background()) }, freed},
		{"that its owner died", func(*world, *Claim) error { time.Sleep(life); return nil }, freed},
		{"a failing answer even when the next run has begun", func(w *world, c *Claim) error {
			w.claims.set(func() { w.claims.deaf = true })
			err := c.Fail(context.Background(), bad)
			w.claim(2, ask("z"), Mine)
			time.Sleep(2 * pollEvery)
			return err
		}, said(bad, nil)},
		{"of an end that no watch tells", func(w *world, c *Claim) error {
			w.claims.set(func() { w.claims.deaf = true })
			err := c.Finish(context.Background(), answer("a"), window)
			time.Sleep(2 * pollEvery)
			return err
		}, said(answer("a"), nil)},
		{"that the answer is too large", func(_ *world, c *Claim) error {
			return c.Finish(context.Background(), Answer{Status: 200, Body: make([]byte, AnswerMost+1)}, window)
		}, "idempotency: wait: " + ErrTooLarge.Error()},
		{"an answer of the largest size", func(_ *world, c *Claim) error {
			return c.Finish(context.Background(), Answer{Status: 200, Body: bytes.Repeat([]byte("x"), AnswerMost)}, window)
		}, said(Answer{Status: 200, Body: bytes.Repeat([]byte("x"), AnswerMost)}, nil)},
	} {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				c := w.claim(0, ask("x"), Mine)
				here, there := w.wait(w.claim(0, ask("y"), Running)), w.wait(w.claim(1, ask("z"), Running))
				if err := row.end(w, c); err != nil {
					t.Fatal(err)
				}
				here.want(t, row.want)
				there.want(t, row.want)
			})
		})
	}
}

func TestWhoBeginsToWaitAfterTheEndGetsTheAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.claim(0, ask("x"), Mine)
		late := w.claim(1, ask("y"), Running)
		if err := c.Fail(t.Context(), answer("no")); err != nil {
			t.Fatal(err)
		}
		w.claim(2, ask("z"), Mine)
		w.wait(late).want(t, said(answer("no"), nil))
	})
}

func TestAnAnswerThatIsTooLargeIsToldAsSuch(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		if err := w.claim(0, ask("x"), Mine).Finish(t.Context(), Answer{Status: 201, TooLarge: true}, window); err != nil {
			t.Fatal(err)
		}
		c, err := w.replicas[1].Claim(t.Context(), ask("y"))
		if !errors.Is(err, ErrTooLarge) || errors.Is(err, store.ErrTooLarge) || c.Outcome != Finished || c.Answer.Status != 201 {
			t.Errorf("Claim() = %s with %+v, %v, want finished with status 201, ErrTooLarge", c.Outcome, c.Answer, err)
		}
	})
}

func TestHeadersKeepAllTheirBytes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := Answer{Status: 200, ContentType: "a\xffb", Headers: map[string]string{"x": "\xe9\x80\n\x00"}, Body: []byte("\n{\x00\xff")}
		if err := w.claim(0, ask("x"), Mine).Finish(t.Context(), a, window); err != nil {
			t.Fatal(err)
		}
		if got := w.claim(1, ask("y"), Finished).Answer; said(got, nil) != said(a, nil) {
			t.Errorf("the answer is %q, want %q", said(got, nil), said(a, nil))
		}
	})
}

func TestALateOwnerChangesNothing(t *testing.T) {
	for name, end := range map[string]func(*Claim) error{
		"Finish": func(c *Claim) error { return c.Finish(context.Background(), answer("late"), window) },
		"Fail":   func(c *Claim) error { return c.Fail(context.Background(), answer("late")) },
		"Abandon": func(c *Claim) error {
			if err := c.Abandon(context.Background()); err != nil {
				return err
			}
			return ErrLost // It says nil.
		},
	} {
		for when, take := range map[string]func(w *world) *Claim{
			"whose claim ran out":                        func(w *world) *Claim { time.Sleep(life + 1); return w.claim(1, ask("y"), Mine) },
			"whose exchange has a later attempt":         func(w *world) *Claim { return w.claim(1, ask("x"), Mine) },
			"whose exchange has one on the same replica": func(w *world) *Claim { return w.claim(0, ask("x"), Mine) },
		} {
			t.Run(name+" of one "+when, func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) {
					late := w.claim(0, ask("x"), Mine)
					owner := take(w)
					waits := w.wait(w.claim(2, ask("z"), Running))
					if err := end(late); !errors.Is(err, ErrLost) {
						t.Errorf("%s = %v, want ErrLost", name, err)
					}
					waits.goesOn(t)
					w.finish(owner, "right")
					waits.want(t, said(answer("right"), nil))
					if err := end(late); !errors.Is(err, ErrLost) {
						t.Errorf("%s after the end = %v, want ErrLost", name, err)
					}
					got := w.claim(0, ask("q"), Finished)
					if string(got.Answer.Body) != "right" {
						t.Errorf("the answer is %s, want right", got.Answer.Body)
					}
				})
			})
		}
	}
}

func TestTheFirstEndOfAClaimCounts(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.claim(0, ask("x"), Mine)
		w.finish(c, "first")
		w.finish(c, "second")
		if err := errors.Join(c.Fail(t.Context(), answer("third")), c.Abandon(t.Context())); err != nil {
			t.Errorf("a second end = %v, want nil", err)
		}
		if got := w.claim(1, ask("y"), Finished).Answer; string(got.Body) != "first" {
			t.Errorf("the answer is %s, want first", got.Body)
		}
	})
}

func TestAnAttemptBeginsTheLifeAnew(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.claim(0, ask("x"), Mine)
		waits := w.wait(w.claim(2, ask("y"), Running))
		time.Sleep(life - time.Second)
		c := w.claim(1, ask("x"), Mine)
		time.Sleep(life - time.Second)
		waits.goesOn(t)
		w.finish(c, "a")
		waits.want(t, said(answer("a"), nil))
	})
}

// TestAHundredDuplicatesRunOnce has 100 exchanges with one key at once on three replicas.
func TestAHundredDuplicatesRunOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var wg sync.WaitGroup
		var ran atomic.Int32
		got := make([]Answer, 100)
		for n := range got {
			wg.Go(func() {
				c, err := w.replicas[n%3].Claim(t.Context(), ask(fmt.Sprint(n)))
				if err != nil {
					t.Error(err)
				}
				if c.Outcome == Running {
					if got[n], err = c.Wait(t.Context()); err != nil {
						t.Error(err)
					}
					return
				}
				ran.Add(1)
				time.Sleep(30 * time.Second)
				got[n] = answer("data: 1\n\ndata: [DONE]\n\n")
				w.finish(c, string(got[n].Body))
			})
		}
		wg.Wait()
		for n := range got {
			if said(got[n], nil) != said(got[0], nil) {
				t.Errorf("answer %d is %s, want %s", n, said(got[n], nil), said(got[0], nil))
			}
		}
		if ran.Load() != 1 {
			t.Errorf("%d ran, want 1", ran.Load())
		}
		// One read a replica when the wait begins and one at its end, and one every half poll or less while it goes on.
		if reads := w.claims.called("get"); reads > 100+3*(2+2*int(30*time.Second/pollEvery)) {
			t.Errorf("%d reads of the record, want few more than the 100 of the claims", reads)
		}
		if blobs := w.answers.called("get blob"); blobs > 3 {
			t.Errorf("%d reads of the answer, want one a replica", blobs)
		}
	})
}

// TestOneOfThoseWhoWaitRunsWhenTheOwnerIsGone has the key abandoned once and left to a dead owner once.
func TestOneOfThoseWhoWaitRunsWhenTheOwnerIsGone(t *testing.T) {
	for name, leave := range map[string]func(*Claim) error{
		"left": func(c *Claim) error { return c.Abandon(context.Background()) },
		"died": func(*Claim) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				first := w.claim(0, ask("x"), Mine)
				var wg sync.WaitGroup
				var ran atomic.Int32
				for n := range 60 {
					wg.Go(func() {
						for {
							c, err := w.replicas[n%3].Claim(t.Context(), ask(fmt.Sprint(n)))
							if err != nil {
								t.Error(err)
							}
							if c.Outcome == Mine {
								ran.Add(1)
								time.Sleep(time.Second)
								w.finish(c, "a")
								return
							}
							if _, err = c.Wait(t.Context()); !errors.Is(err, ErrFreed) {
								return
							}
						}
					})
				}
				synctest.Wait()
				if err := leave(first); err != nil {
					t.Error(err)
				}
				wg.Wait()
				if ran.Load() != 1 {
					t.Errorf("%d of those who waited ran, want 1", ran.Load())
				}
			})
		})
	}
}

func TestWaitersAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		k := w.replicas[0]
		k.most = 2
		c := w.claim(0, ask("x"), Mine)
		y := w.claim(0, ask("y"), Running)
		a, b := w.wait(y), w.wait(y)
		if _, err := y.Wait(t.Context()); !errors.Is(err, ErrBusy) {
			t.Errorf("a third Wait() = %v, want ErrBusy", err)
		}
		w.finish(c, "a")
		a.want(t, said(answer("a"), nil))
		b.want(t, said(answer("a"), nil))
	})
}

func TestWhoStopsWaitingHoldsUpNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.claim(0, ask("x"), Mine)
		y := w.claim(1, ask("y"), Running)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		left := make(chan error)
		go func() { _, err := y.Wait(ctx); left <- err }()
		stays := w.wait(y)
		if err := <-left; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait() = %v, want context.DeadlineExceeded", err)
		}
		stays.goesOn(t)
		w.finish(c, "a")
		stays.want(t, said(answer("a"), nil))
	})
}

func TestNothingButHashesIsStoredOfARequest(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		r := Request{Tenant: "TENANT", Chain: "CHAIN", Key: "SECRET", Digest: "DIGEST", Exchange: "EXCHANGE", Life: life}
		w.claim(0, r, Mine)
		w.claims.each(func(key string, s *stored) {
			for _, word := range []string{r.Tenant, r.Chain, r.Key, r.Digest, r.Exchange} {
				if strings.Contains(key+string(s.Value), word) {
					t.Errorf("the store has %s under %s, want no %s in it", s.Value, key, word)
				}
			}
		})
	})
}

// TestWhoLearnsOfAnEndTellsThoseWhoWaitHere is without a watch, and without a look of those who wait.
func TestWhoLearnsOfAnEndTellsThoseWhoWaitHere(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.claims.set(func() { w.claims.deaf = true })
		c := w.claim(0, ask("x"), Mine)
		here, there := w.wait(w.claim(0, ask("y"), Running)), w.wait(w.claim(1, ask("z"), Running))
		w.finish(c, "a")
		here.want(t, said(answer("a"), nil))
		there.goesOn(t)
		w.claim(1, ask("q"), Finished)
		there.want(t, said(answer("a"), nil))
	})
}

func TestWhoLeavesWhileAskingForAllIsReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		k, c := w.replicas[0], w.claim(0, ask("x"), Mine)
		r, err := k.enter(c.key, c.rec.Run)
		if err != nil {
			t.Fatal(err)
		}
		defer k.leave(r)
		_, news := k.listen(r)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w.claims.fault = func(string) (before, after error) { cancel(); return ctx.Err(), nil }
		if _, err := k.ask(ctx, r, news); !errors.Is(err, context.Canceled) {
			t.Errorf("ask() of one who leaves = %v, want context.Canceled", err)
		}
		w.claims.well()
		w.finish(c, "a")
		end, err := k.ask(t.Context(), r, news)
		if err != nil || end == nil || string(end.answer.Body) != "a" {
			t.Errorf("ask() of the next = %+v, %v, want the answer a", end, err)
		}
	})
}
