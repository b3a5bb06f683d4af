package chain

import (
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func answer(bytes int) Past { return Past{Answer: Answer{Status: 500, Body: make([]byte, bytes)}} }

func TestAMemoRemembersAnExchangeUntilItHasItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemo()
		m.Add("x", Past{Slot: 0})
		before := m.Of("x")
		m.Add("x", Past{Slot: 1})
		m.Add("y", Past{Slot: 2})
		if got := m.Of("x"); len(got) != 2 || got[0].Slot != 0 || got[1].Slot != 1 || got[1].At != time.Now() {
			t.Errorf("Of(x) = %v, want slots 0 and 1, of now", got)
		}
		if len(before) != 1 {
			t.Errorf("Of(x) from before grew to %v", before)
		}
		m.Forget("x")
		m.Forget("unknown")
		if got := m.Of("x"); got != nil {
			t.Errorf("Of(x) = %v after Forget, want nothing", got)
		}
		if got := m.Of("y"); len(got) != 1 {
			t.Errorf("Of(y) = %v, want it untouched", got)
		}
		if m.Forget("y"); m.bytes != 0 {
			t.Errorf("an empty memo counts %d bytes, want 0", m.bytes)
		}
	})
}

func TestTheBoundsOfAMemo(t *testing.T) {
	rows := []struct {
		name string
		fill func(m *Memo)
		kept bool // whether the exchange "first", added before fill, is still there
	}{
		{"as many exchanges as there may be push one out", func(m *Memo) { addMany(m, memoExchanges-1, 0) }, true},
		{"one exchange too many stays", func(m *Memo) { addMany(m, memoExchanges, 0) }, false},
		{"an exchange that failed again lately makes room", func(m *Memo) {
			addMany(m, memoExchanges-1, 0)
			m.Add("first", Past{})
			m.Add("last", Past{})
		}, true},
		{"big answers stay beyond the bytes allowed", func(m *Memo) { addMany(m, memoBytes/memoBody, memoBody) }, false},
		{"answers too big to show take their memory", func(m *Memo) { addMany(m, memoBytes/memoBody, memoBody+1) }, true},
		{"an exchange is remembered for ever", func(*Memo) { time.Sleep(memoAge) }, false},
		{"an exchange is forgotten too early", func(*Memo) { time.Sleep(memoAge - 1) }, true},
		{"an exchange that failed again lately is forgotten", func(m *Memo) {
			time.Sleep(memoAge - 1)
			m.Add("first", Past{})
			time.Sleep(memoAge - 1)
		}, true},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := NewMemo()
				m.Add("first", answer(10))
				row.fill(m)
				if got := m.Of("first"); (len(got) > 0) != row.kept {
					t.Errorf("Of(first) = %v, want it kept: %v", got, row.kept)
				}
				if m.bytes > memoBytes || len(m.byID) > memoExchanges || m.order.Len() != len(m.byID) {
					t.Errorf("holds %d bytes, %d exchanges, %d in order", m.bytes, len(m.byID), m.order.Len())
				}
			})
		})
	}
}

func addMany(m *Memo, n, bytes int) {
	for i := range n {
		m.Add(strconv.Itoa(i), answer(bytes))
	}
}

func TestAnExchangeThatGoesOnFailingDoesNotGrowWithoutEnd(t *testing.T) {
	m := NewMemo()
	for i := range 10 * memoPasts {
		m.Add("x", Past{Slot: i, Answer: Answer{Body: make([]byte, i)}})
	}
	got := m.Of("x")
	if len(got) != memoPasts || got[memoPasts-1].Slot != 10*memoPasts-1 {
		t.Errorf("Of(x) = %d attempts up to %d, want the last %d", len(got), got[len(got)-1].Slot, memoPasts)
	}
	if m.Forget("x"); m.bytes != 0 {
		t.Errorf("an empty memo counts %d bytes, want 0", m.bytes)
	}
}

func TestHalfABodyIsNotRemembered(t *testing.T) {
	m := NewMemo()
	m.Add("x", answer(memoBody))
	m.Add("x", answer(memoBody+1))
	got := m.Of("x")
	if len(got[0].Answer.Body) != memoBody || got[1].Answer.Status != 0 || got[1].Answer.Body != nil {
		t.Errorf("remembered %d and %d bytes, want all or none", len(got[0].Answer.Body), len(got[1].Answer.Body))
	}
}

func TestManyAttemptsUseAMemoAtOnce(t *testing.T) {
	m := NewMemo()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 200 {
				id := strconv.Itoa((i + n) % 16)
				m.Add(id, answer(n))
				if len(m.Of(id)) > 0 && n%3 == 0 {
					m.Forget(id)
				}
			}
		})
	}
	all.Wait()
	for id := range m.byID {
		m.Forget(id)
	}
	if m.bytes != 0 {
		t.Errorf("an empty memo counts %d bytes, want 0", m.bytes)
	}
}
