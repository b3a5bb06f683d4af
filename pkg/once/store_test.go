package once

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"understudy/pkg/store"
)

// patience bounds what a test waits for.
const patience = 30 * time.Second

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	return ctx
}

// open opens an embedded store, with two replicas on sealed buckets in it. Both end with stop.
func open(t testing.TB, dir string) (replicas [2]*Keys, stop func()) {
	t.Helper()
	s, err := store.Open(bounded(t), store.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	seal, err := store.NewSealer([][]byte{bytes.Repeat([]byte("k"), 32)})
	if err != nil {
		t.Fatal(err)
	}
	claims := s.Bucket(store.BucketOptions{Name: "claims", MaxBytes: 64 << 20, Keep: true, Seal: seal})
	answers := s.Bucket(store.BucketOptions{Name: "answers", MaxBytes: 256 << 20, Seal: seal})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for n := range replicas {
		replicas[n] = New(claims, answers)
		wg.Go(func() { replicas[n].Run(ctx) })
	}
	await(t, func() error { return s.Ready() })
	stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return replicas, stop
}

// await waits until f is nil.
func await(t testing.TB, f func() error) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(patience)
	for err := f(); err != nil; err = f() {
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		<-tick.C
	}
}

func claimed(t testing.TB, k *Keys, r Request, want Outcome) *Claim {
	t.Helper()
	c, err := k.Claim(bounded(t), r)
	if err != nil || c.Outcome != want {
		t.Fatalf("Claim(%s) = %s, %v, want %s", r.Exchange, c.Outcome, err, want)
	}
	return c
}

func TestAHundredDuplicatesRunOnceOnARealStore(t *testing.T) {
	replicas, _ := open(t, t.TempDir())
	ctx := bounded(t)
	large := make([]byte, AnswerMost-1024)
	rand.NewChaCha8([32]byte{}).Read(large)
	for name, end := range map[string]func(c *Claim) error{
		"finish":        func(c *Claim) error { return c.Finish(ctx, answer("data: [DONE]\n\n"), window) },
		"finish, 4 MiB": func(c *Claim) error { return c.Finish(ctx, Answer{Status: 200, Body: large}, window) },
		"fail":          func(c *Claim) error { return c.Fail(ctx, Answer{Status: 529, Body: []byte("overloaded")}) },
	} {
		t.Run(name, func(t *testing.T) {
			r := ask("first")
			r.Key = name
			first := claimed(t, replicas[0], r, Mine)
			var wg sync.WaitGroup
			var waiting atomic.Int32
			got := make([]string, 100)
			for n := range got {
				r := r
				r.Exchange = fmt.Sprint(n)
				wg.Go(func() {
					c, err := replicas[n%2].Claim(ctx, r)
					waiting.Add(1)
					if err != nil || c.Outcome != Running {
						t.Errorf("Claim() = %s, %v, want running", c.Outcome, err)
						return
					}
					got[n] = said(c.Wait(ctx))
				})
			}
			await(t, func() error {
				if n := waiting.Load(); n < 100 {
					return fmt.Errorf("%d wait", n)
				}
				return nil
			})
			if err := end(first); err != nil {
				t.Error(err)
			}
			wg.Wait()
			for n := range got {
				if got[n] == "" || got[n] != got[0] {
					t.Fatalf("answer %d is %.200q, want that of all, %.200q", n, got[n], got[0])
				}
			}
		})
	}
}

func TestOneOfManyClaimsAtOnceIsMineOnARealStore(t *testing.T) {
	replicas, _ := open(t, t.TempDir())
	for round := range 5 {
		var wg sync.WaitGroup
		var mine atomic.Int32
		for n := range 40 {
			wg.Go(func() {
				r := ask(fmt.Sprint(n))
				r.Key = fmt.Sprint("round ", round)
				c, err := replicas[n%2].Claim(bounded(t), r)
				if err != nil {
					t.Error(err)
				}
				if c.Outcome == Mine {
					mine.Add(1)
				}
			})
		}
		if wg.Wait(); mine.Load() != 1 {
			t.Errorf("%d claims are mine, want 1", mine.Load())
		}
	}
}

