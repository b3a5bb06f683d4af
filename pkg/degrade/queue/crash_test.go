package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"understudy/pkg/degrade/queue"
	"understudy/pkg/degrade/queue/queuetest"
)

// TestWhateverFailsNoJobIsLostAndNoneHasTwoResults fails each of the calls to the store in a job's life, once: before
// or after it took effect; and with it the whole process, which forgets what it had in hand.
func TestWhateverFailsNoJobIsLostAndNoneHasTwoResults(t *testing.T) {
	for _, fault := range []queuetest.Fault{queuetest.Refused, queuetest.Full, queuetest.Unanswered} {
		for _, forgets := range []bool{true, false} {
			n := 0
			for failed := true; failed; n++ {
				t.Run(fmt.Sprintf("fault %d at call %d, forgets %t", fault, n, forgets), func(t *testing.T) {
					inMemory(t, func(t *testing.T, d *desk) { failed = d.live(t, n, fault, forgets) })
				})
			}
			if n < 15 {
				t.Errorf("a job's life has %d calls, want all of them seen", n)
			}
		}
	}
}

// live leads a job through its life, with a fault at call n, and says whether there was such a call.
func (d *desk) live(t *testing.T, n int, fault queuetest.Fault, forgets bool) (failed bool) {
	calls := 0
	d.memory.Fault = func(op, _ string) queuetest.Fault {
		if op == "pull" || op == "stats" {
			return queuetest.None // nothing changes in them
		}
		calls++
		if calls-1 == n {
			failed = true
			return fault
		}
		return queuetest.None
	}
	j, err := d.Accept(t.Context(), ask("k"))
	for err != nil {
		time.Sleep(time.Second)
		j, err = d.Accept(t.Context(), ask("k"))
	}
	runs := d.work(t, forgets)
	d.memory.Fault = nil
	if runs == 0 {
		t.Fatal("the job was lost")
	}
	got, r, err := d.Get(t.Context(), j.ID, "acme")
	if err != nil || got.State != queue.Done || r == nil {
		t.Fatalf("Get = %+v, %+v, %v, want a job that is done", got, r, err)
	}
	if told := slices.Compact(d.told(t, "chat")); !slices.Equal(told, []string{j.ID + " done"}) {
		t.Errorf("notices %q, want one or the same again", told)
	}
	if again := d.accept(t, ask("k")); again.ID != j.ID {
		t.Errorf("Accept = %s, want %s again", again.ID, j.ID)
	}
	time.Sleep(time.Minute)
	d.wantEmpty(t, "chat")
	if again, r2, err := d.Get(t.Context(), j.ID, "acme"); err != nil || !again.Finished.Equal(got.Finished) || string(r2.Body) != string(r.Body) {
		t.Errorf("Get = %+v, %+v, %v, want the first result for ever", again, r2, err)
	}
	return failed
}

// work runs all jobs until the line is empty for longer than an item can be away, and returns how many runs it took.
func (d *desk) work(t *testing.T, forgets bool) (runs int) {
	for idle := 0; idle < 10; {
		w, err := d.Next(t.Context(), "chat")
		if errors.Is(err, queue.ErrEmpty) {
			idle++
			continue
		}
		if err != nil {
			continue
		}
		idle = 0
		runs++
		for err = d.finish(t.Context(), w, runs); err != nil && !forgets; err = d.finish(t.Context(), w, runs) {
			time.Sleep(time.Second)
		}
	}
	return runs
}

func (d *desk) finish(ctx context.Context, w *queue.Work, run int) error {
	return w.Finish(ctx, answer(fmt.Sprint("run ", run)), queue.Done)
}
