package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func TestQueue(t *testing.T) {
	s := openEmbedded(t)
	testQueue(t, s, s, s)
}

// testQueue is what every store must do, whatever it runs on.
func testQueue(t *testing.T, fleet ...*Store) {
	t.Run("gives items out oldest first, each once, with what they are", func(t *testing.T) { testOrder(t, fleet[0]) })
	t.Run("keeps one item under one id", func(t *testing.T) { testOneID(t, fleet[0], fleet[1]) })
	t.Run("gives an item out again after its lease", func(t *testing.T) { testItemLease(t, fleet[0], fleet[1]) })
	t.Run("gives an item back later", func(t *testing.T) { testLater(t, fleet[0], fleet[1]) })
	t.Run("keeps topics apart, however they are named", func(t *testing.T) { testTopics(t, fleet[0]) })
	t.Run("shares items among many pullers", func(t *testing.T) { testManyPullers(t, fleet) })
	t.Run("refuses an item when it is full", func(t *testing.T) { testFullQueue(t, fleet[0]) })
}

func push(t testing.TB, q *Queue, topic, id string) {
	t.Helper()
	eventually(t, "a push", func() error { return q.Push(bounded(t), topic, id, []byte(id)) })
}

// pull waits for an item, also through an outage.
func pull(t testing.TB, q *Queue, topic string) *Item {
	t.Helper()
	var item *Item
	eventually(t, "an item", func() (err error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		item, err = q.Pull(ctx, topic)
		return err
	})
	return item
}

func wantNothing(t testing.TB, q *Queue, topic string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if item, err := q.Pull(ctx, topic); !errors.Is(err, ErrNotFound) {
		t.Errorf("Pull(%q) = %+v, %v, want ErrNotFound", topic, item, err)
	}
}

func wantStats(t testing.TB, q *Queue, topic string, waiting, running uint64) (got QueueStats) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d items waiting and %d running", waiting, running), func() (err error) {
		got, err = q.Stats(bounded(t), topic)
		if err == nil && (got.Waiting != waiting || got.Running != running || got.Oldest.IsZero() != (waiting+running == 0)) {
			err = fmt.Errorf("Stats(%q) = %+v", topic, got)
		}
		return err
	})
	return got
}

func done(t testing.TB, i *Item) {
	t.Helper()
	if err := i.Done(bounded(t)); err != nil {
		t.Errorf("Done() = %v, want nil", err)
	}
}

func testOrder(t *testing.T, s *Store) {
	q := s.Queue(QueueOptions{Name: "order"})
	wantStats(t, q, "chat", 0, 0)
	began := time.Now()
	for _, id := range []string{"a", "b", "c"} {
		push(t, q, "chat", id)
	}
	if err := q.Push(bounded(t), "chat", "", nil); err != nil {
		t.Errorf("Push() without id and data = %v, want nil", err)
	}
	oldest := wantStats(t, q, "chat", 4, 0).Oldest
	for n, want := range []string{"a", "b", "c", ""} {
		i := pull(t, q, "chat")
		if string(i.Data) != want || i.Topic != "chat" || i.Deliveries != 1 || i.Pushed.Before(began) || i.Pushed.After(time.Now()) {
			t.Errorf("Pull() = %+v, want %q for the first time", i, want)
		}
		if n == 0 && !i.Pushed.Equal(oldest) {
			t.Errorf("Stats().Oldest = %s, want %s", oldest, i.Pushed)
		}
		wantStats(t, q, "chat", uint64(3-n), 1)
		done(t, i)
		done(t, i)
	}
	wantStats(t, q, "chat", 0, 0)
	wantNothing(t, q, "chat")
}

func testOneID(t *testing.T, one, two *Store) {
	a, b := one.Queue(QueueOptions{Name: "ids"}), two.Queue(QueueOptions{Name: "ids"})
	for range 3 {
		push(t, a, "chat", "id with\r\nlines")
		push(t, b, "chat", "id with\r\nlines")
	}
	push(t, a, "chat", "another")
	push(t, a, "mail", "another")
	wantStats(t, a, "chat", 2, 0)
	wantStats(t, b, "mail", 1, 0)
	done(t, pull(t, b, "chat"))
	push(t, a, "chat", "id with\r\nlines")
	wantStats(t, b, "chat", 1, 0)
}

