package processor

import (
	"runtime"
	"strconv"
	"strings"
	"testing"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// ceilings are how many allocations, and bytes of them, a whole attempt may take without gRPC. They stand above
// what it took when they were last lowered by what the race detector takes. Who needs more raises them in the same change,
// and says why.
var ceilings = []struct {
	name, recording string
	prompt          int // bytes that the request has beside the recorded ones
	allocs, bytes   float64
}{
	{"a whole answer", "json", 0, 99, 14_400},
	{"a whole answer to a prompt of 100 KB", "json", 100_000, 101, 14_400},
	{"a stream", "stream", 0, 113, 15_600},
}

func TestAnAttemptAllocatesNoMoreThanItsCeiling(t *testing.T) {
	p := benchProcessor(t)
	for _, c := range ceilings {
		messages := recordedNow(t, c.recording)
		prompt(messages, c.prompt)
		allocs, bytes := allocated(200, func() { attemptOf(t, p, messages) })
		t.Logf("%s: %.1f allocations, %.0f bytes", c.name, allocs, bytes)
		if allocs > c.allocs || bytes > c.bytes {
			t.Errorf("an attempt with %s takes %.0f allocations of %.0f bytes, want at most %.0f of %.0f", c.name, allocs, bytes, c.allocs, c.bytes)
		}
	}
}

// prompt makes the recorded request longer by so many bytes.
func prompt(messages []*extproc.ProcessingRequest, n int) {
	if n == 0 {
		return
	}
	body := messages[1].GetRequestBody()
	text := strings.Repeat("What is past is prologue. ", n/26)
	body.Body = []byte(strings.Replace(string(body.Body), `"messages":[`, `"messages":[{"role":"user","content":"`+text+`"},`, 1))
	setHeader(messages[0].GetRequestHeaders().Headers, "content-length", strconv.Itoa(len(body.Body)))
}

func attemptOf(tb testing.TB, p *Processor, messages []*extproc.ProcessingRequest) {
	a := newAttempt(tb.Context(), p)
	for _, m := range messages {
		a.step(m)
		a.reuse()
	}
	a.close()
}

// allocated is what a run of f takes from the heap, on average. A first run fills what is kept.
func allocated(runs int, f func()) (allocs, bytes float64) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	f()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		f()
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(runs), float64(after.TotalAlloc-before.TotalAlloc) / float64(runs)
}
