package main

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"understudy/pkg/config"
)

//go:embed soak.yaml
var soakYAML string

// soak is a long run of two replicas under a mixed load, with faults, reloads and restarts. The first replica lives from
// beginning to end: what it has must not grow. The second comes and goes.
type soak struct {
	*stack
	world    *world
	raw      *json.Encoder
	log      io.Writer
	configs  [2]*config.Config
	replicas [2]*process
}

// breath is how long a window's calls begin. After each, all is quiet, and what is then still there has to be.
const breath = 4 * time.Second

// What happens in which windows, beside the load.
const (
	reloadEvery  = 2 // the config changes
	outageEvery  = 3 // the primary fails every call
	restartEvery = 4 // the second replica goes, in turn by its own will and by force
)

// soakLoads are the clients of a window.
func soakLoads() []workload {
	const ms = time.Millisecond
	return []workload{
		{Name: "json", Prompt: 200, Script: script{Fail: 10}, Clients: 2},
		{Name: "json-100k", Prompt: 100_000, Clients: 1},
		{Name: "stream", Prompt: 1000, Script: script{Events: 100, Interval: 5 * ms, Fail: 10}, Clients: 6},
		{Name: "hangup", Prompt: 1000, Script: script{Events: 100, Interval: 5 * ms}, Clients: 2},
	}
}

func runSoak(ctx context.Context, args []string, out, log io.Writer) error {
	s := &soak{log: log}
	var p programs
	f := flag.NewFlagSet("soak", flag.ContinueOnError)
	f.StringVar(&p.envoy, "envoy", "", "path of Envoy")
	f.StringVar(&p.extproc, "extproc", "bin/extproc", "path of the service")
	lasts := f.Duration("lasts", time.Hour, "how long")
	path := f.String("raw", "soak.jsonl", "where the raw data go")
	err := parse(f, args)
	if err != nil {
		return err
	}
	if p.self, err = os.Executable(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "soak")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	raw, err := os.Create(*path)
	if err != nil {
		return err
	}
	s.raw = json.NewEncoder(raw)
	if s.world, err = startWorld(p, dir); err != nil {
		return err
	}
	defer s.world.provider.stop()
	s.stack = &stack{programs: p, variant: "soak", dir: dir, listen: free(1)[0], processes: map[string]*process{}}
	defer s.stop()
	if err := s.start(ctx); err != nil {
		return err
	}
	breaths, err := s.live(ctx, *lasts)
	if err := cmp.Or(err, raw.Close()); err != nil {
		return err
	}
	return judge(breaths, out)
}

func (s *soak) start(ctx context.Context) error {
	if err := os.WriteFile(s.path("key"), []byte("a-key"), 0o600); err != nil {
		return err
	}
	addrs := free(5)
	for i := range s.configs {
		values := map[string]string{
			"grpc": addrs[i], "grpc0": addrs[0], "grpc1": addrs[1], "admin": addrs[2+i], "envoy_admin": addrs[4],
			"store": s.path("store" + digits(i)), "listen": s.listen, "key": s.path("key"), "answer": "${answer}",
			"primary": s.world.primary, "backup": s.world.backup, "model": model, "backup_model": backupModel}
		if _, err := s.fill(s.template(i), soakYAML, values); err != nil {
			return err
		}
		if err := s.configure(i, 0); err != nil {
			return err
		}
		if err := s.startReplica(ctx, i); err != nil {
			return err
		}
	}
	return s.runHop(ctx, s.extproc, s.configs[0].File, s.configs[0])
}

func (s *soak) path(file string) string { return filepath.Join(s.dir, file) }

func (s *soak) template(i int) string { return fmt.Sprintf("replica%d.template.yaml", i) }

// configure writes a replica's config, unlike the one before, in one step.
func (s *soak) configure(i, window int) error {
	text, err := os.ReadFile(s.path(s.template(i)))
	if err != nil {
		return err
	}
	name := fmt.Sprintf("replica%d.yaml", i)
	next, err := s.fill(name+".new", string(text), map[string]string{"answer": digits(60+window) + "s"})
	if err != nil {
		return err
	}
	if err := os.Rename(next, s.path(name)); err != nil {
		return err
	}
	s.configs[i], err = config.Load(s.path(name))
	return err
}

func (s *soak) startReplica(ctx context.Context, i int) (err error) {
	if s.replicas[i], err = s.run("service"+digits(i), s.extproc, "serve", "-c", s.configs[i].File); err != nil {
		return err
	}
	return s.replicas[i].ready(ctx, "http://"+s.configs[i].Server.Admin.Addr+"/readyz")
}

// window is one breath of the soak: a line of the raw data.
type window struct {
	Number  int     `json:"number"`
	Seconds float64 `json:"seconds"` // since the beginning

	Exchanges int64             `json:"exchanges"`
	Failed    map[string]int64  `json:"failed,omitempty"` // by load
	Errors    map[string]string `json:"errors,omitempty"` // one of each load's
	Killed    bool              `json:"killed,omitempty"`

	Figures map[string]float64 `json:"figures"` // at the end, when all is quiet; times in ms
}

// live goes on until lasts is over.
func (s *soak) live(ctx context.Context, lasts time.Duration) (all []window, err error) {
	from := time.Now()
	for n := 1; time.Since(from) < lasts; n++ {
		w := window{Number: n, Failed: map[string]int64{}, Errors: map[string]string{}}
		latency, err := s.breathe(ctx, &w)
		if err := cmp.Or(ctx.Err(), err, s.whole()); err != nil {
			return nil, err
		}
		w.Seconds = time.Since(from).Seconds()
		if w.Figures, err = s.figures(ctx, latency); err != nil {
			return nil, err
		}
		if err := s.raw.Encode(w); err != nil {
			return nil, err
		}
		fmt.Fprintf(s.log, "%5.0fs: %d exchanges, failed %v %v, %v\n", w.Seconds, w.Exchanges, w.Failed, w.Errors, w.Figures)
		all = append(all, w)
	}
	return all, nil
}

