package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"understudy/internal/scripted"
)

func TestTheDemoStacksEnvoyIsWhatTheCommandPrints(t *testing.T) {
	const golden = "../../envoy/compose/envoy.yaml"
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"envoy", "-c", "../../envoy/compose/understudy.yaml"}, std{nil, &out, &errs}); code != exitFine {
		t.Fatalf("extproc envoy = exit %d\n%s", code, errs.String())
	}
	if *update {
		if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), want) {
		t.Errorf("%s is not what extproc envoy prints for the understudy.yaml beside it: run go test ./cmd/extproc -run DemoStack -update", golden)
	}
}

func TestParseSchedule(t *testing.T) {
	for name, row := range map[string]struct {
		schedule string
		want     []act // nil: refused
	}{
		"one act":                         {"1m ok", []act{{time.Minute, "ok"}}},
		"parameters get lost":             {"40s ok n=20 delay=5ms; 20s 529", []act{{40 * time.Second, "ok n=20 delay=5ms"}, {20 * time.Second, "529"}}},
		"an act without a time is played": {"ok", nil},
		"an act of no time is played":     {"0s ok", nil},
		"an act that means nothing":       {"1m dance", nil},
		"an empty act at the end":         {"1m ok;", nil},
		"an empty schedule":               {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseSchedule(row.schedule)
			if !reflect.DeepEqual(got, row.want) || (err == nil) != (row.want != nil) {
				t.Errorf("parseSchedule(%q) = %v, %v, want %v", row.schedule, got, err, row.want)
			}
		})
	}
}

func quiet() *slog.Logger { return slog.New(slog.NewJSONHandler(io.Discard, nil)) }

func TestAnActorGoesThroughItsActs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &scriptedActor{Provider: scripted.New("p", scripted.Options{}), log: quiet()}
		ctx, cancel := context.WithCancel(t.Context())
		played := make(chan error)
		go func() { played <- a.play(ctx, []act{{time.Minute, "ok"}, {time.Second, "529"}}) }()
		for i, want := range []int{200, 529, 200} {
			synctest.Wait()
			if got := answered(a); got != want {
				t.Errorf("in act %d the provider answers %d, want %d", i, got, want)
			}
			time.Sleep([]time.Duration{time.Minute, time.Second, 0}[i])
		}
		if got := a.Count(""); got != 1 {
			t.Errorf("the provider keeps %d requests, want that of the act alone", got)
		}
		cancel()
		if err := <-played; err != nil {
			t.Errorf("play = %v, want nil when it is stopped", err)
		}
	})
}

// answered is the status of a call to the provider.
func answered(p http.Handler) int {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/messages", strings.NewReader(`{"model":"m"}`)))
	return w.Code
}

func TestAnActorDoesWhatItIsTold(t *testing.T) {
	a := &scriptedActor{Provider: scripted.New("p", scripted.Options{}), log: quiet()}
	if err := a.change(func(p *part) { p.due = "ok" }); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, method, body string
		status, answers    int
	}{
		{"a told act is not played", "PUT", "529", 200, 529},
		{"what means nothing changes something", "PUT", "dance", 400, 529},
		{"more than one act is taken", "PUT", "ok, 529 nonsense=1", 400, 529},
		{"a long act is read to its end", "PUT", strings.Repeat("x", maxAct+1), 400, 529},
		{"looking changes something", "GET", "", 200, 529},
		{"the schedule does not go on", "DELETE", "", 200, 200},
	} {
		w := httptest.NewRecorder()
		a.controls().ServeHTTP(w, httptest.NewRequest(row.method, "/act", strings.NewReader(row.body)))
		if got := answered(a); w.Code != row.status || got != row.answers {
			t.Errorf("%s: %s /act %.20q = %d, then the provider answers %d; want %d, %d", row.name, row.method, row.body, w.Code, got, row.status, row.answers)
		}
	}
}

func TestOutcomeOfACall(t *testing.T) {
	for name, row := range map[string]struct {
		status int
		header http.Header
		broken error
		want   string
	}{
		"the primary's answer":          {200, http.Header{"X-Llm-Rung": {"0"}}, nil, "served"},
		"an answer of a bare Envoy":     {200, nil, nil, "served"},
		"a fallback's answer":           {200, http.Header{"X-Llm-Rung": {"1"}}, nil, "fallback"},
		"a cached answer":               {200, http.Header{"X-Llm-Degraded": {"cache; age=3; match=exact"}}, nil, "degraded: cache"},
		"the owner's sentence":          {503, http.Header{"X-Llm-Degraded": {"off"}}, nil, "degraded: off"},
		"an error":                      {502, nil, nil, "status 502"},
		"an answer that stops half-way": {200, http.Header{"X-Llm-Rung": {"0"}}, io.ErrUnexpectedEOF, "cut short"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := outcome(&http.Response{StatusCode: row.status, Header: row.header}, row.broken); got != row.want {
				t.Errorf("outcome(%d %v, %v) = %q, want %q", row.status, row.header, row.broken, got, row.want)
			}
		})
	}
}

func TestTrafficIsOfBothDialectsStreamedAndNot(t *testing.T) {
	type kind struct {
		path   string
		stream bool
	}
	seen := map[kind]bool{}
	gateway := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen[kind{r.URL.Path, bytes.Contains(body, []byte(`"stream":true`))}] = true
	}))
	defer gateway.Close()
	tr := &traffic{gateway: gateway.URL, log: quiet(), tally: map[string]int{}}
	if tr.fresh() == nil {
		t.Error("fresh() = nil before any answer, want an error")
	}
	for n := range 4 {
		tr.call(t.Context(), n)
	}
	if len(seen) != 4 || tr.tally["served"] != 4 || tr.fresh() != nil {
		t.Errorf("4 calls were %v and came to %v, fresh() = %v; want 4 kinds, all served, nil", seen, tr.tally, tr.fresh())
	}
}

func TestHealthSaysWhatReadyzSays(t *testing.T) {
	for name, row := range map[string]struct {
		ready error
		code  int
		says  string
	}{
		"a ready process is unhealthy":   {nil, exitFine, "ready\n"},
		"why it is not ready stays dark": {errors.New("the store is not up"), exitWrong, "extproc health: not ready: 503 Service Unavailable: the store is not up\n"},
	} {
		t.Run(name, func(t *testing.T) {
			admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Path != "/readyz":
					http.NotFound(w, r)
				case row.ready != nil:
					http.Error(w, row.ready.Error(), http.StatusServiceUnavailable)
				}
			}))
			defer admin.Close()
			var out bytes.Buffer
			if code := run(t.Context(), []string{"health", "--admin", admin.URL + "/"}, std{nil, &out, &out}); code != row.code || out.String() != row.says {
				t.Errorf("health = exit %d, %q; want %d, %q", code, out.String(), row.code, row.says)
			}
		})
	}
}

func TestHealthFailsWhereNothingListens(t *testing.T) {
	admin := httptest.NewServer(http.NotFoundHandler())
	admin.Close()
	if code := run(t.Context(), []string{"health", "--admin", admin.URL}, std{nil, io.Discard, io.Discard}); code != exitWrong {
		t.Errorf("health = exit %d, want %d", code, exitWrong)
	}
}
