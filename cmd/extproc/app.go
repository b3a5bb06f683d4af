package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	als "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"understudy/pkg/admin"
	"understudy/pkg/config"
	"understudy/pkg/processor"
	"understudy/pkg/provider/credential"
)

// app is the running service.
//
// Ownership: serve makes it with newApp, which binds; start runs it; stop waits for all that start began.
type app struct {
	cfg       *config.Config // as it started; reloads go to the processor
	log       *slog.Logger
	processor *processor.Processor
	shared    *shared
	calls     *calls
	creds     *credential.Set // of the config in use
	degraded  *degraded
	ledger    *ledger
	drills    *drills
	reloadOK  prometheus.Gauge

	grpcListener, adminListener net.Listener
	grpc                        *grpc.Server
	health                      *health.Server
	admin                       *http.Server

	ready    atomic.Bool
	stopping context.CancelFunc
	wg       sync.WaitGroup
	failed   chan error
}

// newApp opens the store before it listens: until then Envoy goes to other replicas.
func newApp(cfg *config.Config, log *slog.Logger) (_ *app, err error) {
	creds, err := serverCredentials(cfg.Server.TLS)
	if err != nil {
		return nil, err
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	a := &app{
		cfg: cfg, log: log,
		processor: processor.New(cfg, processor.NewMetrics(reg), log),
		reloadOK: prometheus.NewGauge(prometheus.GaugeOpts{Name: "understudy_config_reload_success",
			Help: "Whether the last reload of the config was used (1) or refused (0)."}),
		grpc:   grpc.NewServer(append(grpcOptions(cfg.Server), creds...)...),
		health: health.NewServer(),
		failed: make(chan error, 2),
	}
	a.creds = credential.New(cfg, nil, log)
	a.processor.Use(cfg, a.creds)
	a.calls = newCalls(a.processor, log)
	defer func() {
		if err != nil {
			err = errors.Join(err, a.release())
		}
	}()
	if a.shared, err = join(cfg, a.processor, log); err != nil {
		return nil, err
	}
	if a.degraded, err = newDegraded(a.shared.store, a.processor, reg, a.calls, log); err != nil {
		return nil, err
	}
	if a.drills, err = newDrills(a.shared.store, a.processor, log); err != nil {
		return nil, err
	}
	a.ledger = newLedger(a.shared.store, a.processor, reg, log)
	if a.grpcListener, err = listen(cfg.Server.GRPC); err != nil {
		return nil, fmt.Errorf("server.grpc: %w", err)
	}
	if a.adminListener, err = listen(cfg.Server.Admin); err != nil {
		return nil, fmt.Errorf("server.admin: %w", err)
	}
	a.register(reg)
	return a, nil
}

// release gives back what a newApp that fails has taken.
func (a *app) release() error {
	var errs []error
	if a.drills != nil && a.drills.listener != nil {
		errs = append(errs, a.drills.listener.Close())
	}
	if a.grpcListener != nil {
		errs = append(errs, a.grpcListener.Close())
	}
	if a.shared != nil {
		errs = append(errs, a.shared.close())
	}
	return errors.Join(errs...)
}

// register puts everything where it can be asked for.
func (a *app) register(reg *prometheus.Registry) {
	a.reloadOK.Set(1)
	reg.MustRegister(a.reloadOK, a.calls.probes, newStatusCollector(a.calls.feeds), newReadyCollector(a.processor), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "understudy_store_up", Help: "Whether the store answers (1) or this replica runs on its own state (0)."}, a.storeUp))
	extproc.RegisterExternalProcessorServer(a.grpc, a.processor)
	als.RegisterAccessLogServiceServer(a.grpc, &processor.AccessLog{Processor: a.processor})
	healthpb.RegisterHealthServer(a.grpc, a.health)
	a.admin = &http.Server{Handler: admin.Handler(a.offers(reg)), ReadHeaderTimeout: 10 * time.Second}
}

// offers is what the admin listener serves.
func (a *app) offers(reg *prometheus.Registry) admin.Options {
	return admin.Options{
		Metrics: reg, Ready: a.isReady, Switch: a.degraded.flip, Drills: a.drills, Local: a.cfg.Server.Admin.Local(),
		Token: a.adminToken,
		Job: func(ctx context.Context, id string) (int, []byte) {
			ans := a.degraded.ladder.AnyJob(ctx, id)
			return ans.Status, ans.Body
		},
	}
}

