package processor

import (
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"

	"understudy/pkg/config"
)

func benchProcessor(tb testing.TB) *Processor {
	tb.Setenv("PROCESSOR_TEST_KEY", "k")
	cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, testYAML, ""))
	if err != nil {
		tb.Fatal(err)
	}
	return New(cfg, NewMetrics(prometheus.NewRegistry()), slog.New(slog.NewTextHandler(io.Discard, nil)))
}

// recordedNow is a recording whose exchange begins now.
func recordedNow(tb testing.TB, name string) []*extproc.ProcessingRequest {
	messages := readRecorded(tb, name)
	setHeader(messages[0].GetRequestHeaders().Headers, "x-llm-start", strconv.FormatInt(time.Now().UnixMilli(), 10))
	return messages
}

// BenchmarkStep is a whole attempt without gRPC: headers, body, the recorded stream, end.
func BenchmarkStep(b *testing.B) {
	p := benchProcessor(b)
	messages := recordedNow(b, "stream")
	b.ReportAllocs()
	for b.Loop() {
		a := newAttempt(b.Context(), p)
		for _, m := range messages {
			a.step(m)
			a.reuse()
		}
		a.close()
	}
}

const event = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"%s\"}}\n\n"

// streaming is an attempt whose stream has begun, and one more content event of some 200 bytes for it.
func streaming(tb testing.TB) (*attempt, *extproc.ProcessingRequest) {
	a := newAttempt(tb.Context(), benchProcessor(tb))
	for _, m := range recordedNow(tb, "stream")[:4] {
		a.step(m)
		a.reuse()
	}
	text := fmt.Sprintf(event, strings.Repeat("x", 100))
	return a, &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseBody{
		ResponseBody: &extproc.HttpBody{Body: []byte(text)}}}
}

// BenchmarkEvent is one content event of a committed stream, without gRPC.
func BenchmarkEvent(b *testing.B) {
	a, m := streaming(b)
	b.ReportAllocs()
	for b.Loop() {
		a.step(m)
		a.reuse()
	}
}

func TestAContentEventAllocatesNothing(t *testing.T) {
	a, m := streaming(t)
	defer a.close()
	a.step(m)
	if a.state != committed {
		t.Fatalf("state = %s, want committed", a.state)
	}
	if got := testing.AllocsPerRun(1000, func() { a.step(m); a.reuse() }); got > 0 {
		t.Errorf("allocations for a content event = %v, want 0", got)
	}
}