func TestADeadOwnersKeyIsFreedOnARealStore(t *testing.T) {
	replicas, _ := open(t, t.TempDir())
	dead := ask("dead")
	dead.Life = time.Second
	c := claimed(t, replicas[0], dead, Mine)
	waits := claimed(t, replicas[1], ask("y"), Running)
	if _, err := waits.Wait(bounded(t)); !errors.Is(err, ErrFreed) {
		t.Errorf("Wait() = %v, want ErrFreed", err)
	}
	next := claimed(t, replicas[1], ask("y"), Mine)
	if err := c.Finish(bounded(t), answer("late"), window); !errors.Is(err, ErrLost) {
		t.Errorf("Finish() of the dead = %v, want ErrLost", err)
	}
	if err := next.Finish(bounded(t), answer("right"), window); err != nil {
		t.Errorf("Finish() = %v, want nil", err)
	}
	if got := claimed(t, replicas[0], ask("z"), Finished).Answer; said(got, nil) != said(answer("right"), nil) {
		t.Errorf("the answer is %s, want right", said(got, nil))
	}
}

func TestAnAbandonedKeyIsFreedOnARealStore(t *testing.T) {
	replicas, _ := open(t, t.TempDir())
	for n := range 3 { // The next claim comes upon the marker of the deletion.
		r := ask(fmt.Sprint("x", n))
		c := claimed(t, replicas[0], r, Mine)
		waits := claimed(t, replicas[1], ask("y"), Running)
		if err := errors.Join(c.Abandon(bounded(t)), c.Abandon(bounded(t))); err != nil {
			t.Fatal(err)
		}
		if _, err := waits.Wait(bounded(t)); !errors.Is(err, ErrFreed) {
			t.Errorf("Wait() = %v, want ErrFreed", err)
		}
		if err := c.Finish(bounded(t), answer("late"), window); !errors.Is(err, ErrLost) {
			t.Errorf("Finish() after Abandon = %v, want ErrLost", err)
		}
	}
}

func TestClaimsAndAnswersSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	replicas, stop := open(t, dir)
	kept, unended := ask("x"), ask("x")
	kept.Key = "kept"
	if err := claimed(t, replicas[0], kept, Mine).Finish(bounded(t), answer("a"), window); err != nil {
		t.Fatal(err)
	}
	c := claimed(t, replicas[0], unended, Mine)
	stop()
	if late, err := replicas[0].Claim(bounded(t), ask("y")); !errors.Is(err, store.ErrDown) || late.Outcome != Unknown {
		t.Errorf("Claim() on a closed store = %s, %v, want unknown, ErrDown", late.Outcome, err)
	}
	replicas, _ = open(t, dir)
	kept.Exchange, unended.Exchange = "y", "y"
	if got := claimed(t, replicas[0], kept, Finished).Answer; said(got, nil) != said(answer("a"), nil) {
		t.Errorf("the answer is %s, want %s", said(got, nil), said(answer("a"), nil))
	}
	claimed(t, replicas[0], unended, Running)
	c.keys = replicas[1] // As if the outage had been the store's only.
	if err := c.Finish(bounded(t), answer("b"), window); err != nil {
		t.Errorf("Finish() after the restart = %v, want nil", err)
	}
	claimed(t, replicas[0], unended, Finished)
}

// BenchmarkEmbedded is what a key costs an exchange: its claim and its end, with an answer of 4 KiB; and what it costs
// another to get that answer.
func BenchmarkEmbedded(b *testing.B) {
	replicas, _ := open(b, b.TempDir())
	body := make([]byte, 4<<10)
	rand.NewChaCha8([32]byte{}).Read(body)
	n := 0
	next := func() Request {
		n++
		r := ask("x")
		r.Key = fmt.Sprint(n)
		return r
	}
	b.Run("ClaimFinish", func(b *testing.B) {
		for b.Loop() {
			c := claimed(b, replicas[0], next(), Mine)
			if err := c.Finish(b.Context(), Answer{Status: 200, Body: body}, window); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("ClaimAbandon", func(b *testing.B) {
		for b.Loop() {
			if err := claimed(b, replicas[0], next(), Mine).Abandon(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("ClaimFinished", func(b *testing.B) {
		r := next()
		if err := claimed(b, replicas[0], r, Mine).Finish(b.Context(), Answer{Status: 200, Body: body}, window); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			claimed(b, replicas[1], r, Finished)
		}
	})
	b.Run("ClaimRunning", func(b *testing.B) {
		r := next()
		claimed(b, replicas[0], r, Mine)
		r.Exchange = "y"
		for b.Loop() {
			claimed(b, replicas[1], r, Running)
		}
	})
}
