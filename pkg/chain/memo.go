package chain

import (
	"container/list"
	"slices"
	"sync"
	"time"

	"understudy/pkg/classify"
)

// Bounds of a Memo: enough for the failovers of the last seconds of a busy replica.
const (
	memoExchanges = 4096
	memoBytes     = 32 << 20
	memoPasts     = 64       // of one exchange; more come only where a client uses a request id again and again
	memoBody      = 64 << 10 // of one failed answer
	memoOverhead  = 1 << 10  // counted for each attempt, beside the body
	memoAge       = 10 * time.Minute
)

// Past is one attempt that this replica has seen fail.
type Past struct {
	Attempt int       // Envoy's number
	Sent    time.Time // when its request went off
	At      time.Time // when it failed
	Slot    int       // index, from 0
	Rung    int
	Target  string
	Verdict classify.Verdict
	CostUSD float64
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
	order *list.List // of *memory, the one longest without a new failure first
	byID  map[string]*list.Element
	bytes int
}

type memory struct {
	exchange string
	past     []Past // never empty
	bytes    int
}

// add returns how many bytes that adds. A slice given out before stays as it is.
func (m *memory) add(p Past) int {
	before := m.bytes
	from := max(0, len(m.past)+1-memoPasts)
	for _, gone := range m.past[:from] {
		m.bytes -= gone.size()
	}
	m.past = append(slices.Clone(m.past[from:]), p)
	m.bytes += p.size()
	return m.bytes - before
}

func (p *Past) size() int { return len(p.Answer.Body) + memoOverhead }

func (m *memory) at() time.Time { return m.past[len(m.past)-1].At }

// NewMemo makes an empty Memo.
func NewMemo() *Memo {
	return &Memo{order: list.New(), byID: make(map[string]*list.Element)}
}

// Add remembers an attempt that has failed now; the oldest exchanges make room.
func (m *Memo) Add(exchange string, p Past) {
	p.At = time.Now()
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
	m.order.MoveToBack(e)
	m.bytes += e.Value.(*memory).add(p)
	m.trimLocked(p.At.Add(-memoAge))
}

// trimLocked drops what is older than since, or too much.
func (m *Memo) trimLocked(since time.Time) {
	for e := m.order.Front(); e != nil; e = m.order.Front() {
		if len(m.byID) <= memoExchanges && m.bytes <= memoBytes && e.Value.(*memory).at().After(since) {
			return
		}
		m.dropLocked(e)
	}
}

// Of is what is remembered of an exchange, oldest first. The slice must not be changed.
func (m *Memo) Of(exchange string) []Past {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trimLocked(time.Now().Add(-memoAge))
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