func testItemLease(t *testing.T, one, two *Store) {
	const lease = time.Second
	a, b := one.Queue(QueueOptions{Name: "lease", Lease: lease}), two.Queue(QueueOptions{Name: "lease", Lease: lease})
	push(t, a, "chat", "x")
	first := pull(t, a, "chat")
	began := time.Now()
	for time.Since(began) < 2*lease {
		if err := first.Hold(bounded(t)); err != nil {
			t.Fatalf("Hold() within the lease = %v, want nil", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), lease/2)
		if i, err := b.Pull(ctx, "chat"); i != nil || err == nil {
			t.Fatalf("Pull() of what another holds = %+v, %v, want nothing", i, err)
		}
		cancel()
	}
	held := time.Now()
	second := pull(t, b, "chat")
	if second.Deliveries != 2 || string(second.Data) != "x" {
		t.Errorf("Pull() after the lease = %+v, want x for the second time", second)
	}
	if now := time.Now(); now.Before(first.until) {
		t.Errorf("the item was given out again %s before the lease's end, held at %s", first.until.Sub(now), held)
	}
	if err := first.Hold(bounded(t)); !errors.Is(err, ErrHeld) {
		t.Errorf("Hold() after the lease = %v, want ErrHeld", err)
	}
	done(t, second)
	done(t, first)
	wantNothing(t, a, "chat")
	wantStats(t, a, "chat", 0, 0)
}

func testLater(t *testing.T, one, two *Store) {
	a, b := one.Queue(QueueOptions{Name: "later"}), two.Queue(QueueOptions{Name: "later"})
	push(t, a, "chat", "x")
	const later = 1500 * time.Millisecond
	first := pull(t, a, "chat")
	began := time.Now()
	if err := first.Later(bounded(t), later); err != nil {
		t.Fatalf("Later() = %v, want nil", err)
	}
	wantStats(t, b, "chat", 0, 1)
	again := pull(t, b, "chat")
	if got := time.Since(began); got < later {
		t.Errorf("the item came back after %s, want at least %s", got, later)
	}
	if err := again.Later(bounded(t), 0); err != nil {
		t.Fatalf("Later(0) = %v, want nil", err)
	}
	last := pull(t, a, "chat")
	if last.Deliveries != 3 || !last.Pushed.Equal(first.Pushed) {
		t.Errorf("Pull() = %+v, want the third time of what was pushed at %s", last, first.Pushed)
	}
	done(t, last)
	wantStats(t, b, "chat", 0, 0)
}

func testTopics(t *testing.T, s *Store) {
	q := s.Queue(QueueOptions{Name: "topics"})
	topics := []string{"chat", "chat.fast", "a/b", "a=2Fb", "*", ">", "über alles", "=", strings.Repeat("x", topicMost)}
	for _, topic := range topics {
		push(t, q, topic, topic)
	}
	for _, topic := range topics {
		i := pull(t, q, topic)
		if string(i.Data) != topic || i.Topic != topic {
			t.Errorf("Pull(%q) = %q of %q, want its own", topic, i.Data, i.Topic)
		}
		done(t, i)
		wantStats(t, q, topic, 0, 0)
	}
	for what, err := range map[string]error{
		"no topic":           q.Push(bounded(t), "", "id", nil),
		"a topic too long":   q.Push(bounded(t), strings.Repeat("x", topicMost+1), "id", nil),
		"an id too long":     q.Push(bounded(t), "chat", strings.Repeat("x", keyMost+1), nil),
		"an item too large":  q.Push(bounded(t), "chat", "id", make([]byte, embeddedPayload+1)),
		"many slashes":       q.Push(bounded(t), strings.Repeat("/", topicMost), "id", nil),
		"a pull of no topic": func() error { _, err := q.Pull(bounded(t), ""); return err }(),
	} {
		if !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v, want ErrTooLarge", what, err)
		}
	}
}