// adminToken is what callers of the admin listener must show, "" where the config asks for nothing. While what it asks for
// is not there, nobody knows it.
func (a *app) adminToken() string {
	secret := a.processor.Book().Config.Server.AdminToken
	token, err := secret.Value()
	if err != nil && secret.Ref() != "" {
		return rand.Text()
	}
	return token
}

func (a *app) storeUp() float64 {
	if a.shared.ready() != nil {
		return 0
	}
	return 1
}

// grpcOptions sizes the server for Envoy. The windows are measured: with gRPC's defaults forty slow readers
// stalled everybody on their connection for seconds.
func grpcOptions(s config.Server) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.InitialWindowSize(256 << 10),
		grpc.InitialConnWindowSize(16 << 20),
		grpc.MaxRecvMsgSize(int(s.MaxBody) + 8<<20),
		// Envoy pings every second to notice a frozen replica; gRPC's default calls that abuse.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 100 * time.Millisecond, PermitWithoutStream: true}),
	}
}

// listen binds an address; a socket file is for its owner only, and one that a dead process left is replaced.
func listen(a config.Address) (net.Listener, error) {
	if a.Network != "unix" {
		return net.Listen(a.Network, a.Addr)
	}
	if c, err := net.Dial("unix", a.Addr); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("%s: another process listens there", a.Addr)
	}
	if err := os.Remove(a.Addr); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", a.Addr)
	if err != nil {
		return nil, err
	}
	return l, os.Chmod(a.Addr, 0o600)
}

func (a *app) isReady() error {
	if !a.ready.Load() {
		return errors.New("stopping")
	}
	return a.shared.started()
}

func (a *app) start() {
	ctx, cancel := context.WithCancel(context.Background())
	a.stopping = cancel
	a.creds.Start(ctx)
	a.shared.run(a.calls.prober.Probe)
	a.calls.run()
	a.ledger.start(ctx)
	a.degraded.start(ctx)
	a.drills.start(ctx)
	a.wg.Go(func() { a.fail(a.grpc.Serve(processor.Listener(a.grpcListener))) })
	a.wg.Go(func() { a.fail(a.admin.Serve(a.adminListener)) })
	a.wg.Go(func() { a.watch(ctx, a.cfg) })
	a.ready.Store(true)
}

func (a *app) fail(err error) {
	if err != nil && !errors.Is(err, grpc.ErrServerStopped) && !errors.Is(err, http.ErrServerClosed) {
		a.failed <- err
	}
}

// stop takes no new attempt, lets running ones finish for at most drain, ends the rest honestly, and waits. What they
// come to is still shared.
func (a *app) stop(drain time.Duration) error {
	a.ready.Store(false)
	a.health.Shutdown()
	a.stopping()
	caughtUp := a.stopCatchingUp(drain)
	a.wg.Go(a.grpc.GracefulStop)
	if !a.within(drain, a.processor.Wait) {
		a.processor.Drain()
		a.within(settle, a.processor.Wait)
	}
	a.grpc.Stop()
	errJobs := <-caughtUp
	a.shared.stop()
	a.calls.stop()
	ctx, cancel := context.WithTimeout(context.Background(), settle)
	defer cancel()
	err := errors.Join(errJobs, a.drills.stop(), a.ledger.stop(ctx), a.admin.Shutdown(ctx), a.shared.close())
	a.wg.Wait()
	a.creds.Stop()
	return err
}

// stopCatchingUp begins no more jobs; those in flight have as long as other requests.
func (a *app) stopCatchingUp(drain time.Duration) <-chan error {
	stopped := make(chan error, 1)
	a.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), drain)
		defer cancel()
		stopped <- a.degraded.stop(ctx)
	})
	return stopped
}

func (a *app) within(d time.Duration, wait func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return wait(ctx) == nil
}

// unchangeable refuses a reload that would need another listener or another store.
func (a *app) unchangeable(next *config.Config) error {
	const why = "these settings cannot change while the service runs; restart it"
	var errs []error
	if !reflect.DeepEqual(a.cfg.Server, next.Server) {
		errs = append(errs, errors.New("server: "+why))
	}
	if !reflect.DeepEqual(a.cfg.Drill, next.Drill) {
		errs = append(errs, errors.New("drill: "+why))
	}
	if !reflect.DeepEqual(a.cfg.Store, next.Store) {
		errs = append(errs, errors.New("store: "+why))
	}
	return errors.Join(errs...)
}
