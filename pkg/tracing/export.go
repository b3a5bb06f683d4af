package tracing

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// Bounds of what a collector costs that is slow or away: memory for so many spans, and the rest is dropped and counted.
const (
	maxWaiting = 4096
	batch      = 512
	every      = time.Second
	sendTime   = 5 * time.Second  // one request to the collector
	batchTime  = 15 * time.Second // a batch, with its retries
)

// exporter sends batches to the collector, and counts what is lost on the way. The SDK's own batcher drops silently, and
// tells its errors to a global.
type exporter struct {
	sdk.SpanExporter
	waiting  atomic.Int64 // spans that have ended and are not yet sent or dropped
	full     prometheus.Counter
	unsent   prometheus.Counter
	log      *slog.Logger
	away     atomic.Bool // the collector did not take the last batch
	finished atomic.Bool
}

func newExporter(to sdk.SpanExporter, reg prometheus.Registerer, log *slog.Logger) *exporter {
	dropped := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "understudy_spans_dropped_total", Help: "Spans that no collector got, by why: too many waited, or it did not take them."}, []string{"reason"})
	reg.MustRegister(dropped)
	return &exporter{SpanExporter: to, full: dropped.WithLabelValues("full"), unsent: dropped.WithLabelValues("unsent"), log: log}
}

// ExportSpans implements sdk.SpanExporter.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	e.waiting.Add(-int64(len(spans)))
	if err != nil {
		e.unsent.Add(float64(len(spans)))
	}
	if away := err != nil; e.away.Swap(away) != away && !e.finished.Load() { // what is lost at the end, Stop has told
		e.tell(err)
	}
	return nil
}

// tell logs that the collector has gone, or is back.
func (e *exporter) tell(err error) {
	if err != nil {
		e.log.Warn("the collector takes no spans", "error", err.Error())
		return
	}
	e.log.Info("the collector takes spans again")
}

// end ends what the exporter is still waiting for.
func (e *exporter) end(ctx context.Context) error {
	if e.finished.Swap(true) {
		return nil
	}
	return e.SpanExporter.Shutdown(ctx)
}

// Shutdown implements sdk.SpanExporter.
func (e *exporter) Shutdown(ctx context.Context) error { return e.end(ctx) }

// gate lets a span into the SDK's batcher while there is room: it never waits.
type gate struct {
	sdk.SpanProcessor
	out *exporter
}

func newGate(out *exporter) *gate {
	return &gate{out: out, SpanProcessor: sdk.NewBatchSpanProcessor(out,
		sdk.WithMaxQueueSize(maxWaiting), sdk.WithMaxExportBatchSize(batch), sdk.WithBatchTimeout(every), sdk.WithExportTimeout(batchTime))}
}

// OnEnd implements sdk.SpanProcessor.
func (g *gate) OnEnd(s sdk.ReadOnlySpan) {
	if g.out.waiting.Add(1) > maxWaiting {
		g.out.waiting.Add(-1)
		g.out.full.Inc()
		return
	}
	g.SpanProcessor.OnEnd(s)
}
