package recovery

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"understudy/pkg/config"
	"understudy/pkg/degrade/queue"
	"understudy/pkg/degrade/queue/queuetest"
	"understudy/pkg/token"
)

// tap is a Drainer of the chains a and b, with real HTTP to a gateway in the same bubble, over pipes.
type tap struct {
	*Drainer
	t   *testing.T
	mem *queuetest.Memory

	mu     sync.Mutex // mu guards the fields below.
	cfg    config.Config
	share  float64
	live   float64
	say    http.HandlerFunc
	ran    []ran
	counts map[string]int
	log    strings.Builder // what the Drainer logs
}

// ran is a job's run as the gateway got it.
type ran struct {
	at             time.Time
	id, path, body string
	header         http.Header
}

func inTap(t *testing.T, test func(p *tap)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		gateway := &url.URL{Scheme: "http", Host: "gateway"}
		p := &tap{t: t, mem: queuetest.New(), share: 1, say: came(200, fine), counts: map[string]int{}, cfg: config.Config{
			Envoy:    config.Envoy{Gateway: gateway},
			Recovery: config.Recovery{Floor: 1, RetryBudget: 0.1, Rate: 5},
			Jobs:     config.Jobs{Keep: 24 * time.Hour},
			Chains:   []*config.Chain{chainOf("a"), chainOf("b")},
		}}
		lis := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		server := &http.Server{Handler: http.HandlerFunc(p.serve)}
		go func() { _ = server.Serve(lis) }()
		transport := &http.Transport{DisableCompression: true, DialContext: lis.dial}
		q := &queue.Queue{Parts: p.mem.Parts(), Config: p.config, Count: p.count}
		p.Drainer = &Drainer{
			Config: p.config, Queue: q, Key: func() []byte { return key }, Client: &http.Client{Transport: transport},
			Open:  func(string) float64 { p.mu.Lock(); defer p.mu.Unlock(); return p.share },
			Live:  func(string) float64 { p.mu.Lock(); defer p.mu.Unlock(); return p.live },
			Count: func(chain, outcome string) { p.count("run "+chain, outcome) }, Log: slog.New(slog.NewTextHandler(p, nil)),
		}
		test(p)
		if p.idle != nil {
			p.stopIdle()
			p.stopFlying()
			p.wg.Wait()
		}
		transport.CloseIdleConnections()
		_ = server.Close()
		synctest.Wait()
	})
}

func chainOf(name string) *config.Chain {
	return &config.Chain{Name: name, Deadlines: config.Deadlines{Total: 2 * time.Minute}, Queue: config.Queue{MaxAge: time.Hour, Notify: &config.Webhook{}}}
}

func (p *tap) config() *config.Config { p.mu.Lock(); defer p.mu.Unlock(); c := p.cfg; return &c }

func (p *tap) set(f func()) { p.mu.Lock(); defer p.mu.Unlock(); f() }

func (p *tap) count(chain, outcome string) { p.set(func() { p.counts[chain+" "+outcome]++ }) }

func (p *tap) counted(name string) (n int) { p.set(func() { n = p.counts[name] }); return n }

func (p *tap) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var say http.HandlerFunc
	p.set(func() {
		p.ran = append(p.ran, ran{time.Now(), r.Header.Get("idempotency-key"), r.URL.RequestURI(), string(body), r.Header})
		say = p.say
	})
	say(w, r)
}

// answers lets the gateway answer so from now on.
func (p *tap) answers(say http.HandlerFunc) { p.set(func() { p.say = say }) }

func (p *tap) runs() (all []ran) { p.set(func() { all = slices.Clone(p.ran) }); return all }

func (p *tap) put(chain string, n int) (ids []string) {
	p.t.Helper()
	for i := range n {
		j, err := p.Queue.Accept(p.t.Context(), queue.Request{
			Chain: chain, Tenant: "acme", Key: fmt.Sprint(chain, len(ids), "-", i, "-", time.Now().UnixNano()), Path: "/team/v1/messages?beta=true", MaxAge: time.Hour,
			Headers: map[string]string{"anthropic-beta": "x"}, Body: []byte(`{"model":"m"}`),
		})
		if err != nil {
			p.t.Fatal(err)
		}
		ids = append(ids, j.ID)
	}
	return ids
}

