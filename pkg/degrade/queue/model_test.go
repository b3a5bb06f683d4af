//go:build !race

// The race detector itself runs out of room in a bubble that lives through this many goroutines and timers.

package queue_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"understudy/pkg/degrade/queue"
	"understudy/pkg/degrade/queue/queuetest"
)

// model is what is known to be true of the jobs of one Queue, whoever does what to it.
type model struct {
	t    *testing.T
	r    *rapid.T
	d    *desk
	fail queuetest.Fault // of the calls to come
	odds int             // one call in so many fails; 0: none

	ids    map[string]string // accepted keys
	ends   map[string]string // final jobs: what was seen first
	bodies map[string]bool   // what workers offered as results, by "id body"
	works  []*queue.Work
	run    int
}

func TestJobsKeepTheirWordInAnyOrderOfEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// rapid asks a testing.T for its deadline, which a bubble does not have.
		rapid.Check(struct{ rapid.TB }{t}, func(r *rapid.T) {
			mem := queuetest.New()
			m := &model{t: t, r: r, d: newDesk(mem.Parts(), mem), ids: map[string]string{}, ends: map[string]string{}, bodies: map[string]bool{}}
			mem.Fault = m.fault
			for range rapid.IntRange(1, 60).Draw(r, "steps") {
				m.step()
				m.check()
			}
			m.settle()
		})
	})
}

func (m *model) fault(op, _ string) queuetest.Fault {
	if m.odds == 0 || rapid.IntRange(1, m.odds).Draw(m.r, op) != 1 {
		return queuetest.None
	}
	return m.fail
}

func (m *model) step() {
	switch rapid.IntRange(0, 9).Draw(m.r, "step") {
	case 0, 1:
		m.accept()
	case 2, 3:
		m.next()
	case 4:
		m.with("finish", m.finish)
	case 5:
		m.with("later", func(w *queue.Work) error { return w.Later(m.t.Context(), 10*time.Second) })
	case 6:
		m.with("crash", func(*queue.Work) error { return nil })
	case 7:
		time.Sleep(rapid.SampledFrom([]time.Duration{time.Second, queuetest.AckWait, time.Minute, maxAge / 4}).Draw(m.r, "passes"))
	case 8:
		m.odds = rapid.SampledFrom([]int{0, 0, 2, 5}).Draw(m.r, "odds")
		m.fail = rapid.SampledFrom([]queuetest.Fault{queuetest.Refused, queuetest.Full, queuetest.Unanswered}).Draw(m.r, "fault")
	case 9:
		_ = m.d.Sweep(m.t.Context(), "chat")
	}
}

func (m *model) accept() {
	key := fmt.Sprint("k", rapid.IntRange(0, 3).Draw(m.r, "key"))
	j, err := m.d.Accept(m.t.Context(), ask(key))
	if err != nil {
		return
	}
	if id := m.ids[key]; id != "" && id != j.ID {
		m.r.Fatalf("key %s stands for %s after %s", key, j.ID, id)
	}
	m.ids[key] = j.ID
}

func (m *model) next() {
	w, err := m.d.Next(m.t.Context(), "chat")
	if err != nil {
		return
	}
	if m.ends[w.Job.ID] != "" {
		m.r.Fatalf("Next gives a job that has ended: %+v", w.Job)
	}
	m.works = append(m.works, w)
}

// with lets something happen to one of the works in hand. One that fails stays in hand.
func (m *model) with(name string, f func(*queue.Work) error) {
	if len(m.works) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.works)-1).Draw(m.r, name)
	if f(m.works[i]) == nil {
		m.works = append(m.works[:i], m.works[i+1:]...)
	}
}

func (m *model) finish(w *queue.Work) error {
	m.run++
	text := fmt.Sprint("run ", m.run)
	m.bodies[w.Job.ID+" "+text] = true
	return w.Finish(m.t.Context(), answer(text), rapid.SampledFrom([]queue.State{queue.Done, queue.Failed}).Draw(m.r, "state"))
}

// check looks at every accepted job: it is there, and once it has an end it keeps it.
func (m *model) check() {
	odds := m.odds
	m.odds = 0
	defer func() { m.odds = odds }()
	for _, id := range m.ids {
		j, r, err := m.d.Get(m.t.Context(), id, "acme")
		if err != nil {
			m.r.Fatalf("accepted job %s: %v", id, err)
		}
		if !j.State.Final() {
			continue
		}
		end := string(j.State)
		if r != nil {
			end += " " + string(r.Body)
			if !m.bodies[id+" "+string(r.Body)] {
				m.r.Fatalf("job %s has the result %q that nobody gave it", id, r.Body)
			}
		}
		if (j.State == queue.Expired) != (r == nil) {
			m.r.Fatalf("job %s is %s with result %v", id, j.State, r)
		}
		if was := m.ends[id]; was != "" && was != end {
			m.r.Fatalf("job %s ended as %q after %q", id, end, was)
		}
		m.ends[id] = end
	}
}

// settle lets a good worker run on a good store: then every accepted job has an end, is told, and leaves nothing.
func (m *model) settle() {
	m.odds = 0
	for idle := 0; idle < 12; {
		w, err := m.d.Next(m.t.Context(), "chat")
		switch {
		case errors.Is(err, queue.ErrEmpty):
			idle++
		case err != nil:
			m.r.Fatalf("Next = %v on a store that is well", err)
		default:
			idle = 0
			if err := m.finish(w); err != nil {
				m.r.Fatalf("Finish = %v on a store that is well", err)
			}
		}
	}
	m.check()
	told := map[string]bool{}
	for _, n := range m.d.told(m.t, "chat") {
		told[n] = true
	}
	for _, id := range m.ids {
		j, _, err := m.d.Get(m.t.Context(), id, "acme")
		if err != nil || m.ends[id] == "" || !told[id+" "+string(j.State)] {
			m.r.Fatalf("job %s: %v, ended as %q, told %v, want an end that is told", id, err, m.ends[id], told)
		}
	}
}
