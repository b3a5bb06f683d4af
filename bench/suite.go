package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// suite is a run: workloads, each with all variants side by side and in turn.
type suite struct {
	programs
	variants  []string
	workloads []workload
	rounds    int           // 0: as the workload says
	lasts     time.Duration // 0: as the workload says
	socket    bool
	raw       *json.Encoder
	log       io.Writer
	dir       string
}

// measure runs the suite, keeps the raw data, and prints the results page.
func measure(ctx context.Context, args []string, out, log io.Writer) (err error) {
	debug.SetGCPercent(400) // the client's garbage is not what is measured
	s := suite{log: log}
	f := flag.NewFlagSet("run", flag.ContinueOnError)
	f.StringVar(&s.envoy, "envoy", "", "path of Envoy")
	f.StringVar(&s.extproc, "extproc", "bin/extproc", "path of the service")
	f.StringVar(&s.before, "before", "", "path of another build of the service, for the variant before")
	f.StringVar(&s.litellm, "litellm", "", "path of litellm; empty: left out")
	f.StringVar(&s.portkey, "portkey", "", "path of Portkey's start-server.js; empty: left out")
	f.BoolVar(&s.socket, "socket", false, "Envoy and the service meet at a socket file instead of loopback TCP")
	f.IntVar(&s.rounds, "rounds", 0, "rounds of each workload, half as many where streams are kept open; 0: each has its own number")
	f.DurationVar(&s.lasts, "lasts", 0, "how long calls begin in a round; 0: each workload has its own time")
	kinds := f.String("variants", "direct,envoy,floor,understudy", "what is measured, in turn")
	loads := f.String("workloads", "", "by name; empty: all")
	path := f.String("raw", "bench.jsonl", "where the raw data go")
	if err := parse(f, args); err != nil {
		return err
	}
	s.variants = strings.Split(*kinds, ",")
	if s.workloads, err = named(*loads); err != nil {
		return err
	}
	if s.self, err = os.Executable(); err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("", "bench"); err != nil {
		return err
	}
	defer os.RemoveAll(s.dir)
	raw, err := os.Create(*path)
	if err != nil {
		return err
	}
	s.raw = json.NewEncoder(raw)
	if err := cmp.Or(s.run(ctx), raw.Close()); err != nil {
		return err
	}
	return report(ctx, []string{"-raw", *path}, out, log)
}

// named are the workloads of those names, in their own order.
func named(names string) ([]workload, error) {
	if names == "" {
		return workloads(), nil
	}
	var some []workload
	all := workloads()
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(w workload) bool { return w.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no workload %q", name)
		}
		some = append(some, all[i])
	}
	return some, nil
}

func (s *suite) run(ctx context.Context) error {
	if err := s.raw.Encode(s.machine()); err != nil { // first: what follows is work that the load would tell of
		return err
	}
	for _, program := range []*string{&s.self, &s.extproc, &s.before} {
		copied, err := paged(*program, s.dir)
		if err != nil {
			return err
		}
		*program = copied
	}
	w, err := startWorld(s.programs, s.dir)
	if err != nil {
		return err
	}
	defer w.provider.stop()
	for _, load := range s.workloads {
		if err := s.compare(ctx, w, load); err != nil {
			return fmt.Errorf("%s: %w", load.Name, err)
		}
	}
	return nil
}

