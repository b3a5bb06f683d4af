package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/config"
	"understudy/pkg/processor"
)

// service is an app of one test, on the config in file, with its log.
type service struct {
	*app
	t    *testing.T
	file string
	log  *lockedBuffer
}

// lockedBuffer takes a log from many goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

const serviceYAML = `
server: {grpc: "unix://DIR/service.sock", admin: "127.0.0.1:0", drain: 1s}
store: STORE
providers:
  a:
    api: anthropic
    endpoint: https://a.example.com
    auth: {from: client}
    status_feed: {statuspage: "https://status.example.com/api/v2/summary.json"}
  b: {api: anthropic, endpoint: "https://b.example.com", auth: {from: client}}
  c: {api: anthropic, endpoint: "https://c.example.com", auth: {bearer: "env:NOT_SET_ANYWHERE"}}
targets: {a/m: {provider: a, model: m}, b/m: {provider: b, model: m}}
chains: {main: {match: [{path: /v1/messages}], targets: [a/m, b/m]}}
`

// folder is one for the files of a service. Sockets' paths are short, those of t.TempDir need not be.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "u")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func embedded(dir string) string { return `{embedded: {dir: "` + dir + `/store"}}` }

// begin makes a service and starts it; store is the value of that key in its config.
func begin(t *testing.T, dir, store string) *service {
	t.Helper()
	return beginWith(t, dir, store, serviceYAML)
}

func beginWith(t *testing.T, dir, store, yaml string) *service {
	t.Helper()
	s := &service{t: t, file: filepath.Join(dir, "understudy.yaml"), log: &lockedBuffer{}}
	s.write(strings.NewReplacer("DIR", dir, "STORE", store).Replace(yaml))
	cfg, err := config.Load(s.file)
	if err != nil {
		t.Fatal(err)
	}
	if s.app, err = newApp(cfg, slog.New(slog.NewTextHandler(s.log, nil))); err != nil {
		t.Fatal(err)
	}
	s.start()
	return s
}

