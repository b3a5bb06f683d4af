package recovery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/classify"
	"understudy/pkg/config"
	"understudy/pkg/token"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const probeYAML = `
recovery: {rate: %s, jitter: 0, probe_tokens: %d}
providers:
  a: {api: anthropic, endpoint: "https://a.example.com", auth: {from: client}}
  o: {api: openai, endpoint: "https://o.example.com", auth: {from: client}}
targets:
  a/m: {provider: a, model: m, breaker: {failures: 1, half_open: probe}, probe: {model: small}}
  a/n: {provider: a, model: n, breaker: {failures: 1, half_open: probe}}
  o/chat: {provider: o, model: c, breaker: {failures: 1, half_open: probe}}
  o/responses: {provider: o, model: r, breaker: {failures: 1, half_open: probe}}
chains:
  a: {match: [{path: /team/v1/messages}], targets: [a/m, {target: a/n, validated: true}]}
  c: {match: [{path: /v1/chat/completions}], targets: [o/chat]}
  r: {match: [{path: /v1/responses}], targets: [o/responses]}
`

// lab is a Prober with real HTTP to a gateway in the same bubble, over pipes.
type lab struct {
	*Prober
	t        *testing.T
	breakers map[string]*breaker.Breaker
	dial     func(context.Context) error // of the gateway; nil: it lets everybody connect
	log      bytes.Buffer

	mu     sync.Mutex
	say    http.HandlerFunc
	asked  []asked
	counts []string
}

// asked is a probe as the gateway got it.
type asked struct {
	at             time.Time
	path, internal string
	header         http.Header
	body           map[string]any
}

// pipes is a listener without sockets.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// inLab runs test in a bubble, with targets whose open periods are over.
func inLab(t *testing.T, rate string, tokens int, test func(l *lab)) {
	t.Helper()
	cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, probeYAML, rate, tokens))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		l := &lab{t: t, breakers: map[string]*breaker.Breaker{}}
		lis := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		server := &http.Server{Handler: http.HandlerFunc(l.serve)}
		go func() { _ = server.Serve(lis) }()
		transport := &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if l.dial != nil {
				return nil, l.dial(ctx)
			}
			return lis.dial(ctx, network, addr)
		}}
		l.Prober = &Prober{
			Config:  func() *config.Config { return cfg },
			Breaker: func(target string) *breaker.Breaker { return l.breakers[target] },
			Key:     func() []byte { return key },
			Client: &http.Client{Transport: transport,
				CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
			Count: func(target string, r Result) {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.counts = append(l.counts, target+" "+string(r))
			},
			Log: slog.New(slog.NewTextHandler(&l.log, nil)),
		}
		for name := range cfg.Targets {
			l.breakers[name] = breaker.New(name, breaker.Settings{Failures: 1, OpenFor: time.Minute, MaxOpenFor: 10 * time.Minute, Probe: true}, func(breaker.Transition) {})
			l.open(name)
		}
		after(time.Minute)
		test(l)
		transport.CloseIdleConnections()
		_ = server.Close()
		synctest.Wait()
	})
}

func (l *lab) open(name string) {
	permit, err := l.breakers[name].Allow()
	if err != nil {
		l.t.Fatal(err)
	}
	permit.Done(breaker.Failure)
}

func (l *lab) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	_, _ = r.Context(), r.Body.Close()
	a := asked{at: time.Now(), path: r.URL.Path, internal: r.Header.Get("x-llm-internal"), header: r.Header}
	_ = json.Unmarshal(body, &a.body)
	l.mu.Lock()
	l.asked = append(l.asked, a)
	say := l.say
	l.mu.Unlock()
	say(w, r)
}

// probed makes one probe of a target to which the gateway answers so, and says what came of it.
func (l *lab) probed(target string, say http.HandlerFunc) string {
	l.mu.Lock()
	l.say = say
	l.mu.Unlock()
	before := len(l.counts)
	l.Probe(l.t.Context(), target)
	return fmt.Sprint(l.counts[before:], " ", l.breakers[target].State())
}

