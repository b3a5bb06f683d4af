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

// garbage is how much of it there may be before it is collected, in percent of what is in use (GOGC): as much again while that
// is little, and a quarter of it at last. What is in use are open streams, which make little garbage.
var garbage = []struct {
	below   uint64 // bytes in use
	percent int
}{{16 << 20, 100}, {32 << 20, 50}}

// collector follows what is in use. An operator who sets GOGC knows better, and is left alone.
type collector struct {
	percent int
	inUse   []gauges.Sample // at the last collection
}

// newCollector is nil where the operator has decided.
func newCollector() *collector {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	return &collector{percent: 100, inUse: []gauges.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}}}
}

// tune sets the percentage that fits what was in use at the last collection.
func (c *collector) tune() {
	if c == nil {
		return
	}
	gauges.Read(c.inUse)
	if percent := percentFor(c.inUse[0].Value.Uint64() + c.inUse[1].Value.Uint64()); percent != c.percent {
		c.percent = percent
		debug.SetGCPercent(percent)
	}
}

func percentFor(inUse uint64) int {
	for _, g := range garbage {
		if inUse < g.below {
			return g.percent
		}
	}
	return 25
}

// started is how long after the start the pages that only the start needed are given back.
const started = 5 * time.Second

// madvCold is MADV_COLD of madvise(2), Linux 5.4.
const madvCold = 20

// forgetStart unmaps what the start has read of the program: tables of each protocol and platform that it could speak, about
// 40 MB, most of them never read again. They are files' pages, which the kernel keeps as long as it has room; marked cold
// first, they are the first that it takes, and no part of a container's working set. What is needed is mapped again unnoticed.
// Where there is no such thing as smaps, or no permission, nothing changes.
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
		for _, advice := range []uintptr{madvCold, syscall.MADV_DONTNEED} {
			_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, m.from, m.to-m.from, advice)
		}
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