// compare gives one workload to all variants, in turn, round by round. Each workload has fresh processes: what one has
// grown to says nothing about the next. Where memory is what matters, each round has.
func (s *suite) compare(ctx context.Context, w *world, load workload) error {
	if s.lasts > 0 {
		load.Lasts = s.lasts
	}
	rounds := load.Rounds
	switch {
	case s.rounds > 0 && load.Open: // each takes long
		rounds = max(1, s.rounds/2)
	case s.rounds > 0:
		rounds = s.rounds
	}
	if !load.Open {
		return s.interleave(ctx, w, load, 1, rounds)
	}
	for round := range rounds {
		for _, variant := range s.variants {
			one := *s
			one.variants = []string{variant}
			if err := one.interleave(ctx, w, load, round+1, round+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// interleave starts all variants, warms them up, and gives them their rounds.
func (s *suite) interleave(ctx context.Context, w *world, load workload, from, to int) error {
	var all []*stack
	defer func() {
		for _, stack := range all {
			stack.stop()
		}
	}()
	for _, variant := range s.variants {
		if isPeer(variant) && !load.Peers {
			continue
		}
		stack, err := startStack(ctx, s.programs, w, variant, s.dir, s.socket)
		if err != nil {
			return err
		}
		all = append(all, stack)
		s.round(ctx, w, stack, load.warmUp())
		if load.Open { // what only a start takes is given back by then
			sleep(ctx, 3*time.Second)
		}
	}
	for round := from; round <= to; round++ {
		for turn := range all { // each variant comes first, and last, as often as another: what ran before leaves its traces
			stack := all[(turn+round)%len(all)]
			r := s.round(ctx, w, stack, load)
			if err := cmp.Or(ctx.Err(), stack.whole()); err != nil {
				return err
			}
			fmt.Fprintf(s.log, "%-12s %-11s round %d: %6d exchanges, %d errors %.120s\n", load.Name, stack.variant, round, r.Exchanges, r.Errors, r.Error)
			r.Round = round
			if err := s.raw.Encode(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// sample is one round of one variant: a line of the raw data.
type sample struct {
	Workload string  `json:"workload"`
	Variant  string  `json:"variant"`
	Round    int     `json:"round"`
	Clients  int     `json:"clients"`
	Events   int     `json:"events,omitempty"`
	Seconds  float64 `json:"seconds"`
	tally
	CPU  map[string]time.Duration `json:"cpu"`  // of each process, in nanoseconds
	RSS  map[string]int64         `json:"rss"`  // of each process at the end, in bytes; of open streams: while all are open
	Idle map[string]int64         `json:"idle"` // of each process before
}

// round gives a load to one variant and watches all processes meanwhile.
func (s *suite) round(ctx context.Context, w *world, stack *stack, load workload) sample {
	processes := maps.Clone(stack.processes)
	processes["provider"] = w.provider
	r := sample{Workload: load.Name, Variant: stack.variant, Clients: load.Clients, Events: load.Script.Events,
		CPU: map[string]time.Duration{}, Idle: rssOf(stack.processes)}
	l := load.load(stack, load.Lasts)
	open := make(chan map[string]int64, 1)
	l.allOpen = func() { // what is asked for is what they take while they are open, not what opening them takes
		time.AfterFunc(settling, func() { open <- rssOf(stack.processes) })
	}
	for name, p := range processes {
		r.CPU[name] = -p.cpu()
	}
	r.CPU["client"] = -cpuOf(os.Getpid())
	from := time.Now()
	r.tally = *l.run(ctx)
	r.Seconds = time.Since(from).Seconds()
	for name, p := range processes {
		r.CPU[name] += p.cpu()
	}
	r.CPU["client"] += cpuOf(os.Getpid())
	r.RSS = rssOf(stack.processes)
	if load.Open && r.Errors == 0 { // all have been open, and for longer than that
		r.RSS = <-open
	}
	return r
}

func rssOf(processes map[string]*process) map[string]int64 {
	all := map[string]int64{}
	for name, p := range processes {
		all[name] = p.rss()
	}
	return all
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func digits(n int) string { return strconv.Itoa(n) }

func isPeer(variant string) bool { return variant == "litellm" || variant == "portkey" }

// machine is the raw data's first line: where and on what the run was.
type machine struct {
	Date    string `json:"date"`
	CPU     string `json:"cpu"`
	Cores   int    `json:"cores"`
	Kernel  string `json:"kernel"`
	Go      string `json:"go"`
	Envoy   string `json:"envoy"`
	Service string `json:"service"`
	Socket  bool   `json:"socket"`
	Load    string `json:"load"` // of the machine before
}
