package store

import (
	"log/slog"
	"sync"
	"time"
)

const (
	// noticesApart is how often a lasting state is said again.
	noticesApart = time.Minute
	// noticesMost is how many lines of changes and notes a minute may have: a flapping store must not fill a disk.
	noticesMost = 6
)

// notices logs at a bounded rate. What is left out is counted, and the next line says how many.
type notices struct {
	log *slog.Logger

	mu       sync.Mutex // mu guards the fields below.
	began    time.Time  // of the current minute
	said     int        // lines in it
	last     time.Time  // of the last line about the store's state
	silenced int
}

// change says that the store's state changed.
func (n *notices) change(level slog.Level, msg string, args ...any) {
	n.mu.Lock()
	n.last = time.Now()
	n.mu.Unlock()
	n.say(level, msg, args...)
}

// remind says a lasting state again when a minute has passed.
func (n *notices) remind(level slog.Level, msg string, args ...any) {
	n.mu.Lock()
	due := time.Since(n.last) >= noticesApart
	if due {
		n.last = time.Now()
	}
	n.mu.Unlock()
	if due {
		n.say(level, msg, args...)
	}
}

// note passes on what the NATS client or server says.
func (n *notices) note(msg string, args ...any) { n.say(slog.LevelWarn, msg, args...) }

func (n *notices) say(level slog.Level, msg string, args ...any) {
	ok, silenced := n.admit()
	if !ok {
		return
	}
	if silenced > 0 {
		args = append(args, "left_out", silenced)
	}
	if level == slog.LevelInfo {
		n.log.Info(msg, args...)
		return
	}
	n.log.Warn(msg, args...)
}

// admit says whether a line may go out now, and how many were left out before it.
func (n *notices) admit() (ok bool, silenced int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now := time.Now(); now.Sub(n.began) >= noticesApart {
		n.began, n.said = now, 0
	}
	if n.said >= noticesMost {
		n.silenced++
		return false, 0
	}
	n.said++
	silenced, n.silenced = n.silenced, 0
	return true, silenced
}
