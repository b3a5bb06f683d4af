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

	"understudy/pkg/config"
	"understudy/pkg/drill"
)

// fake is a stack whose gateway answers everything with one good answer, and whose metrics are given.
type fake struct {
	metrics string
	refuse  string // what the admin listener says to a plan, after a status
	status  int
	begun   int // plans for clients
	stopped int

	token func() // is called when a token is asked for; nil: nothing
	begin func() // when a plan begins
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
		if f.token != nil {
			f.token()
		}
		fmt.Fprint(w, `{"id":"D","token":"T"}`)
	})
	mux.HandleFunc("POST /drills", func(w http.ResponseWriter, _ *http.Request) {
		f.begun++
		if f.begin != nil {
			f.begin()
		}
		fmt.Fprint(w, `{"id":"S"}`)
	})
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
	for name, end := range map[string]func(t *testing.T, f *fake, r *runner, p policy, c call){
		"it is interrupted as it begins": func(t *testing.T, f *fake, r *runner, p policy, c call) {
			ctx, cancel := context.WithCancel(t.Context())
			f.begin = cancel
			r.share(ctx, p, c)
		},
		"it ends": func(t *testing.T, _ *fake, r *runner, p policy, c call) {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			r.share(ctx, p, c)
		},
		"somebody panics": func(t *testing.T, _ *fake, r *runner, p policy, c call) {
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
			end(t, f, r, policyOf(o.Config, ch), calls(o.Config, ch)[0])
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

// runnerOf rehearses at a fake.
func runnerOf(o Options) *runner {
	at := strings.TrimSuffix(o.Admin, "/")
	return &runner{o: o, stack: &stack{gateway: at, admin: at, header: o.Header, calls: http.DefaultClient, asks: http.DefaultClient}}
}

func TestNoPromiseIsBrokenByAnInterruption(t *testing.T) {
	for name, play := range map[string]func(r *runner, ctx context.Context, p policy, c call) Result{
		"in the middle of flapping": func(r *runner, ctx context.Context, p policy, c call) Result { return r.flapping(ctx, p, c) },
		"before a request": func(r *runner, ctx context.Context, p policy, c call) Result {
			return r.play(ctx, p, &scene{call: c, promise: p.serves(0, "", false)})
		},
		"before a request is queued": func(r *runner, ctx context.Context, p policy, c call) Result {
			return r.twoSteps(ctx, p, c, "queue", p.at("queue"), r.queue)
		},
		"before an answer is cached": func(r *runner, ctx context.Context, p policy, c call) Result {
			return r.twoSteps(ctx, p, c, "cache", p.at("cache"), r.cache)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			o := (&fake{token: cancel}).start(t)
			ch := o.Config.Chains[0]
			if result := play(runnerOf(o), ctx, policyOf(o.Config, ch), calls(o.Config, ch)[0]); result.Outcome != Untold || result.Why != interrupted {
				t.Errorf("result = %s, %q, want %s, %q", result.Outcome, result.Why, Untold, interrupted)
			}
		})
	}
}

func TestADrillWhoseServiceDiesHasFailed(t *testing.T) {
	f := &fake{}
	o := f.start(t)
	r := runnerOf(o)
	ch := o.Config.Chains[0]
	p, c := policyOf(o.Config, ch), calls(o.Config, ch)[0]
	r.stack.admin = "http://127.0.0.1:1"
	if result := r.play(t.Context(), p, &scene{call: c, promise: p.serves(0, "", false)}); result.Outcome != Untold {
		t.Errorf("the request came to %s, want %s: nobody said whether its targets are fit", result.Outcome, Untold)
	}
	r.accountable(t.Context())
	if n := len(r.results); n != 1 || r.results[0].Outcome != Broken || !strings.Contains(r.results[0].Why, "does the service still run?") {
		t.Errorf("results = %+v, want one that tells of the service", r.results)
	}
}

func TestAQueueThatARateLimitLeadsToNeedsATenant(t *testing.T) {
	o := (&fake{}).start(t)
	o.Config = parse(t, "tenant: {header: x-team, trusted_header: true}\nchains: {chat: {match: [{path: /v1/messages}], targets: [a/x], on: {rate_limited: queue}, degrade: [queue]}}")
	p := policyOf(o.Config, o.Config.Chains[0])
	f, _ := drill.Named("rate_limit")
	s := p.faultScene(f, calls(o.Config, p.Chain)[0])
	if result := runnerOf(o).play(t.Context(), p, &s); result.Outcome != Untold || !strings.Contains(result.Why, "requests of no tenant") {
		t.Errorf("result = %s, %q, want %s for want of a tenant", result.Outcome, result.Why, Untold)
	}
}

func TestARequestHasTheHostThatItIsTold(t *testing.T) {
	var host string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { host = r.Host }))
	defer server.Close()
	s := &stack{gateway: server.URL, calls: http.DefaultClient, header: http.Header{"Host": {"llm.example.com"}}}
	s.ask(t.Context(), call{path: "/", api: anthropicAPI}, "", "", time.Minute, time.Minute)
	if host != "llm.example.com" {
		t.Errorf("Host = %q, want that of --header", host)
	}
}

