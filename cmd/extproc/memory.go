package main

import (
	"bufio"
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
// it takes the same share of time, some 2 % of a core; a busy service has its 100.
type collector struct {
	percent int
	gauges  [3]gauges.Sample
	made    uint64 // bytes, since the start
}

const (
	leastGarbage = 12       // percent
	busy         = 32 << 20 // bytes of garbage a second
	little       = 16 << 20 // bytes in use: too little to save on
)

// newCollector is nil where the operator has decided.
func newCollector() *collector {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	return &collector{percent: 100, gauges: [3]gauges.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/heap/allocs:bytes"}}}
}

// tune is called each second.
func (c *collector) tune() {
	if c == nil {
		return
	}
	gauges.Read(c.gauges[:])
	inUse, made := c.gauges[0].Value.Uint64()+c.gauges[1].Value.Uint64(), c.gauges[2].Value.Uint64()
	percent := percentFor(inUse, made-c.made)
	c.made = made
	if off := percent - c.percent; off != 0 && max(off, -off) >= c.percent/8 { // to set it stops the world for a moment
		c.percent = percent
		debug.SetGCPercent(percent)
	}
}

func percentFor(inUse, made uint64) int {
	if inUse < little {
		return 100
	}
	return int(min(max(made*100/busy, leastGarbage), 100))
}

// started is how long after the start the pages that only the start needed are given back.
const started = 2 * time.Second

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

// unwritten are the mappings of a file that hold nothing but what is in that file: read-only, and no page of them copied
// (as a debugger's breakpoint would have it). The format is that of proc_pid_smaps(5).
func unwritten(smaps io.Reader, file string) (all []mapping) {
	var m mapping
	var wanted bool
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		line := lines.Text()
		var at mapping
		var mode string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &at.from, &at.to, &mode); n == 3 {
			m, wanted = at, strings.HasPrefix(mode, "r-") && strings.HasSuffix(line, " "+file)
		} else if wanted && strings.HasPrefix(line, "Anonymous:") && strings.Fields(line)[1] == "0" {
			all = append(all, m)
		}
	}
	return all
}
