package once

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"understudy/pkg/store"
)

// failing has calls of some name fail.
func (m *memory) failing(op string, before, after error) {
	m.set(func() {
		m.fault = func(called string) (error, error) {
			if called != op && op != "" {
				return nil, nil
			}
			return before, after
		}
	})
}

func (m *memory) well() { m.set(func() { m.fault = nil }) }

func TestAStoreThatIsDownFailsAClaimAtOnce(t *testing.T) {
	for _, op := range []string{"get", "create"} {
		t.Run(op, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.claims.failing(op, store.ErrDown, nil)
				began := time.Now()
				c, err := w.replicas[0].Claim(t.Context(), ask("x"))
				if !errors.Is(err, store.ErrDown) || c.Outcome != Unknown || time.Since(began) > 0 {
					t.Errorf("Claim() = %s, %v after %s, want unknown and ErrDown at once", c.Outcome, err, time.Since(began))
				}
				w.claims.well()
				if err := c.Finish(t.Context(), answer("a"), window); !errors.Is(err, ErrLost) {
					t.Errorf("Finish() of a claim that does not stand = %v, want ErrLost", err)
				}
				w.claim(1, ask("y"), Mine)
			})
		})
	}
}

func TestAnAnswerThatCannotBeReadFailsAClaimAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.finish(w.claim(0, ask("x"), Mine), "a")
		w.answers.failing("get blob", store.ErrDown, nil)
		began := time.Now()
		c, err := w.replicas[1].Claim(t.Context(), ask("y"))
		if !errors.Is(err, store.ErrDown) || c.Outcome != Unknown || time.Since(began) > 0 {
			t.Errorf("Claim() = %s, %v after %s, want unknown and ErrDown at once", c.Outcome, err, time.Since(began))
		}
		w.answers.well()
		w.claim(1, ask("y"), Finished)
	})
}

// TestAClaimWhoseAnswerWasLostCanBeEnded is what a write does that was made while the store was said to be down.
func TestAClaimWhoseAnswerWasLostCanBeEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.claims.failing("create", nil, store.ErrDown)
		c, err := w.replicas[0].Claim(t.Context(), ask("x"))
		if !errors.Is(err, store.ErrDown) {
			t.Fatalf("Claim() = %v, want ErrDown", err)
		}
		w.claims.well()
		waits := w.wait(w.claim(1, ask("y"), Running))
		w.finish(c, "a")
		waits.want(t, said(answer("a"), nil))
	})
}

func TestTheNextAttemptHasTheClaimWhoseAnswerWasLost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.claims.failing("create", nil, store.ErrDown)
		if c, err := w.replicas[0].Claim(t.Context(), ask("x")); !errors.Is(err, store.ErrDown) {
			t.Fatalf("Claim() = %s, %v, want ErrDown", c.Outcome, err)
		}
		w.claims.well()
		w.finish(w.claim(1, ask("x"), Mine), "a")
	})
}

func TestAnEndOutlastsAnOutage(t *testing.T) {
	for _, op := range []string{"put blob", "update"} {
		for name, fault := range map[string][2]error{"refused": {store.ErrDown, nil}, "unanswered": {nil, store.ErrDown}} {
			t.Run(op+" "+name, func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) {
					c := w.claim(0, ask("x"), Mine)
					waits := w.wait(w.claim(1, ask("y"), Running))
					w.claims.failing(op, fault[0], fault[1])
					w.answers.failing(op, fault[0], fault[1])
					defer time.AfterFunc(20*time.Second, func() { w.claims.well(); w.answers.well() }).Stop()
					w.finish(c, "a")
					waits.want(t, said(answer("a"), nil))
				})
			})
		}
	}
}

func TestAnEndIsNotTriedForLongerThanItsClaimLives(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.claim(0, ask("x"), Mine)
		w.claims.failing("", store.ErrDown, nil)
		began := time.Now()
		if err := c.Finish(t.Context(), answer("a"), window); !errors.Is(err, store.ErrDown) {
			t.Errorf("Finish() = %v, want ErrDown", err)
		}
		if took := time.Since(began); took > life+retryMost {
			t.Errorf("Finish() took %s, want little more than %s", took, life)
		}
	})
}

func TestAnAnswerThatTheStoreRefusesFreesTheKey(t *testing.T) {
	for _, op := range []string{"put blob", "update"} {
		t.Run(op, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				c := w.claim(0, ask("x"), Mine)
				waits := w.wait(w.claim(1, ask("y"), Running))
				w.claims.failing(op, store.ErrFull, nil)
				w.answers.failing(op, store.ErrFull, nil)
				if err := c.Finish(t.Context(), answer("a"), window); !errors.Is(err, store.ErrFull) {
					t.Errorf("Finish() = %v, want ErrFull", err)
				}
				waits.want(t, freed)
				w.claims.well()
				w.claim(2, ask("y"), Mine)
			})
		})
	}
}

func TestWaitersOutlastAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.claim(0, ask("x"), Mine)
		waits := w.wait(w.claim(1, ask("y"), Running))
		w.finish(c, "a")
		late := w.claim(0, ask("z"), Finished)
		late.rec.Run = c.rec.Run
		w.claims.failing("", store.ErrDown, nil)
		again := w.wait(late)
		time.Sleep(10 * pollEvery)
		again.goesOn(t)
		if reads := w.claims.called("get"); reads > 40 {
			t.Errorf("%d reads of a store that is down, want a slow poll", reads)
		}
		w.claims.well()
		time.Sleep(2 * pollEvery)
		again.want(t, said(answer("a"), nil))
		waits.want(t, said(answer("a"), nil))
	})
}

func TestAnAnswerThatMadeRoomForOthersIsAsGoodAsExpired(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.finish(w.claim(0, ask("x"), Mine), "a")
		w.answers.set(func() { clear(w.answers.values) })
		w.claim(1, ask("y"), Mine)
		w.claim(2, ask("z"), Running)
	})
}

func TestWhatNobodyCanReadIsTold(t *testing.T) {
	good := string(encode(record{State: running, Exchange: "e", Digest: "d", Pen: "p", run: run{Run: "r"}}))
	for name, value := range map[string]string{
		"no JSON": "x", "no state": `{}`, "an unknown state": `{"state":"odd","run":"r","pen":"p"}`,
		"no pen": `{"state":"running","run":"r"}`, "an end without an answer": `{"state":"kept","run":"r","pen":"p"}`, "two": good + good,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				c := w.claim(0, ask("x"), Mine)
				y := w.claim(0, ask("y"), Running)
				w.claims.each(func(_ string, s *stored) { s.Value = []byte(value) })
				_, claimed := w.replicas[1].Claim(t.Context(), ask("z"))
				_, waited := y.Wait(t.Context())
				attempted := c.swap(t.Context(), func(uint64) error { return store.ErrConflict })
				for op, err := range map[string]error{"Claim": claimed, "Wait": waited, "swap": attempted} {
					if !errors.Is(err, errDamaged) {
						t.Errorf("%s() = %v, want errDamaged", op, err)
					}
				}
			})
		})
	}
}

func TestAnAnswerOfAnotherNameIsNotTaken(t *testing.T) {
	a, err := answer("a").encode("one")
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string][]byte{"of another": a, "cut": a[:len(a)-1], "no answer": []byte("x"), "no line": []byte("{}")} {
		want := "two"
		if name == "cut" {
			want = "one"
		}
		if got, err := decodeAnswer(value, want); !errors.Is(err, errDamaged) {
			t.Errorf("decodeAnswer(%s) = %v, %v, want errDamaged", name, got, err)
		}
	}
}

func TestASealThatDoesNotOpenEndsTheWait(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.claim(0, ask("x"), Mine)
		waits := w.wait(w.claim(1, ask("y"), Running))
		w.claims.failing("get", store.ErrSealed, nil)
		w.replicas[1].hear(store.Entry{Key: ask("x").key(), Deleted: true})
		synctest.Wait()
		waits.want(t, fmt.Sprint("idempotency: wait: ", store.ErrSealed))
		if _, err := w.replicas[1].Claim(t.Context(), ask("z")); !errors.Is(err, store.ErrSealed) {
			t.Errorf("Claim() = %v, want ErrSealed", err)
		}
	})
}

func FuzzDecode(f *testing.F) {
	a, _ := answer("a").encode("n")
	f.Add(a)
	f.Add(encode(record{State: kept, Pen: "p", run: run{Run: "r", Answer: "a"}}))
	f.Fuzz(func(t *testing.T, value []byte) {
		if a, err := decodeAnswer(value, "n"); err == nil {
			again, err := a.encode("n")
			if err != nil {
				t.Fatal(err)
			}
			if b, err := decodeAnswer(again, "n"); !a.TooLarge && a.size() <= AnswerMost && (err != nil || said(a, nil) != said(b, nil)) {
				t.Errorf("decodeAnswer(encode(%+v)) = %+v, %v, want the same", a, b, err)
			}
		}
		if rec, err := decodeRecord(value); err == nil {
			if b, err := decodeRecord(encode(rec)); err != nil || b != rec {
				t.Errorf("decodeRecord(encode(%+v)) = %+v, %v, want the same", rec, b, err)
			}
		}
	})
}
