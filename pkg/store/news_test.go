package store

import (
	"fmt"
	"testing"
	"time"
)

func TestNewsIsHeard(t *testing.T) {
	s := openEmbedded(t)
	testNews(t, s, s)
}

// testNews lets from publish until to hears it, and then in order.
func testNews(t *testing.T, from, to *Store) {
	t.Helper()
	heard := make(chan string, 1000)
	stop := to.Subscribe("breakers", func(data []byte) { heard <- string(data) })
	defer stop()
	eventually(t, "the first news", func() error {
		from.Publish("breakers", []byte("hello"))
		select {
		case <-heard:
			return nil
		case <-time.After(10 * time.Millisecond):
			return fmt.Errorf("silence")
		}
	})
	for n := range 100 {
		from.Publish("breakers", fmt.Append(nil, n))
	}
	for n := 0; n < 100; {
		select {
		case got := <-heard:
			if got == "hello" {
				continue
			}
			if want := fmt.Sprint(n); got != want {
				t.Fatalf("heard %q, want %q", got, want)
			}
			n++
		case <-time.After(patience):
			t.Fatalf("heard %d of 100", n)
		}
	}
}

func TestAStoppedSubscriptionHearsNothing(t *testing.T) {
	s := openEmbedded(t)
	heard := make(chan string, 10)
	s.Subscribe("x", func([]byte) { heard <- "stopped" })()
	s.Subscribe("x", func([]byte) { heard <- "live" })
	s.Publish("x", nil)
	if got := <-heard; got != "live" {
		t.Errorf("the %s subscription heard, want the live one", got)
	}
	if len(s.subs) != 1 {
		t.Errorf("%d subscriptions are kept, want 1", len(s.subs))
	}
}

func TestNewsIsDroppedAndCountedWhenNobodyTakesIt(t *testing.T) {
	s := openStore(t, Options{URLs: []string{"nats://" + freeAddress(t)}})
	for range 3 {
		s.Publish("x", nil)
	}
	if got := s.Stats(); got != (Stats{Dropped: 3}) {
		t.Errorf("Stats() = %+v, want 3 dropped", got)
	}
	up := openEmbedded(t)
	up.Publish("not a subject\r\n", nil)
	up.Publish("large", make([]byte, newsMost+1))
	eventually(t, "the count of what NATS does not take", func() error {
		if got := up.Stats().Dropped; got != 2 {
			return fmt.Errorf("%d dropped, want 2", got)
		}
		return nil
	})
	if err := up.Ready(); err != nil {
		t.Errorf("Ready() after it = %v, want nil", err)
	}
}
