package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// results are what raw data say.
type results struct {
	machine machine
	samples []sample
}

// report writes the results page from raw data.
func report(_ context.Context, args []string, out, _ io.Writer) error {
	f := flag.NewFlagSet("report", flag.ContinueOnError)
	path := f.String("raw", "bench.jsonl", "raw data of `bench run`")
	if err := parse(f, args); err != nil {
		return err
	}
	r, err := read(*path)
	if err != nil {
		return err
	}
	p := &page{w: bufio.NewWriter(out), results: r}
	p.write()
	return p.w.Flush()
}

func read(path string) (r results, err error) {
	file, err := os.Open(path)
	if err != nil {
		return r, err
	}
	defer file.Close()
	dec := json.NewDecoder(bufio.NewReader(file))
	if err := dec.Decode(&r.machine); err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	for {
		var s sample
		switch err := dec.Decode(&s); {
		case errors.Is(err, io.EOF):
			return r, nil
		case err != nil:
			return r, fmt.Errorf("%s: after %d samples: %w", path, len(r.samples), err)
		}
		r.samples = append(r.samples, s)
	}
}

// of are the samples of one variant under one workload, or with "" under all, in the order of the rounds.
func (r results) of(workload, variant string) (some []sample) {
	for _, s := range r.samples {
		if (workload == "" || s.Workload == workload) && s.Variant == variant {
			some = append(some, s)
		}
	}
	return some
}

// figure is a number of one round.
type figure func(sample) float64

// Figures. Times are in microseconds, processor time in seconds for 1,000 exchanges, memory in bytes.
func latency(q float64) figure {
	return func(s sample) float64 { return micros(s.Latency.quantile(q)) }
}
func first(q float64) figure { return func(s sample) float64 { return micros(s.First.quantile(q)) } }
func delay(q float64) figure { return func(s sample) float64 { return micros(s.Delay.quantile(q)) } }
func rate(s sample) float64  { return float64(s.Exchanges) / s.Seconds }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// cpu is the sum of those processes.
func cpu(processes ...string) figure {
	return func(s sample) float64 {
		var sum time.Duration
		for _, p := range processes {
			sum += s.CPU[p]
		}
		return sum.Seconds() * 1000 / float64(max(s.Exchanges, 1))
	}
}

// whole is all that a variant runs.
func whole(s sample) float64 { return cpu("envoy", "service", "gateway")(s) }

func rss(process string) figure { return func(s sample) float64 { return float64(s.RSS[process]) } }

// perStream is what each open stream adds to a process's memory, each round of them has a fresh process.
func perStream(process string) figure {
	return func(s sample) float64 { return float64(s.RSS[process]-s.Idle[process]) / float64(s.Clients) }
}

// each is a figure of some samples.
func (f figure) each(some []sample) (all []float64) {
	for _, s := range some {
		all = append(all, f(s))
	}
	return all
}

// middle is the median; of nothing it is 0.
func middle(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// against compares two variants round by round: rounds are interleaved, so that what else the machine does in one falls
// on both.
func (r results) against(workload string, f figure, a, b string, op func(a, b float64) float64) (all []float64) {
	base := r.of(workload, b)
	for _, s := range r.of(workload, a) {
		i := slices.IndexFunc(base, func(o sample) bool { return o.Round == s.Round })
		if i >= 0 && f(base[i]) > 0 {
			all = append(all, op(f(s), f(base[i])))
		}
	}
	return all
}

func ratio(a, b float64) float64 { return a / b }
func above(a, b float64) float64 { return a - b }
