package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

const (
	// maxListeners bounds the pages that are open at once.
	maxListeners = 100
	// lookEvery is how soon a page shows what has changed.
	lookEvery = time.Second
	// writeBound ends a page that takes nothing in.
	writeBound = 10 * time.Second
)

// events sends the parts that have changed since the page was made, until the page or the listener is closed.
func (s *site) events(w http.ResponseWriter, r *http.Request) {
	defer s.listeners.Add(-1)
	if s.listeners.Add(1) > maxListeners {
		say(w, http.StatusServiceUnavailable, "too many pages are open")
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	l := listener{w: w, rc: http.NewResponseController(w), shape: r.FormValue("shape"), since: r.FormValue("since")}
	if last := r.Header.Get("Last-Event-ID"); last != "" { // the browser has come back
		l.since = last
	}
	defer func() { _ = l.rc.SetWriteDeadline(time.Time{}) }()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for s.show(&l) {
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		case <-s.Quiet:
			return
		}
	}
}

// show tells l what is new, and says whether it can be told more.
func (s *site) show(l *listener) bool {
	v, err := s.board.look()
	return err == nil && l.tell(v) == nil && v.shape == l.shape
}

// listener is a page that is open.
type listener struct {
	w            http.ResponseWriter
	rc           *http.ResponseController
	shape, since string
}

// tell sends what l has not seen, or that the page must be made anew.
func (l *listener) tell(v *view) error {
	_ = l.rc.SetWriteDeadline(time.Now().Add(writeBound)) // where it is not supported, the connection's own end must do
	if v.shape != l.shape {
		_, _ = fmt.Fprint(l.w, "event: reload\ndata: \n\n")
		return l.rc.Flush()
	}
	parts := v.changed(l.since)
	if len(parts) == 0 {
		return l.rc.Flush()
	}
	data, err := json.Marshal(parts)
	if err != nil {
		return err
	}
	l.since = v.since()
	if _, err := fmt.Fprintf(l.w, "id: %s\ndata: %s\n\n", l.since, data); err != nil {
		return err
	}
	return l.rc.Flush()
}
