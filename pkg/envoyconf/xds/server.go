// Package xds serves Envoy its part of the configuration: clusters, routes, the service's filter, and for an Envoy that
// has nothing else its listeners and its secrets' places. They follow the config file; a reload needs no new Envoy.
package xds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	clusters "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	extensions "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	listeners "github.com/envoyproxy/go-control-plane/envoy/service/listener/v3"
	routes "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"
	secrets "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"understudy/pkg/config"
	"understudy/pkg/envoyconf"
)

const (
	// patience bounds the wait for an Envoy's answer: one that is frozen must not hold up the others' configuration.
	patience = 10 * time.Second

	// settling is for what nobody tells: that an Envoy without ADS has looked up the name in a new cluster, and that the
	// other replicas, which look at their files once a second, have told their Envoys.
	settling = 2 * time.Second
)

// Server is the control plane.
//
// Ownership: who makes it registers it at a gRPC server.
// Concurrency: Publish and Retire are one goroutine's; Envoys' streams and Status are anybody's.
// It ends with the context of New: Envoys keep what they have and ask another replica.
type Server struct {
	cache  cache.SnapshotCache
	xds    server.Server
	envoys *envoys
	log    *slog.Logger

	config  *config.Config       // of now
	now     offers               // what Envoys are told
	leaving map[string]time.Time // clusters that the config has no more, and when they go

	mu         sync.Mutex // guards the fields below
	hash       string     // of config
	impossible impossible // by config
	refused    *Refusal   // of the last Publish; nil: none
}

// Refusal is an Envoy's no to a configuration. It is an error.
type Refusal struct {
	Node  string `json:"node"`
	Envoy string `json:"envoy"` // its version
	Type  string `json:"type"`  // cds, lds, rds, ecds or sds
	Why   string `json:"why"`
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("envoy %s (%s) refuses it: %s: %s", r.Node, r.Envoy, r.Type, r.Why)
}

// New makes a Server that tells every Envoy the part of c that is Envoy's. Its metrics are registered with reg.
func New(ctx context.Context, c *config.Config, reg prometheus.Registerer, log *slog.Logger) (*Server, error) {
	nacks := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "understudy_xds_nacks_total",
		Help: "Configurations that an Envoy refused, by the type of what it refused."}, []string{"type"})
	s := &Server{
		cache: cache.NewSnapshotCache(false, byHop{}, nil), log: log,
		config: c, hash: c.Hash, leaving: map[string]time.Time{},
	}
	s.envoys = newEnvoys(log, nacks, s.cannot)
	s.xds = server.NewServer(ctx, s.cache, s.envoys.callbacks())
	reg.MustRegister(nacks,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "understudy_xds_accepted",
			Help: "Whether all Envoys took the last configuration that they were offered (1) or one refused it (0)."}, s.accepted),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "understudy_xds_streams",
			Help: "Streams on which Envoys ask this replica for their configuration."}, func() float64 { return float64(s.envoys.count()) }))
	all, impossible, err := build(c)
	if err != nil {
		return nil, err
	}
	s.impossible = impossible
	_, err = s.set(ctx, all)
	return s, err
}

// cannot says why the config has no part for Envoys with this kind of hop, nil where it has.
func (s *Server) cannot(hop envoyconf.Hop) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.impossible[hop]
}

// Register adds the server to g.
func (s *Server) Register(g grpc.ServiceRegistrar) {
	discovery.RegisterAggregatedDiscoveryServiceServer(g, s.xds)
	clusters.RegisterClusterDiscoveryServiceServer(g, s.xds)
	routes.RegisterRouteDiscoveryServiceServer(g, s.xds)
	listeners.RegisterListenerDiscoveryServiceServer(g, s.xds)
	extensions.RegisterExtensionConfigDiscoveryServiceServer(g, s.xds)
	secrets.RegisterSecretDiscoveryServiceServer(g, s.xds)
}

