package rehearse

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"understudy/pkg/drill"
)

// fake is a stack whose gateway answers everything with one good answer, and whose metrics are given.
type fake struct {
	metrics string
	refuse  string // what the admin listener says to a plan, after a status
	status  int
	begun   int // plans for clients
	stopped int
}

func (f *fake) start(t *testing.T) Options {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, f.metrics) })
	mux.HandleFunc("POST /drills/tokens", func(w http.ResponseWriter, r *http.Request) {
		if f.status != 0 {
			http.Error(w, f.refuse, f.status)
			return
		}
		fmt.Fprint(w, `{"id":"D","token":"T"}`)
	})
	mux.HandleFunc("POST /drills", func(w http.ResponseWriter, _ *http.Request) { f.begun++; fmt.Fprint(w, `{"id":"S"}`) })
	mux.HandleFunc("POST /drills/S/stop", func(http.ResponseWriter, *http.Request) { f.stopped++ })
	mux.HandleFunc("POST /v1/messages", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("content-type", "application/json")
		w.Header().Set("x-llm-rung", "1")
		fmt.Fprint(w, good)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return Options{Config: parse(t, "chains: {chat: {match: [{path: /v1/messages}], targets: [a/x, b/x]}}"), Gateway: server.URL + "/", Admin: server.URL + "/"}
}

func TestADrillThatCannotBeginSaysWhy(t *testing.T) {
	for _, row := range []struct {
		name   string
		status int
		refuse string
		edit   func(*Options)
		want   string
	}{
		{"another version", 404, "not found", nil, "has no drills"},
		{"no token", 401, "this needs the admin token", nil, "allows no drill: 401 this needs the admin token"},
		{"no place to play", 400, "refused: this configuration has no drill.listen", nil, "the running service allows no drill"},
		{"another service", 0, "", nil, "none of this service's"},
		{"nobody", 0, "", func(o *Options) { o.Admin = "http://127.0.0.1:1" }, "cannot be asked"},
		{"no such chain", 0, "", func(o *Options) { o.Chains = []string{"chap"} }, `has no chain named "chap"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := (&fake{status: row.status, refuse: row.refuse}).start(t)
			if row.edit != nil {
				row.edit(&o)
			}
			if report, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("Run() = %+v, %v, want an error with %q", report, err, row.want)
			}
		})
	}
}

func TestTargetsThatAreNotFitAreNotJudged(t *testing.T) {
	for _, row := range []struct{ metrics, want string }{
		{`understudy_breaker_state{target="a/x"} 2`, "the breaker of a/x is open"},
		{`understudy_breaker_share{target="a/x"} 0.25`, "a/x has just come back"},
		{`understudy_cooldown_seconds{target="a/x"} 12`, "left alone for 12 s"},
		{`understudy_drill_active{chain="chat"} 1`, "another drill runs on this chain"},
		{`understudy_breaker_state{target="b/x"} 2`, ""},
		{`understudy_breaker_share{target="a/x"} 1`, ""},
	} {
		o := (&fake{metrics: row.metrics + "\n"}).start(t)
		r := &runner{o: o, stack: &stack{gateway: strings.TrimSuffix(o.Gateway, "/"), admin: strings.TrimSuffix(o.Admin, "/"), calls: http.DefaultClient, asks: http.DefaultClient}}
		if got := r.unfit(t.Context(), policyOf(o.Config, o.Config.Chains[0]), []string{"a/x"}); (got == "") != (row.want == "") || !strings.Contains(got, row.want) {
			t.Errorf("unfit with %s = %q, want %q", row.metrics, got, row.want)
		}
	}
}

func TestAPlanIsStoppedWhateverHappens(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, r *runner, p policy, c call){
		"it ends": func(t *testing.T, r *runner, p policy, c call) {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			r.share(ctx, p, c)
		},
		"somebody panics": func(t *testing.T, r *runner, p policy, c call) {
			defer func() { _ = recover() }()
			r.o.Told = func(*Result) { panic("at the first result") }
			r.share(t.Context(), p, c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			o := f.start(t)
			o.Share, o.For = 1, 200*time.Millisecond
			r := &runner{o: o, stack: &stack{gateway: strings.TrimSuffix(o.Gateway, "/"), admin: strings.TrimSuffix(o.Admin, "/"), calls: http.DefaultClient, asks: http.DefaultClient}}
			ch := o.Config.Chains[0]
			end(t, r, policyOf(o.Config, ch), calls(o.Config, ch)[0])
			if f.begun != 1 || f.stopped != 1 {
				t.Errorf("plans begun, stopped = %d, %d, want 1, 1", f.begun, f.stopped)
			}
		})
	}
}

func TestALateAnswerIsNotWaitedFor(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // until then a server does not notice that its client leaves
		<-r.Context().Done()
	}))
	defer server.Close()
	s := &stack{gateway: server.URL, calls: http.DefaultClient}
	a := s.ask(t.Context(), call{path: "/", api: anthropicAPI}, "", "", time.Millisecond, time.Minute)
	if a.err != errLate || a.status != 0 {
		t.Errorf("ask() = %s, want that it has stopped waiting", a)
	}
}

// A reset may overtake what was sent before it: then nothing was let through, and the fallback serves.
func TestAResetThatOvertakesTheContentIsNotJudged(t *testing.T) {
	p := chainOf(t, two)
	f, _ := drill.Named("cut")
	s := p.faultScene(f, call{api: anthropicAPI, stream: true})
	o := (&fake{}).start(t)
	r := &runner{o: o, stack: &stack{admin: strings.TrimSuffix(o.Admin, "/"), asks: http.DefaultClient}}
	for _, row := range []struct {
		headers string
		want    Outcome
	}{
		{"target=b/x rung=1 attempts=2 fallback-reason=transport", Untold},
		{"target=b/x rung=1 attempts=2 fallback-reason=overloaded", Broken},
		{"target=a/x rung=0 attempts=1", Broken},
	} {
		a := got(anthropicAPI, false, 200, "application/json", good, nil)
		for pair := range strings.FieldsSeq(row.headers) {
			name, value, _ := strings.Cut(pair, "=")
			a.header.Set("x-llm-"+name, value)
		}
		result := Result{}
		if r.judge(t.Context(), p, &s, a, &result); result.Outcome != row.want {
			t.Errorf("judge(%s) = %s (%s), want %s", a, result.Outcome, result.Why, row.want)
		}
	}
}
