package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	als "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"

	"understudy/pkg/admin"
	"understudy/pkg/config"
	"understudy/pkg/envoyconf/xds"
	"understudy/pkg/processor"
	"understudy/pkg/provider/credential"
	"understudy/pkg/tracing"
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
	forces    *forces
	lookout   *lookout
	tracer    *tracing.Tracer // nil: nothing is traced
	reloadOK  prometheus.Gauge
	wires     *wires
	xds       *xds.Server // nil: Envoy has its configuration from elsewhere

	grpcListener, adminListener net.Listener
	grpc                        *grpc.Server
	health                      *health.Server
	admin                       *http.Server

	hup      chan os.Signal // SIGHUP is heard from the first to the last moment: unheard, it ends a process and what it drains
	ready    atomic.Bool
	quiet    chan struct{} // closed when streams that are no attempts have to end
	closing  chan struct{} // closed when the admin listener closes
	stopping context.CancelFunc
	wg       sync.WaitGroup
	failed   chan error

	ended  sync.Once // ended guards endErr
	endErr error
}

// newApp opens the store before it listens: until then Envoy goes to other replicas.
func newApp(cfg *config.Config, log *slog.Logger) (_ *app, err error) {
	wires, err := newWires(cfg.Server, log)
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
		wires:  wires,
		health: health.NewServer(),
		hup:    make(chan os.Signal, 1),
		quiet:  make(chan struct{}), closing: make(chan struct{}),
		failed: make(chan error, 2),
	}
	signal.Notify(a.hup, syscall.SIGHUP)
	a.grpc = grpc.NewServer(append(a.grpcOptions(), lostEnvoys(cfg)...)...)
	a.creds = credential.New(cfg, nil, log)
	a.processor.Use(cfg, a.creds)
	a.calls = newCalls(a.processor, log)
	a.lookout = newLookout(a.processor)
	a.processor.Tell(a.lookout)
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
	a.forces = newForces(a.shared.store, a.processor, a.lookout.forced, log)
	if a.drills, err = newDrills(a.shared.store, a.processor, log); err != nil {
		return nil, err
	}
	a.ledger = newLedger(a.shared.store, a.processor, reg, log)
	if a.tracer, err = newTracer(cfg, a.processor, reg, log); err != nil {
		return nil, err
	}
	if a.xds, err = newControlPlane(cfg, reg, log); err != nil {
		return nil, err
	}
	if a.grpcListener, err = listen(cfg.Server.GRPC, cfg.Server.SocketMode); err != nil {
		return nil, fmt.Errorf("server.grpc: %w", err)
	}
	if a.adminListener, err = listen(cfg.Server.Admin, cfg.Server.SocketMode); err != nil {
		return nil, fmt.Errorf("server.admin: %w", err)
	}
	a.register(reg)
	return a, nil
}

// release gives back what a newApp that fails has taken.
func (a *app) release() error {
	signal.Stop(a.hup)
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
	reg.MustRegister(a.reloadOK, a.wires.ok, a.wires.expiry, a.calls.probes, newStatusCollector(a.calls.feeds), newReadyCollector(a.processor), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "understudy_store_up", Help: "Whether the store answers (1) or this replica runs on its own state (0)."}, a.storeUp))
	extproc.RegisterExternalProcessorServer(a.grpc, a.processor)
	als.RegisterAccessLogServiceServer(a.grpc, &processor.AccessLog{Processor: a.processor})
	healthpb.RegisterHealthServer(a.grpc, a.health)
	if a.xds != nil {
		a.xds.Register(a.grpc)
	}
	a.admin = a.adminServer(admin.Handler(a.offers(reg)))
}

// adminServer serves h to those whom server.admin_tls lets in.
func (a *app) adminServer(h http.Handler) *http.Server {
	if l := a.wires.admin; l != nil {
		a.adminListener = tls.NewListener(a.adminListener, l.config())
		if l.files.ClientCA != "" {
			h = vouched(h)
		}
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelWarn)}
	server.RegisterOnShutdown(sync.OnceFunc(func() { close(a.closing) }))
	return server
}

// offers is what the admin listener serves.
func (a *app) offers(reg *prometheus.Registry) admin.Options {
	return admin.Options{
		Metrics: reg, Ready: a.isReady, Status: a.status, Switch: a.degraded.flip, Force: a.forces.set, Drills: a.drills,
		Token: a.adminToken, Local: a.cfg.Server.Admin.Local(), Names: names(a.cfg.Server), Quiet: a.closing,
		Job: func(ctx context.Context, id string) (int, []byte) {
			ans := a.degraded.ladder.AnyJob(ctx, id)
			return ans.Status, ans.Body
		},
	}
}

