package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// rehearsal notes what is asked of it, and answers err.
type rehearsal struct {
	asked []string
	err   error
}

func (r *rehearsal) note(what string) ([]byte, error) {
	r.asked = append(r.asked, what)
	return []byte(`{"id":"D"}`), r.err
}

func (r *rehearsal) Begin(_ context.Context, plan []byte) ([]byte, error) {
	return r.note("begin " + string(plan))
}
func (r *rehearsal) Token(_ context.Context, plan []byte) ([]byte, error) {
	return r.note("token " + string(plan))
}
func (r *rehearsal) Stop(_ context.Context, id string) error {
	_, err := r.note("stop " + id)
	return err
}

func TestDrillsAreBegunMarkedAndStopped(t *testing.T) {
	refused := fmt.Errorf("%w: chain: no chain is named \"x\"", ErrRefused)
	for _, row := range []struct {
		name, method, path, body string
		token                    string // of the listener; callers show "t"
		err                      error
		status                   int
		says, asked              string
	}{
		{"a drill begins", "POST", "/drills", "{}", "", nil, 201, `{"id":"D"}`, "begin {}"},
		{"requests are marked", "POST", "/drills/tokens", "{}", "", nil, 201, `{"id":"D"}`, "token {}"},
		{"a drill is stopped", "POST", "/drills/D/stop", "", "", nil, 200, "ok", "stop D"},
		{"one that nobody knows", "POST", "/drills/E/stop", "", "", ErrUnknown, 404, ErrUnknown.Error(), "stop E"},
		{"a plan that cannot be", "POST", "/drills", "{}", "", refused, 400, `no chain is named "x"`, "begin {}"},
		{"a store that does not answer", "POST", "/drills", "{}", "", errors.New("no store"), 503, "this is not certainly done: no store", "begin {}"},
		{"a plan without end", "POST", "/drills", strings.Repeat("x", maxPlan+1), "", nil, 413, "at most 64 KiB", ""},
		{"somebody only looks", "GET", "/drills", "", "", nil, 405, "", ""},
		{"the token is right", "POST", "/drills", "{}", "t", nil, 201, "", "begin {}"},
		{"the token to begin is wrong", "POST", "/drills", "{}", "u", nil, 401, "", ""},
		{"the token to mark is wrong", "POST", "/drills/tokens", "{}", "u", nil, 401, "", ""},
		{"the token to stop is wrong", "POST", "/drills/D/stop", "", "u", nil, 401, "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			drills := &rehearsal{err: row.err}
			h := Handler(Options{
				Metrics: prometheus.NewRegistry(), Ready: func() error { return nil }, Local: true, Drills: drills,
				Token: func() string { return row.token },
			})
			r := httptest.NewRequestWithContext(t.Context(), row.method, "http://127.0.0.1:9003"+row.path, strings.NewReader(row.body))
			bearer("t")(r)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != row.status || !strings.Contains(w.Body.String(), row.says) {
				t.Errorf("%s %s = %d %s, want %d and %q", row.method, row.path, w.Code, w.Body, row.status, row.says)
			}
			if got := strings.Join(drills.asked, "; "); got != row.asked {
				t.Errorf("%s %s asked for %q, want %q", row.method, row.path, got, row.asked)
			}
			if w.Code == http.StatusCreated && w.Header().Get("Cache-Control") != "no-store" {
				t.Error("an answer with a token may be kept, want no-store")
			}
		})
	}
}
