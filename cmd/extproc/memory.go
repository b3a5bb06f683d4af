package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	gauges "runtime/metrics"
	"strings"
	"syscall"
	"time"
)

// collector sets how much garbage there may be before it is collected, in percent of what is in use (GOGC). The usual 100 is
// as much memory again as 2,000 open streams take, which make little garbage. In proportion to how fast it is made, collecting
// it takes the same share of time, some 2 % of a core; a busy service has its 100, and one that has little in use may fill a
// small heap first: collecting took a tenth of its time. The rate is believed at once when it rises, and half of it a second
// later: the next burst may be near.
type collector struct {
	gauges  [3]gauges.Sample
	at      time.Time
	made    uint64 // bytes, from the start until then
	rate    uint64 // bytes a second
	percent int
}

const (
	leastGarbage = 16       // percent
	busy         = 32 << 20 // bytes of garbage a second
	smallHeap    = 28 << 20 // bytes, garbage included, that a service in use may have in any case
	inService    = 1 << 20  // bytes of garbage a second: it is in use
	leastInUse   = 4 << 20  // bytes: Go's least heap is that times the percentage

	leastSpan = 50 * time.Millisecond // that a rate is taken of: one large body is no rate
)

func newCollector() *collector {
	c := &collector{gauges: [3]gauges.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/heap/allocs:bytes"}}}
	c.measure()
	return c
}

// collected is called after a collection: what is in use is known anew, and one that comes soon after another is a burst's,
// which need not wait for its second.
func (c *collector) collected() { c.set(max(c.measure(), c.rate)) }

// tune is called each second.
func (c *collector) tune() { c.set(max(c.measure(), c.rate/2)) }

// measure is how fast garbage has been made since the last time.
func (c *collector) measure() uint64 {
	gauges.Read(c.gauges[:])
	now, made := time.Now(), c.gauges[2].Value.Uint64()
	rate := float64(made-c.made) / max(now.Sub(c.at), leastSpan).Seconds()
	c.at, c.made = now, made
	return uint64(rate)
}

func (c *collector) set(rate uint64) {
	c.rate = rate
	percent := percentFor(c.gauges[0].Value.Uint64()+c.gauges[1].Value.Uint64(), rate)
	if percent != c.percent { // to set it stops the world
		c.percent = percent
		debug.SetGCPercent(percent)
	}
}

func percentFor(inUse, rate uint64) int {
	percent := min(max(rate*100/busy, leastGarbage), 100)
	if inUse < smallHeap {
		room := (smallHeap - inUse) * 100 / max(inUse, leastInUse)
		if rate < inService {
			room = min(room, 100)
		}
		percent = max(percent, room)
	}
	return int(percent)
}

// eachCollection sends after nearly each collection from now on, until ctx ends, to whom is listening.
func eachCollection(ctx context.Context) <-chan struct{} {
	over := make(chan struct{}, 1)
	var next func(struct{})
	next = func(struct{}) {
		if ctx.Err() == nil {
			runtime.AddCleanup(new(*int), next, struct{}{}) // of what nobody holds
		}
		select {
		case over <- struct{}{}:
		default:
		}
	}
	next(struct{}{})
	return over
}

// started is how long after the start the pages that only the start needed are given back.
const started = 2 * time.Second

// thrift keeps memory small until ctx ends, and hears of collections. An operator who sets GOGC knows better about garbage, and
// is left alone.
func thrift(ctx context.Context, collections <-chan struct{}) {
	tick, rested := time.NewTicker(time.Second), time.NewTimer(started)
	defer tick.Stop()
	defer rested.Stop()
	if os.Getenv("GOGC") != "" {
		tick.Stop()
		collections = nil
	}
	garbage := newCollector()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			garbage.tune()
		case <-collections:
			garbage.collected()
		case <-rested.C:
			forgetStart()
		}
	}
}

// forgetStart unmaps what the start has read of the program: tables of each protocol and platform that it could speak, and most
// of them are never read again. They are pages of a file, and the kernel has them as long as it likes; but they are no longer
// counted as resident, and not in use, so they are the first to go. What is needed is mapped again unnoticed. Where there is no
// such thing as smaps, nothing changes.
func forgetStart() {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer f.Close()
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	for _, m := range unwritten(f, program) {
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, m.from, m.to-m.from, syscall.MADV_DONTNEED) // or it stays
	}
}

type mapping struct{ from, to uintptr }

// unwritten are the mappings of a file that hold nothing but what is in that file: read-only, and no page of them copied, in
// memory or swapped out, as relocations or a debugger's breakpoints would have it. The format is that of proc_pid_smaps(5), in
// which VmFlags ends a mapping.
func unwritten(smaps io.Reader, file string) (all []mapping) {
	var m mapping
	var wanted bool
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		line := lines.Text()
		name, value, _ := strings.Cut(line, ":")
		var at mapping
		var mode string
		switch n, _ := fmt.Sscanf(line, "%x-%x %s", &at.from, &at.to, &mode); {
		case n == 3:
			m, wanted = at, strings.HasPrefix(mode, "r-") && strings.HasSuffix(line, " "+file)
		case name == "Anonymous", name == "Swap":
			wanted = wanted && strings.TrimSpace(value) == "0 kB"
		case name == "VmFlags" && wanted:
			all = append(all, m)
		}
	}
	return all
}