func TestAReportHasNoPassword(t *testing.T) {
	o := (&fake{}).start(t)
	if got := redacted("http://ops:hunter2@gateway:10000"); strings.Contains(got, "hunter2") || !strings.Contains(got, "gateway:10000") {
		t.Errorf("redacted() = %q, want the URL without its password", got)
	}
	if got := redacted(o.Gateway); got != o.Gateway {
		t.Errorf("redacted(%q) = %q, want it as it is", o.Gateway, got)
	}
}

func TestAnAbsentSecretOfAWebhookMakesAnotherHash(t *testing.T) {
	cfg, err := config.Parse("f.yaml", []byte(`
providers: {a: {api: anthropic, endpoint: "https://a.example", auth: {none: true}}}
targets: {a/x: {provider: a, model: x}}
chains: {chat: {match: [{path: /v1/messages}], targets: [a/x], degrade: [queue], queue: {notify: {webhook: "https://h.example.com", secret: "env:NO_SUCH_HOOK"}}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	if err := absentSecret(cfg); err == nil || !strings.Contains(err.Error(), "NO_SUCH_HOOK") {
		t.Errorf("absentSecret() = %v, want the webhook's", err)
	}
}

func TestAnAnswerThatIsNotTheServicesIsNotBlamedOnAProvider(t *testing.T) {
	p := chainOf(t, two)
	s := p.rungScenes(call{api: anthropicAPI})[0]
	p.fill(&s, call{api: anthropicAPI})
	for _, row := range []struct {
		status  int
		service bool // has answered
		want    string
	}{
		{401, true, "check providers.a.auth"},
		{401, false, "does the gateway need a credential (--header)"},
		{308, false, "does the gateway need a credential (--header), or is it another?"},
		{404, true, "check targets.a/x.model"},
		{404, false, "nobody serves this path"},
	} {
		a := got(anthropicAPI, false, row.status, "text/html", "<html>", nil)
		if row.service {
			a.header.Set("x-llm-attempts", "1")
		}
		if hint := s.hint(a); !strings.Contains(hint, row.want) {
			t.Errorf("hint(%d, of the service: %t) = %q, want %q", row.status, row.service, hint, row.want)
		}
	}
}

func TestALongAnswerIsNotQuotedWhole(t *testing.T) {
	if got := quoted(strings.Repeat("a", 3<<20)); len(got) > 3000 || !strings.HasSuffix(got, "… (3145728 bytes)") {
		t.Errorf("quoted(3 MiB) has %d bytes and ends in %q, want the beginning and how much it is", len(got), got[max(0, len(got)-30):])
	}
	if got, want := quoted("an owner's \x1b words"), `"an owner's \x1b words"`; got != want {
		t.Errorf("quoted() = %s, want %s", got, want)
	}
}
