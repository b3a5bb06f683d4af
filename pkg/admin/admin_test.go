package admin

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestWhoMayChangeThings(t *testing.T) {
	rows := []struct {
		name         string
		token        string
		local        bool
		method, path string
		edit         func(*http.Request)
		want         int
	}{
		{"a local operator is turned away", "", true, "POST", "/chains/chat/off", nil, 200},
		{"a chain cannot be switched on again", "", true, "POST", "/chains/chat/on", nil, 200},
		{"an unknown chain is switched off", "", true, "POST", "/chains/nosuch/off", nil, 404},
		{"a GET changes things", "", true, "GET", "/chains/chat/off", nil, 405},
		{"a stranger switches a chain off", "", false, "POST", "/chains/chat/off", nil, 403},
		{"a stranger reads results", "", false, "GET", "/jobs/j1", nil, 403},
		{"a local operator cannot read a job", "", true, "GET", "/jobs/j1", nil, 200},
		{"a web page switches a chain off", "", true, "POST", "/chains/chat/off", func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, 403},
		{"a name that was made to lead here gets in", "", true, "GET", "/jobs/j1", func(r *http.Request) { r.Host = "evil.example:9003" }, 403},
		{"the token is not asked for on this machine", "t", true, "POST", "/chains/chat/off", nil, 401},
		{"a wrong token is taken", "t", false, "POST", "/chains/chat/off", bearer("u"), 401},
		{"half a token is taken", "token", false, "POST", "/chains/chat/off", bearer("tok"), 401},
		{"the token is not taken", "t", false, "POST", "/chains/chat/off", bearer("t"), 200},
		{"a local operator cannot force a breaker", "", true, "POST", "/breakers/open/a/b", nil, 200},
		{"a stranger forces a breaker", "", false, "POST", "/breakers/closed/a/b", nil, 403},
		{"the token does not release a breaker", "t", false, "POST", "/breakers/release/a/b", bearer("t"), 200},
		{"a breaker is forced half-open", "", true, "POST", "/breakers/half-open/a/b", nil, 404},
		{"a stranger starts a drill", "", false, "POST", "/drills", nil, 403},
		{"metrics need a token", "t", false, "GET", "/metrics", nil, 200},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			switched := ""
			h := Handler(Options{
				Metrics: prometheus.NewRegistry(), Ready: func() error { return nil }, Local: row.local,
				Token:  func() string { return row.token },
				Job:    func(_ context.Context, id string) (int, []byte) { return 200, []byte(`{"id":"` + id + `"}`) },
				Status: func() Status { return Status{} },
				Force: func(_ context.Context, target, _ string) error {
					if target != "a/b" {
						return ErrUnknown
					}
					return nil
				},
				Drills: drillsFunc(func(...any) error { return nil }),
				Switch: func(_ context.Context, chain string, off bool) error {
					if chain != "chat" {
						return ErrUnknown
					}
					switched = map[bool]string{true: "off", false: "on"}[off]
					return nil
				},
			})
			r := httptest.NewRequestWithContext(t.Context(), row.method, "http://127.0.0.1:9003"+row.path, nil)
			if row.edit != nil {
				row.edit(r)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			body, _ := io.ReadAll(w.Body)
			if w.Code != row.want {
				t.Errorf("%s %s = %d %s, want %d", row.method, row.path, w.Code, body, row.want)
			}
			if want := row.want == 200 && strings.HasPrefix(row.path, "/chains/"); (switched != "") != want || want && !strings.HasSuffix(row.path, switched) {
				t.Errorf("%s %s switched %q", row.method, row.path, switched)
			}
		})
	}
}

func bearer(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}