// is what has become of a job.
func (p *tap) is(id string) string {
	j, r, err := p.Queue.Show(p.t.Context(), id)
	if err != nil {
		p.t.Fatal(err)
	}
	if r == nil {
		return string(j.State)
	}
	return fmt.Sprintf("%s %d %s", j.State, r.Status, r.Headers["x-llm-target"])
}

// came is an answer of the chain.
func came(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("content-type", "application/json")
		h.Set("x-llm-attempts", "1")
		h.Set("x-llm-target", "a/m")
		for i := 0; i < len(headers); i += 2 {
			h.Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// takes is say after a while.
func takes(d time.Duration, say http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(d):
			say(w, r)
		case <-r.Context().Done():
		}
	}
}

// most is the largest number of runs in any window.
func most(runs []ran, window time.Duration) (most int) {
	for i := range runs {
		n := 0
		for _, r := range runs[i:] {
			if r.at.Sub(runs[i].at) < window {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

func TestAJobGoesAlongItsChainWithItsOwnKey(t *testing.T) {
	inTap(t, func(p *tap) {
		ids := p.put("a", 1)
		p.Start(p.t.Context())
		after(5 * time.Second)
		runs := p.runs()
		if len(runs) != 1 || p.is(ids[0]) != "done 200 a/m" {
			t.Fatalf("%d runs, job %s, want one that is done; log:\n%s", len(runs), p.is(ids[0]), p.logged())
		}
		h := runs[0].header
		purpose, name, err := token.Check(key, h.Get("x-llm-internal"), time.Now().Add(2*time.Minute))
		if err != nil || purpose != token.Job || name != token.JobName("a", "acme") {
			t.Errorf("x-llm-internal is for %s %q, %v, want one for a job of acme's in a that lasts as long as the chain", purpose, name, err)
		}
		j, _, _ := p.Queue.Show(p.t.Context(), ids[0])
		if h.Get("idempotency-key") != j.Key || h.Get("x-llm-degrade") != "none" || h.Get("anthropic-beta") != "x" || runs[0].path != "/team/v1/messages?beta=true" || runs[0].body != `{"model":"m"}` {
			t.Errorf("the gateway got %+v, want the job as it was accepted, with its key and no degraded mode", runs[0])
		}
	})
}

func TestWhatAnAnswerMeansForAJob(t *testing.T) {
	tripped := []string{"x-llm-rung", "1", "x-llm-fallback-reason"}
	rows := []struct {
		name string
		say  http.HandlerFunc
		want string // the job, and whether the drain stops
	}{
		{"an answer", came(200, fine), "done 200 a/m"},
		{"a refusal", came(200, declined), "done 200 a/m"},
		{"a request that the provider cannot take", came(400, problem("invalid_request_error", "messages: no")), "failed 400 a/m"},
		{"a prompt that is too long", came(400, problem("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum")), "failed 400 a/m"},
		{"an answer of a fallback, as the primary is overloaded", came(200, fine, append(tripped, "overloaded")...), "done 200 a/m stop"},
		{"an answer of a fallback, as the primary has no quota", came(200, fine, append(tripped, "quota")...), "done 200 a/m"},
		{"an overload", came(529, problem("overloaded_error", "Overloaded")), "queued stop"},
		{"an overload behind a 200", came(200, problem("overloaded_error", "Overloaded")), "queued stop"},
		{"a rate limit", came(429, problem("rate_limit_error", "slow down")), "queued stop"},
		{"a refused key", came(401, problem("authentication_error", "invalid x-api-key")), "queued stop"},
		{"half an answer", came(200, fine[:60]), "queued stop"},
		{"an answer that breaks off", breaksOff, "queued stop"},
		{"a chain with no target left", came(503, problem("overloaded_error", "all targets of this chain failed or are not available")), "queued stop"},
		{"a gateway without its service", unmarked(503, `{"type":"error"}`), "queued stop"},
		{"a gateway that refuses our key", unmarked(403, problem("forbidden", "x-llm-internal is not for clients")), "queued stop"},
		{"a gateway that hangs up", hangsUp, "queued stop"},
		{"silence beyond the chain's time", silent, "queued stop"},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			inTap(t, func(p *tap) {
				ids := p.put("a", 1)
				p.answers(r.say)
				p.Start(p.t.Context())
				for p.counted("run a done")+p.counted("run a failed") == 0 && !strings.Contains(p.logged(), "msg=job ") {
					after(time.Second)
				}
				got := p.is(ids[0])
				if strings.Contains(p.logged(), "drain stops") {
					got += " stop"
				}
				if got != r.want {
					t.Errorf("job = %q, want %q; log:\n%s", got, r.want, p.logged())
				}
			})
		})
	}
}

// Write takes the log.
func (p *tap) Write(line []byte) (n int, err error) {
	p.set(func() { n, err = p.log.Write(line) })
	return n, err
}

func (p *tap) logged() (text string) { p.set(func() { text = p.log.String() }); return text }

func TestADrainKeepsItsPace(t *testing.T) {
	rows := []struct {
		name                      string
		rate, share, live, jitter float64
		inSecond, inMinute        int
	}{
		{"without live traffic one job a second runs", 5, 1, 0, 0, 1, 60},
		{"a tenth of 20 live requests", 5, 1, 20, 0, 2, 120},
		{"no more than the rate, however much is live", 5, 1, 1000, 0, 5, 300},
		{"a target that takes a tenth of its traffic takes a tenth of the jobs", 5, 0.1, 1000, 0, 1, 30},
		{"also of the floor", 5, 0.1, 0, 0, 1, 6},
		{"a rate below the floor", 0.5, 1, 100, 0, 1, 30},
		{"jitter makes it slower, not faster", 5, 1, 1000, 1, 5, 300},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			inTap(t, func(p *tap) {
				p.cfg.Recovery.Rate, p.cfg.Recovery.Jitter, p.share, p.live = r.rate, r.jitter, r.share, r.live
				p.put("a", 400)
				p.Start(p.t.Context())
				after(3 * time.Minute)
				runs := p.runs()
				if got := most(runs, time.Second); got > r.inSecond {
					t.Errorf("%d jobs in a second, want at most %d", got, r.inSecond)
				}
				got := most(runs, time.Minute)
				least := r.inMinute * 9 / 10
				if r.jitter > 0 {
					least = r.inMinute / 2
				}
				if got > r.inMinute || got < least {
					t.Errorf("%d jobs in a minute, want %d to %d", got, least, r.inMinute)
				}
			})
		})
	}
}

func TestChainsShareTheRate(t *testing.T) {
	inTap(t, func(p *tap) {
		p.live = 1000
		p.put("a", 200)
		p.put("b", 200)
		p.Start(p.t.Context())
		after(30 * time.Second)
		runs := p.runs()
		of := map[byte]int{}
		for _, r := range runs {
			of[r.id[0]]++
		}
		if got := most(runs, time.Second); got > 5 || of['a'] < 30 || of['b'] < 30 {
			t.Errorf("%d jobs in a second, %v in all, want at most 5, of both chains", got, of)
		}
	})
}

func TestThePaceFollowsTheTraffic(t *testing.T) {
	inTap(t, func(p *tap) {
		p.live = 1000
		p.put("a", 500)
		p.Start(p.t.Context())
		after(10 * time.Second)
		p.set(func() { p.live = 0 })
		at := len(p.runs())
		after(60 * time.Second)
		if got := len(p.runs()) - at; got < 55 || got > 62 {
			t.Errorf("%d jobs in the minute after the traffic went, want about 60", got)
		}
	})
}
