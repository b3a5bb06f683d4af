package main

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"
)

const (
	// logWait is how long a line waits for others that can be written with it, and what a process that is killed may not
	// have written.
	logWait = 100 * time.Millisecond
	// logHeld is how many bytes wait at most.
	logHeld = 64 << 10
)

// journal is the log of a service. A line for each exchange that went well is written with others; what went wrong is
// written at once, after all that came before.
type journal struct {
	slog.Handler
	lines *waiting
}

// newJournal writes to out; end is called when the process is about to.
func newJournal(out io.Writer) (_ *slog.Logger, end func()) {
	l := &waiting{out: out}
	return slog.New(&journal{slog.NewJSONHandler(l, nil), l}), l.end
}

func (j *journal) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		defer j.lines.flush()
	}
	return j.Handler.Handle(ctx, r)
}

func (j *journal) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &journal{j.Handler.WithAttrs(attrs), j.lines}
}

func (j *journal) WithGroup(name string) slog.Handler {
	return &journal{j.Handler.WithGroup(name), j.lines}
}

// waiting are lines that are not written yet.
//
// Concurrency: safe for all.
type waiting struct {
	out io.Writer

	mu    sync.Mutex // guards the fields below, and writing
	held  []byte
	timer *time.Timer // nil: no line has waited yet
	ended bool        // nothing waits any more
}

func (l *waiting) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := len(l.held) == 0
	l.held = append(l.held, line...)
	switch {
	case len(l.held) >= logHeld, l.ended:
		l.writeLocked()
	case first && l.timer == nil:
		l.timer = time.AfterFunc(logWait, l.flush)
	case first:
		l.timer.Reset(logWait)
	}
	return len(line), nil
}

// end writes what is held, and from now on at once.
func (l *waiting) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.writeLocked()
}

func (l *waiting) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writeLocked()
}

// writeLocked writes what is held. Caller must hold mu.
func (l *waiting) writeLocked() {
	if len(l.held) == 0 {
		return
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	_, _ = l.out.Write(l.held) // whom could be told?
	l.held = l.held[:0]
}