func (s *service) write(yaml string) {
	s.t.Helper()
	if err := os.WriteFile(s.file, []byte(yaml), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *service) end() {
	s.t.Helper()
	if err := s.stop(time.Second); err != nil {
		s.t.Errorf("stop = %v, want nil", err)
	}
}

// eventually waits until ok gives no error.
func eventually(t *testing.T, ok func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := poll(ctx, ok); err != nil {
		t.Fatal(err)
	}
}

// get is the status and the text that the admin listener has.
func (s *service) get(path string) (int, string) {
	s.t.Helper()
	resp, err := http.Get("http://" + s.adminListener.Addr().String() + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func (s *service) breaker() *breaker.Breaker { return s.processor.Book().Breaker("a/m") }

// trip lets a/m fail until its breaker opens.
func (s *service) trip() {
	s.t.Helper()
	for s.breaker().State() == breaker.Closed {
		p, err := s.breaker().Allow()
		if err != nil {
			s.t.Fatal(err)
		}
		p.Done(breaker.Failure)
	}
}

// stored waits until the store has what the breaker of a/m goes by.
func (s *service) stored() {
	s.t.Helper()
	key := fleetKey(s.processor.Book().Config.Targets["a/m"])
	eventually(s.t, func(ctx context.Context) error {
		e, err := s.shared.truths.Get(ctx, key)
		if err == nil && !strings.Contains(string(e.Value), `"open":true`) {
			err = errors.New("the store says " + string(e.Value))
		}
		return err
	})
}

func TestAnOpenBreakerIsOpenFromTheStartAfterARestart(t *testing.T) {
	dir := folder(t)
	s := begin(t, dir, embedded(dir))
	s.trip()
	s.stored()
	want := s.breaker().Truth()
	s.end()

	s = begin(t, dir, embedded(dir))
	defer s.end()
	// begin has started it, but nothing was waited for.
	if got := s.breaker().Truth(); s.breaker().State() != breaker.Open || !got.Until.Equal(want.Until) || got.Gen != want.Gen {
		t.Errorf("after the restart the breaker is %s by %+v, want open by %+v", s.breaker().State(), got, want)
	}
}

func TestTheStateOfAnotherModelIsNotTakenOver(t *testing.T) {
	dir := folder(t)
	s := begin(t, dir, embedded(dir))
	s.trip()
	s.stored()
	s.end()

	text := strings.Replace(serviceYAML, "a/m: {provider: a, model: m}", "a/m: {provider: a, model: another, model_family: m}", 1)
	s = beginWith(t, dir, embedded(dir), text)
	defer s.end()
	if got := s.breaker().State(); got != breaker.Closed {
		t.Errorf("the breaker of a/m with another model is %s, want closed", got)
	}
}

func TestReplicasSignWithTheKeyOfTheStore(t *testing.T) {
	dir := folder(t)
	s := begin(t, dir, embedded(dir))
	private := s.processor.Key()
	var key []byte
	eventually(t, func(ctx context.Context) error {
		e, err := s.shared.keys.Get(ctx, keyName)
		key = e.Value
		return err
	})
	if !bytes.Equal(key, private) || len(key) != keyLength {
		t.Errorf("the store's key = %x, want that of the first replica, %x", key, private)
	}
	s.end()

	s = begin(t, dir, embedded(dir))
	defer s.end()
	eventually(t, func(context.Context) error {
		if !bytes.Equal(s.processor.Key(), key) {
			return errors.New("the second replica signs with a key of its own")
		}
		return nil
	})
	if err := s.shared.keys.Delete(t.Context(), keyName, 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		e, err := s.shared.keys.Get(ctx, keyName)
		if err == nil && !bytes.Equal(e.Value, key) {
			t.Errorf("the key that is written again = %x, want the one in use, %x", e.Value, key)
		}
		return err
	})
}

func TestAReplicaWithoutItsClusterServesAndIsNotReadyAtOnce(t *testing.T) {
	dir := folder(t)
	s := begin(t, dir, `{nats: {urls: ["nats://127.0.0.1:1"]}}`)
	defer s.end()
	if code, text := s.get("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "store") {
		t.Errorf("/readyz = %d %q, want 503 that names the store", code, text)
	}
	if _, text := s.get("/metrics"); !strings.Contains(text, "\nunderstudy_store_up 0\n") {
		t.Errorf("/metrics lacks understudy_store_up 0")
	}
	if s.processor.Key() == nil {
		t.Error("the replica has no key of its own")
	}
	s.trip()
	if got := s.breaker().State(); got != breaker.Open {
		t.Errorf("without a store the breaker is %s after its failures, want open", got)
	}
	s.shared.opened = time.Now().Add(-readyAnyway - time.Second)
	if err := s.isReady(); err != nil {
		t.Errorf("isReady() after %s = %v, want nil: a lost store must not be an outage", readyAnyway, err)
	}
}

func TestAReplicaThatLosesItsStoreStaysReady(t *testing.T) {
	dir := folder(t)
	s := begin(t, dir, embedded(dir))
	defer s.end()
	eventually(t, func(context.Context) error { return s.isReady() })
	if err := s.shared.close(); err != nil {
		t.Fatal(err)
	}
	if got := s.storeUp(); got != 0 || s.isReady() != nil {
		t.Errorf("after the loss: store_up = %v, isReady() = %v, want 0 and nil", got, s.isReady())
	}
}

func TestMetricsOfTheFleetAreThere(t *testing.T) {
	dir := folder(t)
	s := begin(t, dir, embedded(dir))
	defer s.end()
	s.calls.count("a/m", "alive")
	_, text := s.get("/metrics")
	for _, want := range []string{
		"understudy_store_up 1", `understudy_provider_ready{provider="a"} 1`, `understudy_provider_ready{provider="c"} 0`, `understudy_provider_status{provider="a"} -1`, `understudy_probes_total{result="alive",target="a/m"} 1`,
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	if strings.Contains(text, `understudy_provider_status{provider="b"}`) {
		t.Error("/metrics has a status of a provider without a feed")
	}
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(newStatusCollector(s.calls.feeds), newReadyCollector(s.processor), s.calls.probes)
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("GatherAndLint = %v, %v, want none", problems, err)
	}
}

func TestAReloadReachesTheFleetAndRefusesAnotherStore(t *testing.T) {
	dir := folder(t)
	s := begin(t, dir, embedded(dir))
	defer s.end()
	text := strings.NewReplacer("DIR", dir, "STORE", embedded(dir)).Replace(serviceYAML)
	s.write(strings.ReplaceAll(text, "/store", "/elsewhere"))
	s.reload(t.Context(), s.file)
	if got := testutil.ToFloat64(s.reloadOK); got != 0 || !strings.Contains(s.log.String(), "store: these settings cannot change") {
		t.Errorf("reload to another store: success = %v, log:\n%s\nwant 0 and the reason", got, s.log)
	}
	s.write(strings.Replace(text, "b/m: {provider: b, model: m}", "b/m: {provider: b, model: m}, b/n: {provider: b, model: n, breaker: {half_open: probe}}", 1))
	s.reload(t.Context(), s.file)
	names := map[string]bool{}
	for _, target := range s.shared.targets() {
		names[target.Name] = target.Probe
	}
	if probe, ok := names["b/n"]; testutil.ToFloat64(s.reloadOK) != 1 || !ok || !probe || len(names) != 3 {
		t.Errorf("after the reload the fleet's targets = %v, want b/n with a probe too; log:\n%s", names, s.log)
	}
}

func TestAStoreThatAnotherProcessHasIsRefusedAndNothingIsKept(t *testing.T) {
	dir := folder(t)
	s := begin(t, dir, embedded(dir))
	defer s.end()
	if _, err := newApp(s.cfg, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("newApp on a store in use = nil, want an error")
	}
	other := folder(t)
	cfg := *s.cfg
	cfg.Store.Dir = other // but the sockets are taken
	for range 2 {
		if _, err := newApp(&cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "server.grpc") {
			t.Errorf("newApp on an address in use = %v, want an error that names server.grpc: the store was given back", err)
		}
	}
}

func TestAPageThatTurnsGreenEndsOnlyOpenPeriodsThatItKnewOf(t *testing.T) {
	cfg, err := config.Parse("test.yaml", []byte(strings.NewReplacer("DIR", "/nowhere", "STORE", embedded("/nowhere")).Replace(serviceYAML)))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, provider string
		ill            time.Duration // when the page last told of trouble, from the opening
		want           breaker.State
	}{
		{"the page told of trouble after the opening", "a", time.Second, breaker.HalfOpen},
		{"the breaker opened later than that", "a", -time.Second, breaker.Open},
		{"another provider's page", "b", time.Second, breaker.Open},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := processor.New(cfg, processor.NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
			s := &service{app: &app{processor: p}, t: t}
			s.trip()
			was := s.breaker().Truth()
			newCalls(p, slog.New(slog.DiscardHandler)).sooner(tt.provider, was.Since.Add(tt.ill))
			if got := s.breaker().State(); got != tt.want {
				t.Errorf("the breaker is %s, want %s", got, tt.want)
			}
			if got := s.breaker().Truth(); got.Streak != was.Streak || !got.Open {
				t.Errorf("the truth = %+v, want one open period with the streak of %+v", got, was)
			}
			if got := p.Book().Breaker("b/m").State(); got != breaker.Closed {
				t.Errorf("the breaker of b/m is %s, want closed: a page opens nothing", got)
			}
		})
	}
}
