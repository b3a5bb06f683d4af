package admin

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// fresh is how long one look serves everybody who asks.
const fresh = 500 * time.Millisecond

// board is the page as it was last seen, and which of its parts changed when.
//
// Ownership: a Handler has one. Concurrency: any goroutine may look; whoever finds the last look too old takes the next
// one, and the others wait for it.
type board struct {
	gather func() Status
	epoch  string // tells its numbers from another process's

	mu   sync.Mutex // guards last
	last *view
}

// view is one look. Nobody changes it.
type view struct {
	at     time.Time
	epoch  string
	seq    uint64
	status Status
	parts  []part
	shape  string // changes when the page has other parts, or what they mean has changed
}

func newBoard(gather func() Status) *board { return &board{gather: gather, epoch: rand.Text()[:8]} }

// look is what there is to see now.
func (b *board) look() (*view, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last != nil && time.Since(b.last.at) < fresh {
		return b.last, nil
	}
	next := &view{epoch: b.epoch, status: b.gather()}
	parts, err := next.status.parts()
	if err != nil {
		return nil, err
	}
	next.at, next.parts = time.Now(), parts
	next.shape = next.status.shape()
	next.follow(b.last)
	b.last = next
	return next, nil
}

// follow numbers the parts that differ from those of the look before, nil for none.
func (v *view) follow(before *view) {
	old := map[string]part{}
	if before != nil {
		v.seq = before.seq
		for _, p := range before.parts {
			old[p.ID] = p
		}
	}
	v.seq++
	for i := range v.parts {
		p := &v.parts[i]
		if was, ok := old[p.ID]; ok && was.HTML == p.HTML {
			p.seq = was.seq
		} else {
			p.seq = v.seq
		}
	}
}

// since names this look to whoever comes back for what has changed after it.
func (v *view) since() string { return v.epoch + "." + strconv.FormatUint(v.seq, 10) }

// changed is what has changed after the look that since names, or all where it names none of this process.
func (v *view) changed(since string) []part {
	epoch, n, _ := strings.Cut(since, ".")
	seq, err := strconv.ParseUint(n, 10, 64)
	if err != nil || epoch != v.epoch {
		seq = 0
	}
	var parts []part
	for _, p := range v.parts {
		if p.seq > seq {
			parts = append(parts, p)
		}
	}
	return parts
}

// shape is what two looks must have in common for the parts of one to fit into the other's page.
func (s *Status) shape() string {
	h := sha256.New()
	for _, c := range s.Chains {
		fmt.Fprintf(h, "%q,", c.Name)
	}
	for _, t := range s.Targets {
		fmt.Fprintf(h, "%q;", t.Name)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
