package main

import (
	"bufio"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"text/template"
)

//go:embed sizing.md.tmpl
var sizingText string

// fleetCase is a line of what `go test ./pkg/fleet -simulation FILE` writes.
type fleetCase struct {
	Case     string  `json:"case"`
	Replicas int     `json:"replicas"`
	Messages int64   `json:"messages"`
	Bytes    int64   `json:"bytes"`
	Calls    int     `json:"calls"`
	Millis   float64 `json:"millis"`
}

// Delivered is how many messages the store hands out.
func (f fleetCase) Delivered() int64 { return f.Messages * int64(f.Replicas) }

// sizing is what the text is filled with.
type sizing struct {
	results
	Fleet []fleetCase
}

// writeSizing writes envoy/sizing.md from the raw data of a run and of the simulation.
func writeSizing(_ context.Context, args []string, out, _ io.Writer) error {
	f := flag.NewFlagSet("sizing", flag.ContinueOnError)
	raw := f.String("raw", "bench.jsonl", "raw data of `bench run`")
	fleet := f.String("fleet", "fleet.jsonl", "figures of the simulated fleets")
	if err := parse(f, args); err != nil {
		return err
	}
	var s sizing
	var err error
	if s.results, err = read(*raw); err != nil {
		return err
	}
	if s.Fleet, err = readFleet(*fleet); err != nil {
		return err
	}
	t, err := template.New("sizing").Option("missingkey=error").Parse(sizingText)
	if err != nil {
		return err
	}
	return t.Execute(out, s)
}

// readFleet returns the cases together, each by the size of the fleet.
func readFleet(path string) (all []fleetCase, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for dec := json.NewDecoder(bufio.NewReader(file)); ; {
		var c fleetCase
		switch err := dec.Decode(&c); {
		case errors.Is(err, io.EOF):
			slices.SortStableFunc(all, func(a, b fleetCase) int { return cmp.Compare(a.Case, b.Case) })
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, c)
	}
}

// Machine is where it was measured.
func (s sizing) Machine() machine { return s.machine }

// kinds are the exchanges that a fleet is sized for, by the workload that measured them.
var kinds = []struct {
	workload, name string
	lasts          float64 // seconds that one is open, in the world
}{
	{"json-small", "small JSON", 5},
	{"json-100k", "100 KB prompt", 10},
	{"stream-200", "stream of 200 events", 20},
}

// Shape of a replica, and how full it is to be: what envoy/kubernetes/base/scaling.yaml scales at.
const (
	coresEach = 2
	full      = 0.6
)

// Size is one row: what so many exchanges a second of one kind need.
type Size struct {
	Kind                      string
	Rate                      int
	ServiceCPU, EnvoyCPU      string // milliseconds an exchange
	ServiceCores, EnvoyCores  string
	Replicas, Envoys          int
	Open                      int
	ServiceMemory, EnvoyTotal string // GiB, of all replicas together
}

// Sizes are the rows for every kind and rate, of those kinds that were measured.
func (s sizing) Sizes() (rows []Size) {
	for _, k := range kinds {
		some := s.of(k.workload, "understudy")
		if len(some) == 0 {
			continue
		}
		service, envoy := middle(cpu("service").each(some)), middle(cpu("envoy").each(some)) // s for 1,000 = ms for one
		for _, rate := range []int{1_000, 10_000, 100_000} {
			rows = append(rows, s.size(k.name, rate, k.lasts, service, envoy))
		}
	}
	return rows
}

func (s sizing) size(kind string, rate int, lasts, service, envoy float64) Size {
	cores := func(ms float64) float64 { return float64(rate) * ms / 1000 }
	replicas := func(ms float64) int { return max(2, int(math.Ceil(cores(ms)/full/coresEach))) }
	open := int(float64(rate) * lasts)
	gib := func(process string, n int) string {
		idle, each := s.memory(process)
		return fmt.Sprintf("%.1f", (idle*float64(n)+each*float64(open))/(1<<30))
	}
	n, e := replicas(service), replicas(envoy)
	return Size{kind, rate, fmt.Sprintf("%.2f", service), fmt.Sprintf("%.2f", envoy),
		fmt.Sprintf("%.1f", cores(service)), fmt.Sprintf("%.1f", cores(envoy)), n, e, open, gib("service", n), gib("envoy", e)}
}

// memory is what a process has when it is idle, and for each open stream, in bytes.
func (s sizing) memory(process string) (idle, each float64) {
	some := s.of("open-2000", "understudy")
	return middle(figure(func(r sample) float64 { return float64(r.Idle[process]) }).each(some)), middle(perStream(process).each(some))
}

// Memory is the same for the text, in MiB and KiB.
func (s sizing) Memory(process string) string {
	idle, each := s.memory(process)
	return fmt.Sprintf("%.0f MiB idle and %.1f KiB", idle/(1<<20), each/(1<<10))
}
