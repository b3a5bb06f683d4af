package sse

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// event200 is one event of 200 bytes, as an LLM API sends them.
var event200 = "data: {\"type\":\"content_block_delta\",\"text\":\"" + strings.Repeat("x", 152) + "\"}\n\n"

// threadTime is the time this benchmark's thread has run: on a machine that others use too, that is what says something.
func threadTime(b *testing.B) time.Duration {
	runtime.LockOSThread() // for good: the benchmark has the thread to itself
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

func BenchmarkFramer(b *testing.B) {
	for _, tt := range []struct {
		name   string
		stream string
		chunk  int
	}{
		{"one-event", event200, 200},
		{"16-events", strings.Repeat(event200, 16), 3200},
		{"cut-events", strings.Repeat(event200, 15), 1000 - 1},
	} {
		b.Run(tt.name, func(b *testing.B) {
			f, stream := New(1<<20), []byte(tt.stream)
			b.ReportAllocs()
			from := threadTime(b)
			for b.Loop() {
				drain(f, stream, tt.chunk)
			}
			spent := threadTime(b) - from
			b.ReportMetric(float64(len(stream))*float64(b.N)/spent.Seconds()/1e6, "cpuMB/s")
		})
	}
}

// drain reads all the events of a stream, chunk bytes at a time, and counts them.
func drain(f *Framer, stream []byte, chunk int) (events int) {
	for ; len(stream) > 0; stream = stream[min(chunk, len(stream)):] {
		f.Feed(stream[:min(chunk, len(stream))])
		for _, ok := f.Next(); ok; _, ok = f.Next() {
			events++
		}
	}
	return events
}

func TestFramingAllocatesNothing(t *testing.T) {
	if len(event200) != 200 {
		t.Fatalf("len(event200) = %d", len(event200))
	}
	stream := []byte(strings.Repeat(event200, 20))
	for _, chunk := range []int{1, 100, 999, len(stream)} {
		f := New(1 << 20)
		drain(f, stream, chunk)
		n := 0
		if got := testing.AllocsPerRun(50, func() { n = drain(f, stream, chunk) }); got != 0 || n != 20 {
			t.Errorf("20 events, %d bytes at a time = %v allocations, %d events, want 0, 20", chunk, got, n)
		}
	}
}
