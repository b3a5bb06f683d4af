package classify

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is the time this benchmark's thread has run. On a machine that others use too, that is the time that
// says something.
func threadTime(b *testing.B) time.Duration {
	runtime.LockOSThread() // for good: the benchmark has the thread to itself
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// reportRate reports bytes a loop as megabytes a second of the thread's time.
func reportRate(b *testing.B, bytes int, spent time.Duration) {
	b.ReportMetric(float64(bytes)*float64(b.N)/spent.Seconds()/1e6, "cpuMB/s")
}

func BenchmarkStreamFeed(b *testing.B) {
	for _, tt := range contentEvents {
		for _, chunk := range []struct {
			name   string
			events int
		}{{"one-event", 1}, {"16-events", 16}} {
			b.Run(tt.name+"/"+chunk.name, func(b *testing.B) {
				r, p := response(tt.api, tt.head), []byte(strings.Repeat(tt.event, chunk.events))
				b.ReportAllocs()
				from := threadTime(b)
				for b.Loop() {
					r.Feed(p)
				}
				reportRate(b, len(p), threadTime(b)-from)
				b.ReportMetric(float64(len(tt.event)), "B/event")
				if v := r.Verdict(); v.Class != None {
					b.Fatalf("Verdict() = %+v, want none", v)
				}
			})
		}
	}
}