// marked is an answer that came from the provider.
func marked(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(token.Mark, "1")
		w.Header().Set("content-type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

const (
	fine     = `{"type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"p"}],"stop_reason":"max_tokens","usage":{"input_tokens":8,"output_tokens":1}}`
	declined = `{"type":"message","role":"assistant","model":"m","content":[],"stop_reason":"refusal","usage":{"input_tokens":8,"output_tokens":1}}`
)

func problem(kind, message string) string {
	return fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":%q}}`, kind, message)
}

// stalls answers with headers and half a body, and goes on only when the client has gone.
func stalls(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(token.Mark, "1")
	w.WriteHeader(http.StatusOK)
	_, _ = io.WriteString(w, `{"type":"message"`)
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

func silent(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func breaksOff(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set(token.Mark, "1")
	w.WriteHeader(http.StatusOK)
	_, _ = io.WriteString(w, `{"type":"message"`)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func hangsUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func unmarked(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestWhatAProbeShows(t *testing.T) {
	alive, dead, unknown := "[a/m alive] closed", "[a/m dead] open", "[a/m unknown] half-open"
	rows := []struct {
		name string
		say  http.HandlerFunc
		want string
	}{
		{"an answer", marked(200, fine), alive},
		{"a 400 about max_tokens", marked(400, problem("invalid_request_error", "max_tokens: must be greater than 1")), alive},
		{"a model that is not there", marked(404, problem("not_found_error", "model: small")), alive},
		{"a key that is refused", marked(401, problem("authentication_error", "invalid x-api-key")), alive},
		{"an account without money", marked(400, problem("invalid_request_error", "Your credit balance is too low to access the Anthropic API.")), alive},
		{"a refusal", marked(200, declined), alive},
		{"an answer that goes on and on", marked(200, `{"type":"message","content":[{"type":"text","text":"`+strings.Repeat("x", 2*maxAnswer)), alive},
		{"an overload", marked(529, problem("overloaded_error", "Overloaded")), dead},
		{"an overload behind a 200", marked(200, problem("overloaded_error", "Overloaded")), dead},
		{"a server error", marked(500, problem("api_error", "Internal server error")), dead},
		{"a page of a proxy in between", marked(502, "<html>Bad gateway</html>"), dead},
		{"a redirect", marked(307, ""), dead},
		{"something else than the dialect", marked(200, "hello"), dead},
		{"half an answer", marked(200, fine[:60]), dead},
		{"an answer that breaks off", breaksOff, dead},
		{"an answer that stalls", stalls, dead},
		{"silence", silent, dead},
		{"the account's rate limit", marked(429, problem("rate_limit_error", "slow down")), unknown},
		{"a gateway that refuses our key", unmarked(403, problem("forbidden", "x-llm-internal is not for clients")), unknown},
		{"an answer that came from somewhere else", unmarked(200, fine), unknown},
		{"a gateway without its service", unmarked(503, `{"type":"error"}`), unknown},
		{"a gateway that hangs up", hangsUp, unknown},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			inLab(t, "5/s", 100_000, func(l *lab) {
				if got := l.probed("a/m", r.say); got != r.want {
					t.Fatalf("probe = %s, want %s", got, r.want)
				}
				if r.want != unknown {
					return
				}
				after(10 * time.Minute) // a cooldown may have to pass
				if got := l.probed("a/m", marked(200, fine)); got != alive {
					t.Errorf("the probe after it = %s, want %s: the permit must not be lost", got, alive)
				}
			})
		})
	}
}

func TestAGatewayThatCannotBeReachedSaysNothing(t *testing.T) {
	for name, dial := range map[string]func(context.Context) error{
		"as it refuses": func(context.Context) error { return &net.OpError{Op: "dial", Err: errors.New("connection refused")} },
		"as it hangs":   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, "5/s", 100_000, func(l *lab) {
				l.dial = dial
				if got := l.probed("a/m", nil); got != "[a/m unknown] half-open" {
					t.Errorf("probe = %s, want unknown and half-open", got)
				}
			})
		})
	}
}

func TestAProbeThatIsEndedSaysNothing(t *testing.T) {
	for name, say := range map[string]http.HandlerFunc{"before the answer": silent, "in the answer": stalls} {
		t.Run(name, func(t *testing.T) {
			inLab(t, "5/s", 100_000, func(l *lab) {
				ctx, cancel := context.WithTimeout(l.t.Context(), 3*time.Second)
				defer cancel()
				l.say = say
				l.Probe(ctx, "a/m")
				if got := fmt.Sprint(l.counts, " ", l.breakers["a/m"].State()); got != "[a/m unknown] half-open" {
					t.Errorf("probe = %s, want unknown and half-open", got)
				}
			})
		})
	}
}

func TestWhatIsNotHalfOpenIsNotProbed(t *testing.T) {
	inLab(t, "5/s", 100_000, func(l *lab) {
		l.probed("a/m", marked(200, fine))
		l.probed("a/n", marked(529, problem("overloaded_error", "")))
		for _, name := range []string{"a/m", "a/n", "gone"} { // closed, open, not there
			l.Probe(l.t.Context(), name)
		}
		if len(l.asked) != 2 || len(l.counts) != 2 {
			t.Errorf("probes made and counted = %d and %d, want the two of half-open targets", len(l.asked), len(l.counts))
		}
	})
}

func TestTwoProbesAtOnceAreOne(t *testing.T) {
	inLab(t, "100/s", 100_000, func(l *lab) {
		l.say = func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			marked(200, fine)(w, r)
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { l.Probe(l.t.Context(), "a/m") })
		}
		wg.Wait()
		if len(l.asked) != 1 {
			t.Errorf("probes = %d, want 1", len(l.asked))
		}
	})
}

