package once

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"understudy/pkg/store"
)

// script is what one exchange does.
type script struct {
	Key, Digest int
	Begins      time.Duration
	Attempts    []attempt // each after the one before
	End         string    // what the last attempt does when it is the owner
}

type attempt struct {
	Replica int
	Takes   time.Duration
	Stale   bool // it tries to end its claim a while later, as a replica does that was frozen
}

func scripts() *rapid.Generator[[]script] {
	durations := func(most time.Duration) *rapid.Generator[time.Duration] {
		return rapid.Map(rapid.IntRange(0, 20), func(n int) time.Duration { return time.Duration(n) * most / 20 })
	}
	return rapid.SliceOfN(rapid.Custom(func(r *rapid.T) script {
		return script{
			Key: rapid.IntRange(0, 1).Draw(r, "key"), Digest: max(0, rapid.IntRange(-6, 1).Draw(r, "digest")),
			Begins: durations(3*life).Draw(r, "begins"),
			Attempts: rapid.SliceOfN(rapid.Custom(func(r *rapid.T) attempt {
				return attempt{
					Replica: rapid.IntRange(0, 2).Draw(r, "replica"), Takes: durations(life*6/5).Draw(r, "takes"),
					Stale: rapid.IntRange(0, 4).Draw(r, "stale") == 0,
				}
			}), 1, 3).Draw(r, "attempts"),
			End: rapid.SampledFrom([]string{"finish", "finish", "fail", "abandon", "crash"}).Draw(r, "end"),
		}
	}), 1, 14)
}

// model is what is known to be true of two keys, whoever does what to them. Faults go into one list, that the calls use
// up in turn.
type model struct {
	*world
	faults []int

	mu     sync.Mutex // mu guards the fields below.
	wrong  []string
	owners map[int]owner     // by key
	given  map[string]string // what ends were called with: finish or fail, by text
	heard  map[string]string // texts, by run
	seen   map[string]bool   // texts
	lost   map[string]bool   // texts of a Finish that was told that its claim is lost
}

type owner struct {
	exchange string
	until    time.Time
}

func TestAKeyKeepsItsWordInAnyOrderOfEvents(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		all := scripts().Draw(r, "exchanges")
		faults := rapid.SliceOfN(rapid.IntRange(0, 5), 0, 60).Draw(r, "faults")
		var wrong []string
		synctest.Test(t, func(t *testing.T) {
			withWorld(t, func(w *world) {
				m := &model{
					world: w, faults: faults, owners: map[int]owner{}, given: map[string]string{},
					heard: map[string]string{}, seen: map[string]bool{}, lost: map[string]bool{},
				}
				w.claims.fault, w.answers.fault = m.fault, m.fault
				m.run(all)
				wrong = m.wrong
			})
		})
		if len(wrong) > 0 {
			r.Fatalf("%q", wrong)
		}
	})
}

func (m *model) fault(string) (before, after error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.faults) == 0 {
		return nil, nil
	}
	next := m.faults[0]
	m.faults = m.faults[1:]
	switch next {
	case 1:
		return store.ErrDown, nil
	case 2:
		return nil, store.ErrDown
	}
	return nil, nil
}

func (m *model) run(all []script) {
	// Longer than all exchanges could take one after another.
	ctx, cancel := context.WithTimeout(m.t.Context(), 24*time.Hour)
	defer cancel()
	var wg sync.WaitGroup
	for n, s := range all {
		wg.Go(func() {
			time.Sleep(s.Begins)
			m.exchange(ctx, &wg, fmt.Sprint("x", n), s)
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		m.fail("somebody waits for ever")
	}
	for text := range m.seen {
		if m.given[text] == "" || m.lost[text] {
			m.fail("%s was heard, which was given as %q, lost: %t", text, m.given[text], m.lost[text])
		}
	}
}

// exchange makes the attempts of one exchange, each of which waits while another runs.
func (m *model) exchange(ctx context.Context, wg *sync.WaitGroup, id string, s script) {
	for n, a := range s.Attempts {
		c := m.attempt(ctx, a, id, s)
		if c == nil {
			return
		}
		text := fmt.Sprint(id, " attempt ", n)
		time.Sleep(a.Takes)
		if n == len(s.Attempts)-1 {
			m.end(ctx, c, id, s, s.End, text)
		}
		if a.Stale {
			wg.Go(func() { time.Sleep(life / 3); m.end(ctx, c, "", s, "finish", text+" late") })
		}
	}
}

// attempt returns a claim that is to be ended, or nil when the exchange got its answer.
func (m *model) attempt(ctx context.Context, a attempt, id string, s script) *Claim {
	for {
		r := ask(id)
		r.Key, r.Digest = fmt.Sprint(s.Key), fmt.Sprint(s.Digest)
		began := time.Now()
		c, err := m.replicas[a.Replica].Claim(ctx, r)
		switch {
		case errors.Is(err, store.ErrDown):
			return c // It goes on without the guarantee.
		case err != nil:
			m.fail("Claim(%s) = %v", id, err)
			return nil
		case c.Outcome == Mine:
			m.owns(s.Key, owner{id, began.Add(life)})
			return c
		case c.Outcome == Finished:
			m.hears("", c.Answer, "finish")
			return nil
		case c.Outcome == Conflict:
			return nil
		}
		answer, err := c.Wait(ctx)
		if err == nil {
			m.hears(c.rec.Run, answer, "")
			return nil
		}
		if !errors.Is(err, ErrFreed) {
			m.fail("Wait(%s) = %v", id, err)
			return nil
		}
	}
}

// owns checks that there is no other owner.
func (m *model) owns(key int, o owner) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if was, ok := m.owners[key]; ok && was.exchange != o.exchange && time.Now().Before(was.until) {
		m.wrong = append(m.wrong, fmt.Sprintf("%s owns key %d, which is %s's until %s", o.exchange, key, was.exchange, was.until))
	}
	m.owners[key] = o
}

// hears checks that all who hear of a run hear the same, and what was given as kind.
func (m *model) hears(run string, a Answer, kind string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	text := string(a.Body)
	m.seen[text] = true
	if was, ok := m.heard[run]; ok && run != "" && was != text {
		m.wrong = append(m.wrong, fmt.Sprintf("one run's answers are %s and %s", was, text))
	}
	m.heard[run] = text
	if kind != "" && m.given[text] != kind {
		m.wrong = append(m.wrong, fmt.Sprintf("%s is an answer, given as %q, want %s", text, m.given[text], kind))
	}
}

// end ends a claim as how says. Whoever ends it owns nothing from then on.
func (m *model) end(ctx context.Context, c *Claim, id string, s script, how, text string) {
	if how == "crash" {
		return
	}
	m.mu.Lock()
	if m.owners[s.Key].exchange == id {
		delete(m.owners, s.Key)
	}
	m.given[text] = how
	m.mu.Unlock()
	var err error
	switch how {
	case "finish":
		err = c.Finish(ctx, answer(text), window)
	case "fail":
		err = c.Fail(ctx, answer(text))
	case "abandon":
		err = c.Abandon(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if how == "finish" && errors.Is(err, ErrLost) {
		m.lost[text] = true
	}
	if err != nil && !errors.Is(err, ErrLost) && !errors.Is(err, store.ErrDown) {
		m.wrong = append(m.wrong, fmt.Sprintf("%s(%s) = %v", how, text, err))
	}
}

func (m *model) fail(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wrong = append(m.wrong, fmt.Sprintf(format, args...))
}
