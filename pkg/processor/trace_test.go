package processor

import (
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	dto "github.com/prometheus/client_model/go"

	"understudy/pkg/classify"
	"understudy/pkg/config"
)

const sampledParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestTraceparent(t *testing.T) {
	const id, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	rows := []struct {
		name, value string
		id          string
		sampled     bool
	}{
		{"the specification's example is not read", sampledParent, id, true},
		{"an unsampled trace is sampled", "00-" + id + "-" + parent + "-00", id, false},
		{"other flags hide the sampled one", "00-" + id + "-" + parent + "-03", id, true},
		{"a later version that says more is not read", "01-" + id + "-" + parent + "-01-what-comes", id, true},
		{"a later version without a dash is read", "01-" + id + "-" + parent + "-01x", "", false},
		{"version 00 with more is read", sampledParent + "-more", "", false},
		{"version ff is read", "ff" + sampledParent[2:], "", false},
		{"capital letters are read", strings.ToUpper(sampledParent), "", false},
		{"a trace of zeros is one", "00-" + strings.Repeat("0", 32) + "-" + parent + "-01", "", false},
		{"a parent of zeros is one", "00-" + id + "-" + strings.Repeat("0", 16) + "-01", "", false},
		{"half a header is read", sampledParent[:40], "", false},
		{"no hex is read", strings.Replace(sampledParent, "a", "g", 1), "", false},
		{"an empty header is read", "", "", false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			for _, h := range []*corev3.HeaderValue{{RawValue: []byte(row.value)}, {Value: row.value}} {
				if got := traceOf(h); got.String() != row.id || got.Sampled != row.sampled {
					t.Errorf("traceOf(%s) = %s, sampled %t, want %s, %t", row.value, got, got.Sampled, row.id, row.sampled)
				}
			}
		})
	}
}

func FuzzTraceparent(f *testing.F) {
	f.Add([]byte(sampledParent))
	f.Add([]byte("cc" + sampledParent[2:] + "-x"))
	f.Fuzz(func(t *testing.T, value []byte) {
		got := traceOf(&corev3.HeaderValue{RawValue: value})
		if got == (Trace{}) {
			return
		}
		want := fmt.Sprintf("%s-%s", got, hex.EncodeToString(got.Parent[:]))
		if string(value[3:52]) != want {
			t.Errorf("traceOf(%q) = %s, which is not what it says", value, want)
		}
	})
}

// spans is a tracer that keeps what it hears, and wants all.
type spans struct {
	attempts  []*AttemptRecord
	exchanges []*Record
}

func (s *spans) Join(_ string, t Trace) Trace {
	if t.ID == ([16]byte{}) {
		t = Trace{ID: [16]byte{9}, Sampled: true}
	}
	return t
}
func (s *spans) Attempt(r *AttemptRecord) { s.attempts = append(s.attempts, r) }
func (s *spans) Exchange(r *Record)       { s.exchanges = append(s.exchanges, r) }

// traced is attempt n of an exchange with a traceparent.
func (b *bench) traced(recording, exchange string, n int, parent string) {
	messages := readRecorded(b.t, recording)
	h := messages[0].GetRequestHeaders().Headers
	setHeader(h, "x-envoy-attempt-count", fmt.Sprint(n))
	setHeader(h, "x-llm-exchange", exchange)
	setHeader(h, "traceparent", parent)
	c := b.open()
	c.tell(messages...)
	c.hangUp()
}

func TestATracerHearsOfEachAttemptAndOfTheirExchange(t *testing.T) {
	in(t, "", func(b *bench) {
		s := &spans{}
		b.p.Trace(s)
		b.traced("529", "x1", 1, sampledParent)
		b.traced("stream", "x1", 2, sampledParent)
		b.traced("json", "x2", 1, strings.TrimSuffix(sampledParent, "1")+"0") // its client wants none
		if len(s.attempts) != 2 || len(s.exchanges) != 1 {
			t.Fatalf("heard of %d attempts and %d exchanges, want 2 and 1", len(s.attempts), len(s.exchanges))
		}
		first, last, x := s.attempts[0], s.attempts[1], s.exchanges[0]
		if first.Verdict.Class != classify.Overloaded || first.Target.Name != "a/sonnet" || first.Trace.String() != x.Trace.String() || first.Sent.IsZero() {
			t.Errorf("the first attempt = %+v", first)
		}
		if last.Verdict.Class != classify.OK || last.Rung != 1 || last.Content.IsZero() || !last.Stream || last.Attempt != 2 {
			t.Errorf("the last attempt = %+v", last)
		}
		if x.Outcome != OutcomeFallback || x.Status != 200 || x.Committed.IsZero() || len(x.Past) != 1 || x.Trace.Parent != last.Trace.Parent {
			t.Errorf("the exchange = %+v", x)
		}
		exemplars := 0
		families, err := b.reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.Metric {
				exemplars += exemplarsOf(t, f.GetName(), m)
			}
		}
		if exemplars < 3 { // one phase each of request and response, and the first content
			t.Errorf("%d exemplars of the trace, want one for each latency histogram", exemplars)
		}
	})
}

func exemplarsOf(t *testing.T, name string, m *dto.Metric) (n int) {
	for _, bucket := range m.GetHistogram().GetBucket() {
		if e := bucket.GetExemplar(); e != nil {
			n++
			if got := e.Label[0]; got.GetName() != "trace_id" || got.GetValue() != sampledParent[3:35] {
				t.Errorf("an exemplar of %s has %v", name, e.Label)
			}
		}
	}
	return n
}

func TestATraceparentCostsNothingWhileNothingIsTraced(t *testing.T) {
	t.Setenv("PROCESSOR_TEST_KEY", "k")
	cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, testYAML, ""))
	if err != nil {
		t.Fatal(err)
	}
	p := benchProcessor(t)
	p.Use(cfg, nil)
	p.log = slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError + 1}))
	allocs := func(header string) float64 {
		messages := recordedNow(t, "stream")
		setHeader(messages[0].GetRequestHeaders().Headers, header, sampledParent)
		return testing.AllocsPerRun(200, func() {
			a := newAttempt(t.Context(), p)
			for _, m := range messages {
				a.step(m)
				a.reuse()
			}
			a.close()
		})
	}
	if with, without := allocs("traceparent"), allocs("unheeded"); with > without {
		t.Errorf("allocations with a traceparent = %v, want %v as without", with, without)
	}
}