// names are the hosts that the config gives the admin listener.
func names(s config.Server) []string {
	host, _, _ := net.SplitHostPort(s.Admin.Addr)
	return append(slices.Clone(s.AdminNames), strings.ToLower(host))
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

// init has gRPC put messages together in buffers of the next power of two. Its own go from 32 KB to 1 MB, and each is
// cleared before it is used: 90 µs for a prompt of 100 KB.
func init() {
	pool, err := mem.NewBinaryTieredBufferPool(8, 12, 13, 14, 15, 16, 17, 18, 19, 20)
	if err != nil {
		panic(err)
	}
	experimental.SetDefaultBufferPool(pool) // may be called at no other time
}

// grpcOptions sizes the server for Envoy. The windows are measured: with gRPC's defaults forty slow readers
// stalled everybody on their connection for seconds.
func (a *app) grpcOptions() []grpc.ServerOption {
	creds := insecure.NewCredentials()
	if l := a.wires.grpc; l != nil {
		creds = &audible{TransportCredentials: credentials.NewTLS(l.config()), log: a.log}
	}
	return []grpc.ServerOption{
		grpc.Creds(creds),
		grpc.StreamInterceptor(a.untilQuiet),
		grpc.InitialWindowSize(256 << 10),
		grpc.InitialConnWindowSize(16 << 20),
		grpc.MaxRecvMsgSize(int(a.cfg.Server.MaxBody) + 8<<20),
		// Goroutines that serve one stream after another keep their grown stacks: a tenth of the CPU of a small exchange.
		grpc.NumStreamWorkers(64),
		// Envoy pings every second to notice a frozen replica; gRPC's default calls that abuse.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 100 * time.Millisecond, PermitWithoutStream: true}),
	}
}

// listen binds an address; a socket file gets a mode, and one that a dead process left is replaced.
func listen(a config.Address, mode fs.FileMode) (net.Listener, error) {
	if a.Network != "unix" {
		return net.Listen(a.Network, a.Addr)
	}
	if c, err := net.Dial("unix", a.Addr); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("%s: another process listens there", a.Addr)
	}
	if err := vacate(a.Addr); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", a.Addr)
	if err != nil {
		return nil, err
	}
	return l, os.Chmod(a.Addr, mode)
}

// vacate removes the socket at path. Anything else there is somebody's file, and a mistake in the config.
func vacate(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s: there is a file that is no socket: remove it, or name another path", path)
	}
	return os.Remove(path)
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
	a.forces.start(ctx)
	a.wg.Go(func() { a.fail(a.grpc.Serve(processor.Listener(a.grpcListener))) })
	a.wg.Go(func() { a.fail(a.admin.Serve(a.adminListener)) })
	a.wg.Go(func() { a.watch(ctx, a.cfg) })
	a.wg.Go(func() { thrift(ctx, eachCollection(ctx)) })
	a.wg.Go(func() { a.wires.watch(ctx) })
	a.ready.Store(true)
}

func (a *app) fail(err error) {
	if err != nil && !errors.Is(err, grpc.ErrServerStopped) && !errors.Is(err, http.ErrServerClosed) {
		a.failed <- err
	}
}

// stop takes no new attempt, lets running ones finish for at most drain, ends the rest honestly, and waits. What they
// come to is still shared. A second call says what the first one came to.
func (a *app) stop(drain time.Duration) error {
	a.ended.Do(func() { a.endErr = a.end(drain) })
	return a.endErr
}

func (a *app) end(drain time.Duration) error {
	a.ready.Store(false)
	a.health.Shutdown()
	a.stopping()
	caughtUp := a.stopCatchingUp(drain)
	a.drain(drain)
	errJobs := <-caughtUp
	a.shared.stop()
	a.calls.stop()
	a.forces.stop()
	ctx, cancel := context.WithTimeout(context.Background(), settle)
	defer cancel()
	err := errors.Join(errJobs, a.drills.stop(), a.ledger.stop(ctx), a.closeAdmin(), a.shared.close())
	a.wg.Wait()
	a.creds.Stop()
	a.stopTracing(ctx)
	signal.Stop(a.hup)
	return err
}

// closeAdmin gives answers that are on their way a moment. Who does not read one, or sends half a request, is no reason to
// stop later, and none to say that something went wrong.
func (a *app) closeAdmin() error {
	if a.within(settle/3, a.admin.Shutdown) {
		return nil
	}
	return a.admin.Close()
}

// drain tells Envoy to go elsewhere, serves what is here or on its way for at most d, and ends the rest honestly.
func (a *app) drain(d time.Duration) {
	left := make(chan struct{}) // every connection has heard of it and is at its end
	a.wg.Go(func() {
		a.grpc.GracefulStop()
		close(left)
	})
	served := a.within(d, func(ctx context.Context) error {
		if err := a.processor.Wait(ctx); err != nil {
			return err
		}
		close(a.quiet)
		select {
		case <-left:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if !served {
		a.processor.Drain()
		a.within(settle, a.processor.Wait)
	}
	a.grpc.Stop()
}

// untilQuiet ends streams that last as long as Envoy does (its access log, for one) once no attempt needs them: they
// would keep their connections open, and nobody could tell whether Envoy has heard that it must go elsewhere.
func (a *app) untilQuiet(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if info.FullMethod == extproc.ExternalProcessor_Process_FullMethodName {
		return next(srv, stream)
	}
	ended := make(chan error, 1)
	go func() { ended <- next(srv, stream) }() // its stream ends when this returns
	select {
	case err := <-ended:
		return err
	case <-a.quiet:
		return nil
	}
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
	if !reflect.DeepEqual(a.cfg.Tracing, next.Tracing) {
		errs = append(errs, errors.New("tracing: "+why))
	}
	if !reflect.DeepEqual(a.cfg.Store, next.Store) {
		errs = append(errs, errors.New("store: "+why))
	}
	if a.cfg.Envoy.XDS != next.Envoy.XDS {
		errs = append(errs, errors.New("envoy.xds: "+why))
	}
	return errors.Join(errs...)
}