// Publish tells the Envoys about next: first the clusters that it adds, then all else. When it returns, the connected
// Envoys are ready for attempts by next, and still for those by the config before, whose clusters stay for as long
// as an exchange may last. An error says why Envoys stay, or are again, with the config before.
func (s *Server) Publish(ctx context.Context, next *config.Config) error {
	all, impossible, err := s.build(next)
	if err != nil {
		return err
	}
	before := s.now
	if err := s.change(ctx, all, len(next.Envoy.Services) > 1); err != nil {
		_, undone := s.set(context.WithoutCancel(ctx), before)
		s.remember(s.config, err)
		return errors.Join(err, undone)
	}
	s.leave(all)
	s.config = next
	s.remember(next, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.impossible = impossible
	return nil
}

// change goes from what Envoys are told now to next. Where no Envoy would take it, there is nothing to keep: it may be
// the very cluster that all refuse.
func (s *Server) change(ctx context.Context, next offers, replicas bool) error {
	if n := s.envoys.count(); n > 0 && len(s.envoys.refusing()) == n {
		return s.tell(ctx, next)
	}
	before := s.now
	if err := s.add(ctx, next, replicas); err != nil {
		return err
	}
	return s.tell(ctx, next.keeping(before))
}

func (s *Server) build(next *config.Config) (offers, impossible, error) {
	all, not, err := build(next)
	for hop, why := range not {
		if why != nil && s.envoys.have(hop) {
			err = errors.Join(err, why)
		}
	}
	return all, not, err
}

// add tells the Envoys of clusters that next adds, while all that they have stays as it is. An Envoy that asks over ADS
// accepts a cluster once it is ready for use, for which it needs its secret.
func (s *Server) add(ctx context.Context, next offers, replicas bool) error {
	added := next[envoyconf.Internal].beyond(s.now[envoyconf.Internal])
	if len(added) == 0 {
		return nil
	}
	more := offers{}
	for hop, now := range s.now {
		more[hop] = now.withClusters(now.over(next[hop]))
		more[hop][resource.SecretType] = now.both(next[hop], resource.SecretType)
	}
	if err := s.tell(ctx, more); err != nil || !replicas && (s.envoys.count() == 0 || !added.resolves()) {
		return err
	}
	settled := time.NewTimer(settling)
	defer settled.Stop()
	select {
	case <-settled.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// keeping is o with the clusters of now that it lacks.
func (o offers) keeping(now offers) offers {
	all := offers{}
	for hop, one := range o {
		all[hop] = one.withClusters(one.over(now[hop]))
	}
	return all
}

// tell sets what Envoys are told and waits for their answers. Who would not take what came before has no say.
func (s *Server) tell(ctx context.Context, all offers) error {
	deaf := s.envoys.refusing()
	w, err := s.set(ctx, all)
	if err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = s.envoys.await(wait, w, deaf)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		s.log.Warn("an Envoy does not answer; going on without it", "waited", patience)
		return nil
	}
	return err
}

// set is what Envoys are told from now on. It returns the versions that are new by it.
func (s *Server) set(ctx context.Context, all offers) (wanted, error) {
	w := wanted{}
	for hop, o := range all {
		next, err := o.snapshot()
		if err != nil {
			return nil, err
		}
		w[hop] = map[resource.Type]string{}
		before, _ := s.cache.GetSnapshot(string(hop)) // its error says that there is none
		for kind := range o {
			if v := next.GetVersion(kind); before == nil || before.GetVersion(kind) != v {
				w[hop][kind] = v
			}
		}
		if err := s.cache.SetSnapshot(ctx, string(hop), next); err != nil {
			return nil, err
		}
	}
	for hop := range s.now {
		if all[hop] == nil {
			s.cache.ClearSnapshot(string(hop))
		}
	}
	s.now = all
	return w, nil
}

// leave notes which clusters go, and when: after the longest exchange that began by the config of now.
func (s *Server) leave(next offers) {
	longest := settling
	for _, ch := range s.config.Chains {
		longest = max(longest, ch.Deadlines.Total+settling)
	}
	old := s.now[envoyconf.Internal].beyond(next[envoyconf.Internal])
	maps.DeleteFunc(s.leaving, func(name string, _ time.Time) bool { return old[name] == nil })
	for name := range old {
		if _, known := s.leaving[name]; !known {
			s.leaving[name] = time.Now().Add(longest)
		}
	}
}

// Retire takes away the clusters whose time is over. It is to be called now and then.
func (s *Server) Retire(ctx context.Context) error {
	gone := map[string]bool{}
	for name, at := range s.leaving {
		if !time.Now().Before(at) {
			gone[name] = true
			delete(s.leaving, name)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	rest := offers{}
	for hop, o := range s.now {
		kept := maps.Clone(o[resource.ClusterType])
		maps.DeleteFunc(kept, func(name string, _ types.Resource) bool { return gone[name] })
		rest[hop] = o.withClusters(kept)
	}
	_, err := s.set(ctx, rest)
	return err
}

func (s *Server) remember(used *config.Config, err error) {
	refusal := (*Refusal)(nil)
	if err != nil && !errors.As(err, &refusal) {
		return // it was no Envoy that stood in the way
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hash, s.refused = used.Hash, refusal
}

// Status is what Envoys have been offered and what they said.
type Status struct {
	Config  string   `json:"config"`            // the hash of the config that is served
	Refused *Refusal `json:"refused,omitempty"` // of the last config that was tried, unless all took it
	Envoys  []Envoy  `json:"envoys"`
}

// Envoy is one that is connected. One that does not use ADS is there once for each type that it asks for.
type Envoy struct {
	Node     string            `json:"node"`
	Version  string            `json:"version"`
	Hop      string            `json:"hop"`
	Accepted map[string]string `json:"accepted"` // version in use, by type
	Refused  map[string]string `json:"refused"`  // why the last refused one was, by type
	Refusing bool              `json:"refusing"` // it would not take what it was told last, of any type
}

// Status is of this replica's Envoys.
func (s *Server) Status() Status {
	s.mu.Lock()
	hash, refused := s.hash, s.refused
	s.mu.Unlock()
	return Status{Config: hash, Refused: refused, Envoys: s.envoys.list()}
}

func (s *Server) accepted() float64 {
	s.mu.Lock()
	refused := s.refused != nil
	s.mu.Unlock()
	if refused || len(s.envoys.refusing()) > 0 {
		return 0
	}
	return 1
}