// testManyPullers lets every store pull with several hands what several push.
func testManyPullers(t *testing.T, fleet []*Store) {
	const items, hands = 200, 3
	var mu sync.Mutex
	var got []string
	ctx, cancel := context.WithCancel(bounded(t))
	defer cancel()
	var wg sync.WaitGroup
	for _, s := range fleet {
		q := s.Queue(QueueOptions{Name: "many"})
		for range hands {
			wg.Go(func() {
				for {
					i, err := q.Pull(ctx, "chat")
					if ctx.Err() != nil {
						return
					}
					if err != nil {
						t.Errorf("Pull() = %v, want an item", err)
						return
					}
					mu.Lock()
					got = append(got, string(i.Data))
					mu.Unlock()
					done(t, i)
				}
			})
		}
	}
	for n := range items {
		push(t, fleet[n%len(fleet)].Queue(QueueOptions{Name: "many"}), "chat", fmt.Sprint(n))
	}
	eventually(t, "the last item", func() error {
		mu.Lock()
		n := len(got)
		mu.Unlock()
		if n < items { // a cluster's figures are not those of this moment
			return fmt.Errorf("%d items were given out", n)
		}
		if stats, err := fleet[0].Queue(QueueOptions{Name: "many"}).Stats(ctx, "chat"); err != nil || stats != (QueueStats{}) {
			return fmt.Errorf("Stats() = %+v, %v", stats, err)
		}
		return nil
	})
	cancel()
	wg.Wait()
	wantEachOnce(t, got, items)
}

func wantEachOnce(t testing.TB, got []string, items int) {
	t.Helper()
	slices.Sort(got)
	if once := slices.Compact(slices.Clone(got)); len(got) != items || len(once) != items {
		t.Errorf("%d items were given out, %d different ones, want each of %d once", len(got), len(once), items)
	}
}

func testFullQueue(t *testing.T, s *Store) {
	q := s.Queue(QueueOptions{Name: "full", MaxBytes: 256 << 10})
	var err error
	n := 0
	for ; err == nil; n++ {
		err = q.Push(bounded(t), "chat", fmt.Sprint(n), make([]byte, 32<<10))
	}
	if !errors.Is(err, ErrFull) || n < 7 || n > 8 {
		t.Fatalf("Push() number %d = %v, want ErrFull at the eighth", n, err)
	}
	s.doubt() // A queue that is full is well.
	if _, err := q.look(bounded(t), s.state.Load().ses, true); err != nil {
		t.Errorf("a full queue that answers is called unavailable: %v", err)
	}
	wantStats(t, q, "chat", uint64(n-1), 0)
	done(t, pull(t, q, "chat"))
	eventually(t, "room for the id that was refused", func() error {
		return q.Push(bounded(t), "chat", fmt.Sprint(n-1), make([]byte, 32<<10))
	})
	wantStats(t, q, "chat", uint64(n-1), 0)
}

func TestAPullHearsOfAnItemPushedLater(t *testing.T) {
	s := openEmbedded(t)
	q := s.Queue(QueueOptions{Name: "q"})
	got := make(chan *Item)
	go func() { got <- pull(t, q, "chat") }()
	eventually(t, "the puller", func() error {
		h, err := q.open(bounded(t), s.state.Load().ses)
		if err == nil {
			_, err = h.stream.Consumer(bounded(t), "chat")
		}
		return err
	})
	push(t, q, "chat", "x")
	done(t, <-got)
}

func TestAPullEndsWithItsContextAndItsStore(t *testing.T) {
	s := openEmbedded(t)
	q := s.Queue(QueueOptions{Name: "q"})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { _, err := q.Pull(ctx, "chat"); ended <- err }()
	eventually(t, "the puller", func() error { _, err := q.Stats(bounded(t), "chat"); return err })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled Pull() = %v, want context.Canceled", err)
	}
	push(t, q, "mail", "x")
	item := pull(t, q, "mail")
	go func() { _, err := q.Pull(context.Background(), "chat"); ended <- err }()
	closeStore(t, s)
	if err := <-ended; !errors.Is(err, ErrDown) {
		t.Errorf("Pull() of a closed store = %v, want ErrDown", err)
	}
	_, stats := q.Stats(t.Context(), "chat")
	for what, err := range map[string]error{
		"Push": q.Push(t.Context(), "chat", "x", nil), "Stats": stats, "Done": item.Done(t.Context()),
		"Later": item.Later(t.Context(), 0), "Hold": item.Hold(t.Context()),
	} {
		if !errors.Is(err, ErrDown) {
			t.Errorf("%s() after Close = %v, want ErrDown", what, err)
		}
	}
}

// lose ends the session as a broken connection does.
func lose(t testing.TB, s *Store) {
	t.Helper()
	losses := s.Stats().Losses
	s.state.Load().ses.nc.Close()
	eventually(t, "the loss", func() error {
		if s.Stats().Losses == losses {
			return errors.New("still up")
		}
		return nil
	})
	awaitReady(t, s)
}

