// Package tracing turns what the processor records into OpenTelemetry spans, and sends them to a collector by OTLP.
//
// An exchange is one span, a child of the span that its traceparent names, and each of its attempts is a child of that. The
// span of an exchange has the same id on every replica, so that attempts meet under it wherever they were made.
package tracing

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0" // the last of core with gen_ai.*; all of that is "Development"
	"go.opentelemetry.io/otel/trace"

	"understudy/pkg/processor"
)

// Options are where spans go and whose they are.
type Options struct {
	URL     *url.URL // takes spans: …/v1/traces
	Share   float64  // of the exchanges without a trace that get one, 0 to 1
	Replica string   // service.instance.id
	Version string   // of this service
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// Tracer implements processor.Tracer.
//
// Ownership: the app makes it with New and stops it after the last attempt. Concurrency: safe for all.
type Tracer struct {
	share    float64
	spans    trace.Tracer
	provider *sdk.TracerProvider
	exporter *exporter
	log      *slog.Logger
	base     context.Context // that spans are made in: without an end, as what they tell is past
}

// New makes a Tracer; nothing is sent before there are spans. What an OTLP exporter reads of its environment holds, too:
// OTEL_EXPORTER_OTLP_HEADERS, OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME.
func New(ctx context.Context, o Options) (*Tracer, error) {
	base := context.WithoutCancel(ctx)
	client, err := otlptracehttp.New(base,
		otlptracehttp.WithEndpointURL(o.URL.String()),
		otlptracehttp.WithTimeout(sendTime),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: sendTime, MaxElapsedTime: batchTime}),
	)
	if err != nil {
		return nil, fmt.Errorf("tracing.otlp: %w", err)
	}
	who, err := resource.New(base,
		resource.WithAttributes(semconv.ServiceName("understudy"), semconv.ServiceInstanceID(o.Replica), semconv.ServiceVersion(o.Version)),
		resource.WithFromEnv(),
	)
	if err != nil {
		return nil, fmt.Errorf("the environment's OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	out := newExporter(client, o.Metrics, o.Log)
	provider := sdk.NewTracerProvider(
		sdk.WithResource(who), sdk.WithSampler(sdk.AlwaysSample()), sdk.WithIDGenerator(ids{}), sdk.WithSpanProcessor(newGate(out)),
	)
	return &Tracer{
		share: o.Share, provider: provider, exporter: out, log: o.Log, base: base,
		spans: provider.Tracer("understudy", trace.WithInstrumentationVersion(o.Version), trace.WithSchemaURL(semconv.SchemaURL)),
	}, nil
}

// Stop sends what waits, until ctx is done. What a collector that is away does not take is lost, which is no reason not to
// stop.
func (t *Tracer) Stop(ctx context.Context) {
	err := t.provider.Shutdown(ctx)
	if err != nil {
		t.log.Warn("spans are lost at the end", "error", err.Error())
	}
	_ = t.exporter.end(ctx)
}

// Join implements processor.Tracer. The trace of an exchange without one is, like its span, derived from its id: every
// replica decides alike.
func (t *Tracer) Join(exchange string, at processor.Trace) processor.Trace {
	seed := exchange
	if seed == "" {
		seed = rand.Text()
	}
	if at.ID == ([16]byte{}) {
		if t.share <= 0 {
			return processor.Trace{}
		}
		id := sha256.Sum256([]byte("trace of " + seed))
		if float64(binary.BigEndian.Uint64(id[8:16])) >= t.share*math.MaxUint64 && t.share < 1 {
			return processor.Trace{}
		}
		at = processor.Trace{ID: [16]byte(id[:16]), Sampled: true}
	}
	if at.Sampled {
		span := sha256.Sum256([]byte("span of " + seed))
		at.Span = [8]byte(span[:8])
	}
	return at
}

// Exchange implements processor.Tracer.
func (t *Tracer) Exchange(r *processor.Record) {
	at := known{trace: r.Trace.ID, span: r.Trace.Span}
	ctx := context.WithValue(t.base, knownKey{}, at)
	if parent := trace.SpanID(r.Trace.Parent); parent.IsValid() {
		ctx = within(ctx, r.Trace.ID, parent)
	}
	t.span(ctx, "exchange", trace.SpanKindServer, r.Start, r.End, exchangeAttributes(r), failureOf(r))
}

// Attempt implements processor.Tracer.
func (t *Tracer) Attempt(r *processor.AttemptRecord) {
	ctx := within(t.base, r.Trace.ID, r.Trace.Span)
	t.span(ctx, "attempt", trace.SpanKindClient, r.Sent, r.End, attemptAttributes(r), errorOf(r.Verdict.Class))
}

// span makes a whole span; failure, where not "", is its error.type.
func (t *Tracer) span(ctx context.Context, name string, kind trace.SpanKind, from, to time.Time, about []attribute.KeyValue, failure string) {
	if to.Before(from) { // an exchange begins by the clock of the front
		from = to
	}
	_, span := t.spans.Start(ctx, name, trace.WithSpanKind(kind), trace.WithTimestamp(from), trace.WithAttributes(sound(about)...))
	if failure != "" {
		span.SetAttributes(semconv.ErrorTypeKey.String(failure))
		span.SetStatus(failed, failure)
	}
	span.End(trace.WithTimestamp(to))
}

// within is ctx inside a span that was made elsewhere.
func within(ctx context.Context, id trace.TraceID, span trace.SpanID) context.Context {
	return trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: id, SpanID: span, TraceFlags: trace.FlagsSampled, Remote: true,
	}))
}

// known are the ids that a span has to get; they come to the SDK in its context.
type known struct {
	trace trace.TraceID
	span  trace.SpanID
}

type knownKey struct{}

// ids gives spans the ids that are known for them, and others a new one.
type ids struct{}

func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	k, _ := ctx.Value(knownKey{}).(known)
	return k.trace, k.span
}

func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) (id trace.SpanID) {
	if k, ok := ctx.Value(knownKey{}).(known); ok {
		return k.span
	}
	_, _ = rand.Read(id[:]) // "never returns an error"
	return id
}