func TestAProbeIsTheCheapestCallOfItsDialect(t *testing.T) {
	rows := []struct{ target, path, want string }{
		{"a/m", "/team/v1/messages", `{"max_tokens":1,"messages":[{"content":"ping","role":"user"}],"model":"small","thinking":{"type":"disabled"}}`},
		{"o/chat", "/v1/chat/completions", `{"max_completion_tokens":1,"messages":[{"content":"ping","role":"user"}],"model":"c","store":false}`},
		{"o/responses", "/v1/responses", `{"input":"ping","max_output_tokens":16,"model":"r","store":false}`},
	}
	for _, r := range rows {
		t.Run(r.target, func(t *testing.T) {
			inLab(t, "5/s", 100_000, func(l *lab) {
				l.probed(r.target, marked(529, ""))
				got := l.asked[0]
				if body, _ := json.Marshal(got.body); string(body) != r.want || got.path != r.path {
					t.Errorf("probe = %s %s, want %s %s", got.path, body, r.path, r.want)
				}
				purpose, name, err := token.Check(key, got.internal, time.Now())
				if err != nil || purpose != token.Probe || name != r.target {
					t.Errorf("x-llm-internal allows %q for %q, %v; want a probe of %s", purpose, name, err, r.target)
				}
				for _, h := range []string{"Authorization", "X-Api-Key", "Cookie"} {
					if got.header.Get(h) != "" {
						t.Errorf("%s = %q, want none: the hop adds the credential", h, got.header.Get(h))
					}
				}
			})
		})
	}
}

func TestADeadProbeSaysWhy(t *testing.T) {
	inLab(t, "5/s", 100_000, func(l *lab) {
		l.probed("a/m", silent)
		if b := l.breakers["a/m"]; b.Last() != classify.Timeout.String() || b.Truth().Why != classify.Timeout.String() {
			t.Errorf("Last() = %q and the truth's reason %q, want timeout", b.Last(), b.Truth().Why)
		}
	})
}