func TestAnItemOutlivesItsSession(t *testing.T) {
	s := openEmbedded(t)
	q := s.Queue(QueueOptions{Name: "q", Lease: time.Minute})
	for _, id := range []string{"done", "held", "later", "waiting"} {
		push(t, q, "chat", id)
	}
	settled, held, later := pull(t, q, "chat"), pull(t, q, "chat"), pull(t, q, "chat")
	lose(t, s)
	wantStats(t, q, "chat", 1, 3)
	done(t, settled)
	if err := held.Hold(bounded(t)); err != nil {
		t.Errorf("Hold() in another session = %v, want nil", err)
	}
	if err := later.Later(bounded(t), 0); err != nil {
		t.Errorf("Later() in another session = %v, want nil", err)
	}
	got := []string{string(pull(t, q, "chat").Data), string(pull(t, q, "chat").Data)}
	slices.Sort(got)
	if want := []string{"later", "waiting"}; !slices.Equal(got, want) {
		t.Errorf("Pull() twice = %q, want %q", got, want)
	}
	wantNothing(t, q, "chat")
	wantStats(t, q, "chat", 0, 3)
}

func TestAnItemOfAQueueThatWasLostSettlesNothingInTheNewOne(t *testing.T) {
	s := openEmbedded(t)
	q := s.Queue(QueueOptions{Name: "q"})
	push(t, q, "chat", "old")
	old := pull(t, q, "chat")
	if err := s.state.Load().ses.js.DeleteStream(bounded(t), "QUEUE_q"); err != nil {
		t.Fatal(err)
	}
	push(t, q, "chat", "new")
	item := pull(t, q, "chat")
	if err := old.Done(bounded(t)); !errors.Is(err, ErrNotFound) {
		t.Errorf("Done() of an item that was lost = %v, want ErrNotFound", err)
	}
	if string(item.Data) != "new" {
		t.Errorf("Pull() = %q, want new", item.Data)
	}
	wantStats(t, q, "chat", 0, 1)
}

func TestATopicsConsumerDeletedByAnOperatorIsMadeAgain(t *testing.T) {
	s := openEmbedded(t)
	q := s.Queue(QueueOptions{Name: "q"})
	push(t, q, "chat", "1")
	done(t, pull(t, q, "chat"))
	if err := q.handle.Load().stream.DeleteConsumer(bounded(t), "chat"); err != nil {
		t.Fatal(err)
	}
	push(t, q, "chat", "2")
	if i := pull(t, q, "chat"); string(i.Data) != "2" {
		t.Errorf("Pull() = %q, want 2", i.Data)
	}
}

func TestAQueueTakesANewLeaseWhenItIsOpenedAgain(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, Options{Dir: dir})
	q := s.Queue(QueueOptions{Name: "q", Lease: time.Hour})
	push(t, q, "chat", "x")
	done(t, pull(t, q, "chat"))
	closeStore(t, s)
	q = openStore(t, Options{Dir: dir}).Queue(QueueOptions{Name: "q", Lease: time.Second})
	push(t, q, "chat", "y")
	pull(t, q, "chat")
	if i := pull(t, q, "chat"); i.Deliveries != 2 {
		t.Errorf("Pull() after the new lease = %+v, want y again", i)
	}
}

func TestOneNameIsOneQueue(t *testing.T) {
	s := openEmbedded(t)
	one, two := s.Queue(QueueOptions{Name: "q"}), s.Queue(QueueOptions{Name: "q"})
	if one != two {
		t.Error("Queue() twice gave two queues, want one")
	}
	b := s.Bucket(BucketOptions{Name: "q"})
	if _, err := b.Put(bounded(t), "k", nil, 0); err != nil {
		t.Errorf("Put() in a bucket of a queue's name = %v, want nil", err)
	}
}

func TestAQueueIsAWorkQueueThatNatsToolsCanRead(t *testing.T) {
	s := openEmbedded(t)
	q := s.Queue(QueueOptions{Name: "q"})
	push(t, q, "chat", "x")
	info, err := q.handle.Load().stream.Info(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	if c := info.Config; c.Retention != jetstream.WorkQueuePolicy || c.Storage != jetstream.FileStorage || c.Discard != jetstream.DiscardNew {
		t.Errorf("the stream is %+v, want a work queue on disk that refuses what is too much", c)
	}
}
