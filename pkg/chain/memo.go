package chain

import (
	"container/list"
	"sync"

	"understudy/pkg/classify"
)

// Bounds of a Memo: enough for the failovers of the last seconds of a busy replica.
const (
	memoExchanges = 4096
	memoBytes     = 32 << 20
	memoBody      = 16 << 10 // of one failed answer
)

// Past is one attempt that this replica has seen fail.
type Past struct {
	Slot    int // index, from 0
	Rung    int
	Target  string
	Verdict classify.Verdict
	Answer  Answer
}

// Answer is a provider's failing answer as it may be shown to the client. A zero Status means that there was none.
type Answer struct {
	Status                       int
	ContentType, ContentEncoding string
	Body                         []byte
}

// Memo remembers the failed attempts of running exchanges as a hint: for one more try of the same target, for
// the reason of a fallback, for the last error to show. Losing it costs those, never an answer.
//
// Concurrency: safe for all; one lock, touched only by attempts that fail or follow one.
type Memo struct {
	mu    sync.Mutex
	order *list.List // of *memory, oldest first
	byID  map[string]*list.Element
	bytes int
}

type memory struct {
	exchange string
	past     []Past
	bytes    int
}

// NewMemo makes an empty Memo.
func NewMemo() *Memo {
	return &Memo{order: list.New(), byID: make(map[string]*list.Element)}
}

// Add remembers a failed attempt; the oldest exchanges make room.
func (m *Memo) Add(exchange string, p Past) {
	if len(p.Answer.Body) > memoBody {
		p.Answer = Answer{} // half a body is worse than none
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.byID[exchange]
	if e == nil {
		e = m.order.PushBack(&memory{exchange: exchange})
		m.byID[exchange] = e
	}
	mem := e.Value.(*memory)
	mem.past = append(mem.past[:len(mem.past):len(mem.past)], p)
	mem.bytes += len(p.Answer.Body)
	m.bytes += len(p.Answer.Body)
	for len(m.byID) > memoExchanges || m.bytes > memoBytes {
		m.dropLocked(m.order.Front())
	}
}

// Of is what is remembered of an exchange, oldest first. The slice must not be changed.
func (m *Memo) Of(exchange string) []Past {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.byID[exchange]; e != nil {
		return e.Value.(*memory).past
	}
	return nil
}

// Forget drops an exchange that has its answer.
func (m *Memo) Forget(exchange string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.byID[exchange]; e != nil {
		m.dropLocked(e)
	}
}

func (m *Memo) dropLocked(e *list.Element) {
	mem := m.order.Remove(e).(*memory)
	delete(m.byID, mem.exchange)
	m.bytes -= mem.bytes
}
