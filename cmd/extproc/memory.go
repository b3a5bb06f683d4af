package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	gauges "runtime/metrics"
	"strings"
	"syscall"
	"time"
)

// collector sets how much garbage there may be before it is collected, in percent of what is in use (GOGC). The usual 100 is
// as much memory again as 2,000 open streams take, which make little garbage. In proportion to how fast it is made, collecting
// it takes the same share of time, some 2 % of a core; a busy service has its 100. The rate is believed at once when it rises,
// and slowly when it falls: the next burst may be near.
type collector struct {
	gauges [3]gauges.Sample
	made   uint64 // bytes, since the start
	rate   uint64 // bytes a second
}

const (
	leastGarbage = 8        // percent
	busy         = 32 << 20 // bytes of garbage a second
	little       = 16 << 20 // bytes in use: too little to save on
)

func newCollector() *collector {
	return &collector{gauges: [3]gauges.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/heap/allocs:bytes"}}}
}

// tune is called each second.
func (c *collector) tune() {
	gauges.Read(c.gauges[:])
	made := c.gauges[2].Value.Uint64()
	c.rate = max(made-c.made, c.rate*7/8)
	c.made = made
	debug.SetGCPercent(percentFor(c.gauges[0].Value.Uint64()+c.gauges[1].Value.Uint64(), c.rate))
}

func percentFor(inUse, rate uint64) int {
	if inUse < little {
		return 100
	}
	return int(min(max(rate*100/busy, leastGarbage), 100))
}

// started is how long after the start the pages that only the start needed are given back.
const started = 2 * time.Second

// thrift keeps memory small until ctx ends. An operator who sets GOGC knows better about garbage, and is left alone.
func thrift(ctx context.Context) {
	tick, rested := time.NewTicker(time.Second), time.NewTimer(started)
	defer tick.Stop()
	defer rested.Stop()
	if os.Getenv("GOGC") != "" {
		tick.Stop()
	}
	garbage := newCollector()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			garbage.tune()
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