// breathe is a window's load, and what else happens meanwhile. It returns the latencies of the small calls.
func (s *soak) breathe(ctx context.Context, w *window) (hist, error) {
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		latency hist
	)
	for _, load := range soakLoads() {
		if w.Number%outageEvery == 0 {
			load.Script.Fail = 100
		}
		l := load.load(s.stack, breath)
		l.hangUp, l.pause = load.Name == "hangup", 20*time.Millisecond
		wg.Go(func() {
			t := l.run(ctx)
			mu.Lock()
			defer mu.Unlock()
			w.Exchanges += t.Exchanges
			if t.Errors > 0 {
				w.Failed[load.Name], w.Errors[load.Name] = t.Errors, t.Error
			}
			if load.Name == "json" {
				latency = t.Latency
			}
		})
	}
	err := s.disturb(ctx, w)
	wg.Wait()
	sleep(ctx, time.Second) // the last ends are settled
	return latency, err
}

// disturb does, in the middle of a window, what is due in it.
func (s *soak) disturb(ctx context.Context, w *window) error {
	sleep(ctx, breath/4)
	if w.Number%reloadEvery == 0 {
		for i := range s.configs {
			if err := s.configure(i, w.Number); err != nil {
				return err
			}
		}
	}
	if w.Number%restartEvery != 0 {
		return nil
	}
	delete(s.processes, "service1") // it may end
	if w.Killed = w.Number%(2*restartEvery) == 0; w.Killed {
		s.replicas[1].kill()
	} else {
		s.replicas[1].stop()
	}
	return s.startReplica(ctx, 1)
}

// figures are what must stay flat.
func (s *soak) figures(ctx context.Context, latency hist) (map[string]float64, error) {
	metrics, err := scrape(ctx, "http://"+s.configs[0].Server.Admin.Addr+"/metrics")
	if err != nil {
		return nil, err
	}
	service, envoy := s.replicas[0], s.processes["envoy"]
	return map[string]float64{
		"service_rss_mib":    float64(service.rss()) / (1 << 20),
		"service_goroutines": metrics["go_goroutines"],
		"service_files":      float64(service.files()),
		"envoy_rss_mib":      float64(envoy.rss()) / (1 << 20),
		"envoy_files":        float64(envoy.files()),
		"latency_p50_ms":     latency.quantile(.5).Seconds() * 1000,
		"latency_p99_ms":     latency.quantile(.99).Seconds() * 1000,
	}, nil
}

// bounds are by how much a figure may grow in the second half of a soak: a share of what it was in the first, and in any
// case so much. A leak of one object a call exceeds them soon; noise does not.
var bounds = map[string]struct{ share, least float64 }{
	"service_rss_mib":    {0.10, 12},
	"service_goroutines": {0.10, 12},
	"service_files":      {0.10, 8},
	"envoy_rss_mib":      {0.10, 12},
	"envoy_files":        {0.25, 40}, // its pool keeps connections as long as they were needed in the last 30 s
	"latency_p50_ms":     {1.00, 10}, // other work of the machine is in it: the order only
	"latency_p99_ms":     {1.50, 200},
}

// judge says what has grown, and which calls failed that should not have.
func judge(all []window, out io.Writer) error {
	var errs []error
	before, half := all[:len(all)/2], all[len(all)/2:]
	if len(before) < 3 {
		return fmt.Errorf("windows = %d, want at least 6: the soak was too short to say anything", len(all))
	}
	at, _ := series(half, "")
	for _, name := range sortedKeys(bounds) {
		_, was := series(before, name)
		_, is := series(half, name)
		grown, most := growthOver(at, is), max(bounds[name].share*mean(was), bounds[name].least)
		fmt.Fprintf(out, "%-20s mean %8.1f, grown by %+8.2f in the second half, at most %.1f\n", name, mean(is), grown, most)
		if grown > most {
			errs = append(errs, fmt.Errorf("%s has grown by %.2f in the second half, want at most %.1f", name, grown, most))
		}
	}
	return errors.Join(append(errs, failures(all, out))...)
}

// failures are calls without an answer. Only a stream that has begun can have none, on a replica that was killed.
func failures(all []window, out io.Writer) error {
	var errs []error
	exchanges := int64(0)
	for _, w := range all {
		exchanges += w.Exchanges
		for name, n := range w.Failed {
			if streamed := name == "stream" || name == "hangup"; !streamed || !w.Killed {
				errs = append(errs, fmt.Errorf("window %d: %d failed calls of %s: %s", w.Number, n, name, w.Errors[name]))
			}
		}
	}
	fmt.Fprintf(out, "%d exchanges in %d windows\n", exchanges, len(all))
	return errors.Join(errs...)
}

// series are a figure's values, and when each was.
func series(all []window, name string) (at, values []float64) {
	for _, w := range all {
		at, values = append(at, w.Seconds), append(values, w.Figures[name])
	}
	return at, values
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// growthOver is how much the least squares' line through the values rises from the first to the last.
func growthOver(at, values []float64) float64 {
	x, y := mean(at), mean(values)
	var xy, xx float64
	for i := range at {
		xy += (at[i] - x) * (values[i] - y)
		xx += (at[i] - x) * (at[i] - x)
	}
	return xy / xx * (at[len(at)-1] - at[0])
}