func TestARateLimitKeepsTheNextProbeBack(t *testing.T) {
	rows := []struct {
		name, retryAfter string
		want             time.Duration
	}{
		{"for as long as it says", "40", 40 * time.Second},
		{"for a while when it does not say", "", defaultPause},
		{"but not for longer than an open period", "86400", 10 * time.Minute},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			inLab(t, "5/s", 100_000, func(l *lab) {
				l.probed("a/m", func(w http.ResponseWriter, q *http.Request) {
					if r.retryAfter != "" {
						w.Header().Set("retry-after", r.retryAfter)
					}
					marked(429, problem("rate_limit_error", ""))(w, q)
				})
				if got := time.Until(l.breakers["a/m"].Cooling()); got != r.want {
					t.Errorf("the target cools for %s, want %s", got, r.want)
				}
			})
		})
	}
}

func TestProbesKeepToTheirRate(t *testing.T) {
	inLab(t, "30/m", 100_000, func(l *lab) {
		l.say = marked(529, "")
		var wg sync.WaitGroup
		for _, name := range []string{"a/m", "a/n", "o/chat", "o/responses"} {
			wg.Go(func() { l.Probe(l.t.Context(), name) })
		}
		wg.Wait()
		for i := 1; i < len(l.asked); i++ {
			if d := l.asked[i].at.Sub(l.asked[i-1].at); d < 2*time.Second {
				t.Errorf("probe %d comes %s after the one before, want at least 2s", i, d)
			}
		}
		if len(l.asked) != 4 {
			t.Errorf("probes = %d, want 4", len(l.asked))
		}
	})
}

func TestAProbeDoesNotWaitLongForTheRate(t *testing.T) {
	inLab(t, "1/m", 100_000, func(l *lab) {
		l.probed("a/m", marked(529, ""))
		began := time.Now()
		if got := l.probed("a/n", nil); got != "[] half-open" || time.Since(began) > queueMost {
			t.Errorf("the second probe of a minute = %s after %s, want none within %s", got, time.Since(began), queueMost)
		}
		after(time.Minute)
		if got := l.probed("a/n", marked(200, fine)); got != "[a/n alive] closed" {
			t.Errorf("the probe of the next minute = %s, want alive", got)
		}
	})
}

func TestTheHoursTokensBoundProbing(t *testing.T) {
	rows := []struct {
		name string
		say  http.HandlerFunc
		most int // probes that 30 tokens pay
	}{
		{"by what is reported", marked(200, strings.Replace(fine, `"input_tokens":8`, `"input_tokens":14`, 1)), 2},
		{"by a guess where nothing is", marked(200, `{"type":"message","content":[]}`), 2},
		{"by a guess where the provider keeps silent", silent, 2},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			inLab(t, "5/s", 30, func(l *lab) {
				again := func() {
					if l.breakers["a/m"].State() == breaker.Closed {
						l.open("a/m")
					}
					after(10 * time.Minute)
				}
				for range 4 {
					l.probed("a/m", r.say)
					again()
				}
				if len(l.asked) != r.most || len(l.counts) != r.most {
					t.Errorf("probes made and counted in an hour of 30 tokens = %d and %d, want %d", len(l.asked), len(l.counts), r.most)
				}
				if n := strings.Count(l.log.String(), "used up"); n != 1 {
					t.Errorf("lines that say that they are used up = %d, want 1", n)
				}
				after(time.Hour)
				for range 4 {
					l.probed("a/m", r.say)
					again()
				}
				if n := strings.Count(l.log.String(), "used up"); len(l.asked) != 2*r.most || n != 2 {
					t.Errorf("probes in two hours = %d, with %d lines; want %d with 2", len(l.asked), n, 2*r.most)
				}
			})
		})
	}
}

func TestWithoutAKeyNothingIsSent(t *testing.T) {
	inLab(t, "5/s", 100_000, func(l *lab) {
		l.Key = func() []byte { return nil }
		if got := l.probed("a/m", nil); got != "[a/m unknown] half-open" || len(l.asked) != 0 {
			t.Errorf("probe = %s after %d requests, want unknown after none", got, len(l.asked))
		}
	})
}
