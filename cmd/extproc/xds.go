package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"understudy/pkg/config"
	"understudy/pkg/envoyconf/xds"
)

// newControlPlane is nil where the config asks for none. Its streams end with those of the gRPC server.
func newControlPlane(cfg *config.Config, reg prometheus.Registerer, log *slog.Logger) (*xds.Server, error) {
	if !cfg.Envoy.XDS {
		return nil, nil
	}
	return xds.New(context.Background(), cfg, reg, log)
}

// lostEnvoys notices an Envoy whose machine is gone: until then every reload waits for its answer.
func lostEnvoys(cfg *config.Config) []grpc.ServerOption {
	if !cfg.Envoy.XDS {
		return nil
	}
	return []grpc.ServerOption{grpc.KeepaliveParams(keepalive.ServerParameters{Time: 20 * time.Second, Timeout: 10 * time.Second})}
}

// prepare makes the Envoys ready for next, before anything is sent to what it names.
func (a *app) prepare(ctx context.Context, next *config.Config) error {
	if a.xds == nil {
		return nil
	}
	return a.xds.Publish(ctx, next)
}

// retire lets the Envoys forget what no exchange can need any more.
func (a *app) retire(ctx context.Context) {
	if a.xds == nil {
		return
	}
	if err := a.xds.Retire(ctx); err != nil && !errors.Is(err, context.Canceled) {
		a.log.Error("Envoys keep clusters that the config has no more", "error", err.Error())
	}
}
