package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"understudy/pkg/config"
	"understudy/pkg/degrade/queue"
	"understudy/pkg/degrade/queue/queuetest"
	"understudy/pkg/store"
)

// lease is how long an item stays with a worker that died.
const lease = time.Second

func openStore(t *testing.T, dir string) *store.Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := store.Open(ctx, store.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeStore(t *testing.T, s *store.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
}

// partsOf are places in a real store. All of them are there when it returns: a server that is closed while it makes one
// leaves goroutines behind.
func partsOf(t *testing.T, s *store.Store) queue.Parts {
	t.Helper()
	bucket := func(name string) *store.Bucket { return s.Bucket(store.BucketOptions{Name: name}) }
	p := queue.Parts{
		Records: bucket("jobs"), Dead: bucket("dead"), Results: bucket("results"),
		Bodies: s.Bucket(store.BucketOptions{Name: "bodies", Keep: true, MaxBytes: 64 << 20}),
		Jobs:   queue.Over(s.Queue(store.QueueOptions{Name: "jobs", Lease: lease})),
		Outbox: queue.Over(s.Queue(store.QueueOptions{Name: "notices", Lease: lease})),
	}
	for _, err := range []error{
		missing(p.Records.Get(t.Context(), "x")), missing(p.Dead.Get(t.Context(), "x")),
		missing(p.Bodies.GetBlob(t.Context(), "x")), missing(p.Results.GetBlob(t.Context(), "x")),
		failing(p.Jobs.Stats(t.Context(), "x")), failing(p.Outbox.Stats(t.Context(), "x")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func missing[T any](_ T, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

func failing[T any](_ T, err error) error { return err }

func TestJobsOutliveTheProcessThatAcceptedThem(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	d := newDesk(partsOf(t, s), nil)
	big := ask("big")
	big.Body = []byte(fmt.Sprintf(`{"model":"m","x":%q}`, make([]byte, 1<<20)))
	first, second := d.accept(t, big), d.accept(t, ask("k"))
	closeStore(t, s)

	s = openStore(t, dir)
	defer closeStore(t, s)
	d = newDesk(partsOf(t, s), nil)
	if again := d.accept(t, ask("k")); again.ID != second.ID {
		t.Errorf("Accept = %s, want %s: the key is known", again.ID, second.ID)
	}
	w := d.next(t, "chat")
	if w.Job.ID != first.ID || string(w.Body) != string(big.Body) {
		t.Errorf("Next = %s with %d bytes, want %s with %d", w.Job.ID, len(w.Body), first.ID, len(big.Body))
	}
	if err := w.Finish(t.Context(), queue.Result{Status: 204}, queue.Done); err != nil {
		t.Fatal(err)
	}
	d.wantJob(t, first.ID, "done 204 ")
	if n, err := d.Notices().Next(t.Context(), "chat"); err != nil || n.ID != first.ID {
		t.Errorf("Notices.Next = %+v, %v, want one of %s", n, err, first.ID)
	}
}

// TestOnARealStoreNoFailureLosesAJobOrDoublesIt is the crash test on a real store: jobs in chains of their own, each
// with a fault at another call, all at once.
func TestOnARealStoreNoFailureLosesAJobOrDoublesIt(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	s := openStore(t, t.TempDir())
	defer closeStore(t, s)
	const calls = 15
	var chains []*config.Chain
	for i := range 2 * calls {
		chains = append(chains, &config.Chain{Name: fmt.Sprint("c", i), Queue: config.Queue{MaxAge: maxAge, Notify: &config.Webhook{}}})
	}
	cfg := &config.Config{Jobs: config.Jobs{Keep: keep}, Chains: chains}
	parts := partsOf(t, s)
	var wg sync.WaitGroup
	for i, ch := range chains {
		wg.Go(func() {
			f := &faulty{left: i / 2, fault: []queuetest.Fault{queuetest.Refused, queuetest.Unanswered}[i%2]}
			q := &queue.Queue{Parts: f.parts(parts), Config: func() *config.Config { return cfg }, Count: func(_, _ string) {}}
			if err := live(t.Context(), q, ch.Name); err != nil {
				t.Errorf("fault %d at call %d: %v", f.fault, i/2, err)
			}
			if f.left >= 0 {
				t.Errorf("call %d was not made: this test has too many", i/2)
			}
		})
	}
	wg.Wait()
}

// live leads one job of a chain through its life; a worker to whom something fails dies.
func live(ctx context.Context, q *queue.Queue, chain string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r := ask("k")
	r.Chain = chain
	j, err := q.Accept(ctx, r)
	for err != nil {
		if ctx.Err() != nil {
			return err
		}
		j, err = q.Accept(ctx, r)
	}
	for run, empty := 0, 0; empty < 2; run++ { // Once is as long as the pause of an item that could not be read.
		w, err := q.Next(ctx, chain)
		if errors.Is(err, queue.ErrEmpty) {
			empty++
		} else if err == nil {
			empty = 0
			_ = w.Finish(ctx, answer(fmt.Sprint("run ", run)), queue.Done)
		} else if ctx.Err() != nil {
			return err
		}
	}
	got, result, err := q.Show(ctx, j.ID)
	if err != nil || got.State != queue.Done || result == nil {
		return fmt.Errorf("Show = %+v, %v, %w, want a job that is done", got, result, err)
	}
	n, err := q.Notices().Next(ctx, chain)
	if err != nil || n.ID != j.ID {
		return fmt.Errorf("Notices.Next = %+v, %w, want one of %s", n, err, j.ID)
	}
	if again, err := q.Accept(ctx, r); err != nil || again.ID != j.ID || again.State != queue.Done {
		return fmt.Errorf("Accept = %+v, %w, want the same job", again, err)
	}
	return nil
}

// faulty fails one call to a store, the one after left others.
type faulty struct {
	left  int
	fault queuetest.Fault
}

func (f *faulty) call(g func() error) error {
	f.left--
	if f.left != -1 {
		return g()
	}
	if f.fault == queuetest.Unanswered {
		if err := g(); err != nil {
			return err
		}
	}
	return store.ErrDown
}

func (f *faulty) parts(p queue.Parts) queue.Parts {
	return queue.Parts{
		Records: faultyRecords{f, p.Records}, Dead: p.Dead, Bodies: faultyBlobs{f, p.Bodies}, Results: faultyBlobs{f, p.Results},
		Jobs: faultyLine{f, p.Jobs}, Outbox: faultyLine{f, p.Outbox},
	}
}

type faultyRecords struct {
	f *faulty
	queue.Records
}

func (r faultyRecords) Create(ctx context.Context, key string, v []byte, ttl time.Duration) (rev uint64, err error) {
	err = r.f.call(func() error { rev, err = r.Records.Create(ctx, key, v, ttl); return err })
	return rev, err
}

func (r faultyRecords) Update(ctx context.Context, key string, v []byte, old uint64, ttl time.Duration) (rev uint64, err error) {
	err = r.f.call(func() error { rev, err = r.Records.Update(ctx, key, v, old, ttl); return err })
	return rev, err
}

func (r faultyRecords) Get(ctx context.Context, key string) (e store.Entry, err error) {
	err = r.f.call(func() error { e, err = r.Records.Get(ctx, key); return err })
	return e, err
}

type faultyBlobs struct {
	f *faulty
	queue.Blobs
}

func (b faultyBlobs) PutBlob(ctx context.Context, key string, v []byte, ttl time.Duration) error {
	return b.f.call(func() error { return b.Blobs.PutBlob(ctx, key, v, ttl) })
}

func (b faultyBlobs) GetBlob(ctx context.Context, key string) (v []byte, err error) {
	err = b.f.call(func() error { v, err = b.Blobs.GetBlob(ctx, key); return err })
	return v, err
}

func (b faultyBlobs) DeleteBlob(ctx context.Context, key string) error {
	return b.f.call(func() error { return b.Blobs.DeleteBlob(ctx, key) })
}

type faultyLine struct {
	f *faulty
	queue.Line
}

func (l faultyLine) Push(ctx context.Context, topic, id string, v []byte) error {
	return l.f.call(func() error { return l.Line.Push(ctx, topic, id, v) })
}

func (l faultyLine) Pull(ctx context.Context, topic string) (queue.Item, error) {
	item, err := l.Line.Pull(ctx, topic)
	item.Delivery = faultyDelivery{l.f, item.Delivery}
	return item, err
}

type faultyDelivery struct {
	f *faulty
	queue.Delivery
}

func (d faultyDelivery) Done(ctx context.Context) error {
	return d.f.call(func() error { return d.Delivery.Done(ctx) })
}

// TestOnARealStoreWorkersThatDieLeaveTheirJobsToOthers lets replicas run jobs of one chain, and every fourth run die.
func TestOnARealStoreWorkersThatDieLeaveTheirJobsToOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	s := openStore(t, t.TempDir())
	defer closeStore(t, s)
	d := newDesk(partsOf(t, s), nil)
	ids := map[string]string{}
	for i := range 60 {
		ids[d.accept(t, ask(fmt.Sprint("k", i))).ID] = ""
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	runs, kept := 0, map[string]string{}
	for range 4 {
		wg.Go(func() {
			for {
				w, err := d.Next(t.Context(), "chat")
				if errors.Is(err, queue.ErrEmpty) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				runs++
				run := runs
				mu.Unlock()
				if run%4 == 0 {
					continue
				}
				if err := w.Finish(t.Context(), answer(fmt.Sprint("run ", run)), queue.Done); err != nil {
					t.Error(err)
				}
				_, r, err := d.Show(t.Context(), w.Job.ID)
				if err != nil {
					t.Error(err)
					continue
				}
				mu.Lock()
				if was, ok := kept[w.Job.ID]; ok && was != string(r.Body) {
					t.Errorf("job %s has result %s after %s", w.Job.ID, r.Body, was)
				}
				kept[w.Job.ID] = string(r.Body)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(kept) != len(ids) || d.counts["chat done"] != len(ids) || runs <= len(ids) {
		t.Errorf("%d of %d jobs are done in %d runs, counts %v", len(kept), len(ids), runs, d.counts)
	}
}
