package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestOnlyWhatAFileHoldsUnwrittenIsGivenBack(t *testing.T) {
	const smaps = `00400000-01956000 r-xp 00000000 fe:00 77 /opt/extproc
Size:              21848 kB
Rss:               18484 kB
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd ex mr mw me
01956000-031f0000 r--p 01556000 fe:00 77 /opt/extproc
Rss:               19536 kB
Anonymous:             4 kB
Swap:                  0 kB
VmFlags: rd mr mw me
031f0000-031f8000 r--p 02df0000 fe:00 77 /opt/extproc
Anonymous:             0 kB
Swap:                 32 kB
VmFlags: rd mr mw me
031f8000-032e1000 rw-p 02df8000 fe:00 77 /opt/extproc
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd wr mr mw me
032e1000-05335000 rw-p 00000000 00:00 0
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd wr mr mw me
7f7a891df000-7f7a89335000 r-xp 00026000 fe:00 88 /usr/lib/libc.so.6
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd ex mr mw me
7f7a89400000-7f7a89500000 r--s 00000000 fe:00 77 /opt/extproc
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd mr mw me
`
	want := []mapping{{0x400000, 0x1956000}, {0x7f7a89400000, 0x7f7a89500000}}
	if got := unwritten(strings.NewReader(smaps), "/opt/extproc"); !slices.Equal(got, want) {
		t.Errorf("unwritten(smaps) = %x, want %x", got, want)
	}
}

func TestWhatTheStartReadIsGivenBack(t *testing.T) {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Skip(err) // no Linux
	}
	before := resident(t, program)
	forgetStart()
	if after := resident(t, program); after >= before {
		t.Errorf("%d kB of the program are resident, %d were before", after, before)
	}
}

// resident is how much of a file is, in kB.
func resident(t *testing.T, file string) (kb int) {
	t.Helper()
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	in := false
	for line := range strings.Lines(string(smaps)) {
		fields := strings.Fields(line)
		if strings.Contains(fields[0], "-") {
			in = strings.Contains(line, file)
		} else if in && fields[0] == "Rss:" {
			n, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}
			kb += n
		}
	}
	return kb
}

func TestGarbageIsAllowedByHowFastItIsMade(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct {
		name        string
		inUse, made uint64
		percent     int
	}{
		{"a service at rest", 8 * mib, mib / 4, 100},
		{"a service that has next to nothing in use", 0, 2 * mib, 700},
		{"a small service in use", 7 * mib, 3 * mib, 300},
		{"some streams", 20 * mib, 2 * mib, 40},
		{"some slow streams", 20 * mib, mib / 2, 40},
		{"more streams", 28 * mib, mib, 16},
		{"two thousand slow streams", 40 * mib, 2 * mib, 16},
		{"two thousand streams", 40 * mib, 16 * mib, 50},
		{"a burst", 40 * mib, 900 * mib, 100},
	} {
		if got := percentFor(tt.inUse, tt.made); got != tt.percent {
			t.Errorf("%s: percentFor(%d, %d) = %d, want %d", tt.name, tt.inUse, tt.made, got, tt.percent)
		}
	}
}

// inUse keeps so many bytes in use.
func inUse(t *testing.T, bytes int) {
	all := make([]*byte, bytes>>10)
	for i := range all {
		all[i] = &make([]byte, 1<<10)[0]
	}
	t.Cleanup(func() { runtime.KeepAlive(all) })
	runtime.GC()
}

func TestTheRateIsBelievedWhenItRisesAndSlowlyWhenItFalls(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	inUse(t, 2*smallHeap)
	synctest.Test(t, func(t *testing.T) {
		c := newCollector()
		second := func() {
			time.Sleep(time.Second)
			c.tune()
		}
		second()
		c.rate = busy // what a burst leaves
		second()
		if c.percent != 50 {
			t.Errorf("GOGC a second after a burst = %d, want half", c.percent)
		}
		for range 5 {
			second()
		}
		if c.percent != leastGarbage {
			t.Errorf("GOGC some seconds after a burst = %d, want %d", c.percent, leastGarbage)
		}
		inUse(t, 8<<20) // and garbage before
		c.collected()   // no time at all after the last
		if c.percent != 100 {
			t.Errorf("GOGC at the second collection of a burst = %d, want 100", c.percent)
		}
		time.Sleep(time.Minute)
		if c.collected(); c.percent != 100 {
			t.Errorf("GOGC at a collection in between = %d, want 100 until the second is over", c.percent)
		}
	})
}

func TestAFewBytesPercentageDoesNotOutliveThem(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	c := newCollector()
	c.set(busy)
	c.percent = 700 // as of nothing in use
	inUse(t, 2*smallHeap)
	if c.collected(); c.percent > 100 {
		t.Errorf("GOGC with much in use after a collection = %d, want at most 100", c.percent)
	}
}

func TestCollectionsAreHeardOf(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	collections := eachCollection(ctx)
	<-collections // as one is over already
	late := time.After(10 * time.Second)
	for heard := 0; heard < 3; {
		runtime.GC()
		select {
		case <-collections:
			heard++
		case <-late:
			t.Fatalf("%d collections were told of in 10 s", heard)
		default:
		}
	}
}

func TestAnOperatorsOwnPercentageIsLeftAlone(t *testing.T) {
	for _, tt := range []struct {
		gogc string
		want int
	}{{"77", 77}, {"", leastGarbage}} {
		t.Run("GOGC="+tt.gogc, func(t *testing.T) {
			t.Setenv("GOGC", tt.gogc)
			defer debug.SetGCPercent(debug.SetGCPercent(77))
			inUse(t, 2*smallHeap)
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				collections := make(chan struct{}, 1)
				collections <- struct{}{}
				thrift(ctx, collections)
				if heard := len(collections) == 0; heard != (tt.gogc == "") {
					t.Errorf("a collection was heard of: %t", heard)
				}
			})
			if got := debug.SetGCPercent(77); got != tt.want {
				t.Errorf("GOGC after a minute = %d, want %d", got, tt.want)
			}
		})
	}
}
