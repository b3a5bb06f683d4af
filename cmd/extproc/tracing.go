package main

import (
	"context"
	"log/slog"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"

	"understudy/pkg/config"
	"understudy/pkg/processor"
	"understudy/pkg/tracing"
)

// newTracer lets p be traced where the config names a collector; nil where it does not.
func newTracer(cfg *config.Config, p *processor.Processor, reg prometheus.Registerer, log *slog.Logger) (*tracing.Tracer, error) {
	if cfg.Tracing.OTLP == nil {
		return nil, nil
	}
	o := tracing.Options{URL: cfg.Tracing.Spans(), Share: cfg.Tracing.Share, Replica: p.Replica(), Metrics: reg, Log: log}
	if info, ok := debug.ReadBuildInfo(); ok {
		o.Version = info.Main.Version
	}
	t, err := tracing.New(context.Background(), o)
	if err != nil {
		return nil, err
	}
	p.Trace(t)
	return t, nil
}

// stopTracing sends the last spans.
func (a *app) stopTracing(ctx context.Context) {
	if a.tracer != nil {
		a.tracer.Stop(ctx)
	}
}
