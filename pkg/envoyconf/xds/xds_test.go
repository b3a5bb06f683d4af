package xds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"understudy/pkg/config"
	"understudy/pkg/envoyconf"
)

// providers is a config with one chain over these providers, whose exchanges last at most a minute.
func providers(t *testing.T, names ...string) *config.Config {
	t.Helper()
	var text strings.Builder
	text.WriteString("envoy: {xds: true}\nproviders:\n")
	for _, name := range names {
		fmt.Fprintf(&text, "  %s: {api: anthropic, endpoint: 'http://127.0.0.1:%d', insecure: true, auth: {from: client}}\n", name, 8000+len(name)+int(name[0]))
	}
	text.WriteString("targets:\n")
	for _, name := range names {
		fmt.Fprintf(&text, "  %s/m: {provider: %s, model: m}\n", name, name)
	}
	fmt.Fprintf(&text, "chains: {main: {match: [{path: /v1/messages}], deadlines: {first_content: 10s, answer: 1m, total: 1m}, targets: [%s/m]}}\n", strings.Join(names, "/m, "))
	return parse(t, text.String())
}

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// plane is a control plane in a bubble.
type plane struct {
	*Server
	t   *testing.T
	reg *prometheus.Registry
	log *strings.Builder
}

func begin(t *testing.T, c *config.Config) *plane {
	t.Helper()
	p := &plane{t: t, reg: prometheus.NewRegistry(), log: &strings.Builder{}}
	var err error
	if p.Server, err = New(t.Context(), c, p.reg, slog.New(slog.NewTextHandler(p.log, nil))); err != nil {
		t.Fatal(err)
	}
	return p
}

// publish must use c.
func (p *plane) publish(c *config.Config) {
	p.t.Helper()
	if err := p.Publish(p.t.Context(), c); err != nil {
		p.t.Fatalf("Publish = %v, want nil", err)
	}
}

func (p *plane) metric(name, want string) {
	p.t.Helper()
	if err := testutil.GatherAndCompare(p.reg, strings.NewReader(want), name); err != nil {
		p.t.Error(err)
	}
}

// envoy is an Envoy that asks for everything on one stream.
type envoy struct {
	grpc.ServerStream
	ctx  context.Context
	node *corev3.Node
	asks chan *discovery.DiscoveryRequest

	mu      sync.Mutex // guards the fields below
	judge   func(r *discovery.DiscoveryResponse) string
	silent  bool
	has     map[string][]string // names of what it accepted, by type
	version map[string]string
	heard   []string // the types of all responses, as they came
	held    []*discovery.DiscoveryResponse
	ended   error
}

func (e *envoy) Context() context.Context { return e.ctx }

func (e *envoy) Recv() (*discovery.DiscoveryRequest, error) {
	select {
	case r := <-e.asks:
		return r, nil
	case <-e.ctx.Done():
		return nil, io.EOF
	}
}

func (e *envoy) Send(r *discovery.DiscoveryResponse) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard = append(e.heard, short[r.TypeUrl])
	if e.silent {
		e.held = append(e.held, r)
		return nil
	}
	e.answerLocked(r)
	return nil
}

// answerLocked accepts or refuses. Caller must hold mu.
func (e *envoy) answerLocked(r *discovery.DiscoveryResponse) {
	reply := &discovery.DiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce, ResourceNames: wants[r.TypeUrl]}
	if why := e.judge(r); why != "" {
		reply.VersionInfo, reply.ErrorDetail = e.version[r.TypeUrl], &rpcstatus.Status{Message: why}
	} else {
		e.version[r.TypeUrl], reply.VersionInfo = r.VersionInfo, r.VersionInfo
		e.has[short[r.TypeUrl]] = names(r)
	}
	e.asks <- reply
}

// speak answers what it has kept to itself.
func (e *envoy) speak() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.silent = false
	for _, r := range e.held {
		e.answerLocked(r)
	}
	e.held = nil
}

// hush makes it answer no more.
func (e *envoy) hush() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.silent = true
}

// names are those of the clusters in r; of other types, how many there are.
func names(r *discovery.DiscoveryResponse) []string {
	var all []string
	for _, packed := range r.Resources {
		m, err := packed.UnmarshalNew()
		if err != nil {
			return []string{err.Error()}
		}
		if named, ok := m.(interface{ GetName() string }); ok {
			all = append(all, named.GetName())
		}
	}
	slices.Sort(all)
	return all
}

// wants are the names that Envoy asks for, where it does not ask for all.
var wants = map[string][]string{
	resource.RouteType: {"front", "hop"}, resource.ExtensionConfigType: {"understudy"},
}

// connect begins an Envoy that refuses what judge says why to.
func (p *plane) connect(id string, judge func(r *discovery.DiscoveryResponse) string) *envoy {
	p.t.Helper()
	return p.connectAs(&corev3.Node{Id: id}, judge)
}

func (p *plane) connectAs(node *corev3.Node, judge func(r *discovery.DiscoveryResponse) string) *envoy {
	p.t.Helper()
	e := &envoy{ctx: p.t.Context(), node: node, asks: make(chan *discovery.DiscoveryRequest, 100), judge: judge,
		has: map[string][]string{}, version: map[string]string{}}
	for i, kind := range []string{resource.ClusterType, resource.ListenerType, resource.RouteType, resource.ExtensionConfigType} {
		r := &discovery.DiscoveryRequest{TypeUrl: kind, ResourceNames: wants[kind]}
		if i == 0 {
			r.Node = e.node
		}
		e.asks <- r
	}
	go func() {
		err := p.xds.StreamAggregatedResources(e)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.ended = err
	}()
	synctest.Wait()
	return e
}

func willing(*discovery.DiscoveryResponse) string { return "" }

// unable refuses clusters of a provider.
func unable(provider string) func(r *discovery.DiscoveryResponse) string {
	return func(r *discovery.DiscoveryResponse) string {
		if slices.Contains(names(r), "llm-"+provider) {
			return "no file for llm-" + provider
		}
		return ""
	}
}

// clusters checks which clusters an Envoy uses: the providers' of the two that every Envoy has.
func (e *envoy) clusters(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	all := []string{"hop"}
	for _, name := range want {
		all = append(all, "llm-"+name)
	}
	if all = append(all, "understudy"); !slices.Equal(e.has["cds"], all) {
		t.Errorf("the Envoy has the clusters %v, want %v", e.has["cds"], all)
	}
}

func TestEqualConfigsAreOfferedAlike(t *testing.T) {
	version := func(c *config.Config, kind string) string {
		o, err := newOffer(c, envoyconf.Internal)
		if err != nil {
			t.Fatal(err)
		}
		s, err := o.snapshot()
		if err != nil {
			t.Fatal(err)
		}
		return s.GetVersion(kind)
	}
	for kind, name := range short {
		first := version(providers(t, "a", "b"), kind)
		for range 10 {
			if again := version(providers(t, "a", "b"), kind); again != first {
				t.Errorf("the version of %s = %s, want %s, as the config is the same", name, again, first)
			}
		}
		more := version(providers(t, "a", "b", "c"), kind)
		if changes := kind == resource.ClusterType; (more != first) != changes && kind != resource.RouteType {
			t.Errorf("with one more provider, the version of %s = %s after %s, want another: %v", name, more, first, changes)
		}
	}
}

func TestAnEnvoyHasWhatItNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, providers(t, "a", "b"))
		e := p.connect("one", willing)
		e.clusters(t, "a", "b")
		want := map[string][]string{"cds": e.has["cds"], "lds": {"front", "hop"}, "rds": {"front", "hop"}, "ecds": {"understudy"}}
		if !maps.EqualFunc(e.has, want, slices.Equal) {
			t.Errorf("the Envoy has %v, want %v", e.has, want)
		}
		st := p.Status()
		if len(st.Envoys) != 1 || st.Envoys[0].Node != "one" || st.Envoys[0].Accepted["rds"] != e.version[resource.RouteType] || st.Refused != nil {
			t.Errorf("Status() = %+v, want the Envoy called one with the versions that it accepted", st)
		}
	})
}

func TestEachKindOfHopHasItsOwnListener(t *testing.T) {
	c := providers(t, "a")
	for _, hop := range kinds {
		if got := (byHop{}).ID(atHop(hop)); got != string(hop) {
			t.Errorf("ID(hop %s) = %s, want the same", hop, got)
		}
		b, err := Bootstrap(c, hop)
		if err != nil || hopOf(b.Node) != hop {
			t.Errorf("Bootstrap(%s) has a node for hop %s, %v", hop, hopOf(b.Node), err)
		}
	}
	if got := (byHop{}).ID(&corev3.Node{Id: "somebody"}); got != string(envoyconf.Internal) {
		t.Errorf("ID(a node that says nothing) = %s, want %s", got, envoyconf.Internal)
	}
}

// atHop is a node whose Envoy has that kind of hop.
func atHop(hop envoyconf.Hop) *corev3.Node {
	return &corev3.Node{Id: "odd", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"hop": structpb.NewStringValue(string(hop))}}}
}

func TestAnEnvoyWhoseHopTheConfigCannotHaveIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := "envoy: {xds: true, listen: '127.0.0.1:65535'}\n" // no port above it is left for a tcp hop
		of := func(head string) *config.Config {
			return parse(t, head+"providers: {a: {api: anthropic, endpoint: 'http://127.0.0.1:1', insecure: true, auth: {from: client}}}\n"+
				"targets: {a/m: {provider: a, model: m}}\nchains: {main: {match: [{path: /v1/messages}], targets: [a/m]}}\n")
		}
		p := begin(t, of(full))
		e := p.connectAs(atHop(envoyconf.TCP), willing)
		if status.Code(e.ended) != codes.FailedPrecondition || !strings.Contains(e.ended.Error(), "65535") || !strings.Contains(p.log.String(), "65535") {
			t.Errorf("the stream ended with %v and the log is %q, want both to say why", e.ended, p.log)
		}
		p.publish(of("envoy: {xds: true, listen: '127.0.0.1:9'}\n"))
		p.connectAs(atHop(envoyconf.TCP), willing).clusters(t, "a")
		if err := p.Publish(t.Context(), of(full)); err == nil {
			t.Error("Publish(what a connected Envoy cannot have) = nil, want an error")
		}
	})
}

func TestTheServiceWaitsUntilEnvoysHaveANewCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, providers(t, "a"))
		quick, slow := p.connect("quick", willing), p.connect("slow", willing)
		slow.hush()
		done := false
		go func() {
			p.publish(providers(t, "b"))
			done = true
		}()
		quick.clusters(t, "a", "b")
		if done {
			t.Error("Publish has returned before an Envoy has answered")
		}
		slow.speak()
		synctest.Wait()
		if !done {
			t.Fatal("Publish waits, but all Envoys have what it told them")
		}
		slow.clusters(t, "a", "b") // an attempt that runs must not lose its cluster
	})
}

func TestNobodyWaitsForAnEnvoyThatIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, providers(t, "a"))
		began := time.Now()
		p.publish(providers(t, "a", "b"))
		if took := time.Since(began); took > 0 {
			t.Errorf("Publish took %s with no Envoy, want nothing", took)
		}
		p.connect("frozen", willing).hush()
		p.publish(providers(t, "a", "b", "c"))
		if took := time.Since(began); took < patience || took > 3*patience {
			t.Errorf("Publish took %s with an Envoy that does not answer, want about %s", took, patience)
		}
		if !strings.Contains(p.log.String(), "does not answer") {
			t.Errorf("the log does not say that an Envoy is silent: %s", p.log)
		}
	})
}

func TestOldClustersGoWhenNoExchangeCanNeedThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, providers(t, "a", "b"))
		e := p.connect("one", willing)
		retire := func() {
			t.Helper()
			if err := p.Retire(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		p.publish(providers(t, "a", "c"))
		retire()
		e.clusters(t, "a", "b", "c")

		time.Sleep(40 * time.Second)
		p.publish(providers(t, "b", "c")) // b comes back, a goes
		retire()
		e.clusters(t, "a", "b", "c")

		time.Sleep(40 * time.Second)
		p.publish(providers(t, "c")) // b goes again: its time begins anew
		time.Sleep(25 * time.Second)
		retire()
		e.clusters(t, "b", "c")

		time.Sleep(40 * time.Second)
		retire()
		e.clusters(t, "c")
	})
}

func TestWhatAnEnvoyRefusesIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, providers(t, "a"))
		poor, rich := p.connect("poor", unable("b")), p.connect("rich", willing)
		err := p.Publish(t.Context(), providers(t, "b"))
		var refusal *Refusal
		if !errors.As(err, &refusal) || refusal.Node != "poor" || refusal.Type != "cds" || refusal.Why != "no file for llm-b" {
			t.Fatalf("Publish = %v, want the refusal of the Envoy called poor", err)
		}
		poor.clusters(t, "a")
		rich.clusters(t, "a")
		if len(poor.heard) != 4+2 {
			t.Errorf("the Envoy heard %v, want each type once, the refused clusters, and the old again", poor.heard)
		}
		const count = "# HELP understudy_xds_nacks_total Configurations that an Envoy refused, by the type of what it refused.\n# TYPE understudy_xds_nacks_total counter\n"
		p.metric("understudy_xds_nacks_total", count+"understudy_xds_nacks_total{type=\"cds\"} 1\nunderstudy_xds_nacks_total{type=\"ecds\"} 0\n"+
			"understudy_xds_nacks_total{type=\"lds\"} 0\nunderstudy_xds_nacks_total{type=\"rds\"} 0\nunderstudy_xds_nacks_total{type=\"sds\"} 0\n")
		if st := p.Status(); p.accepted() != 0 || st.Refused == nil || st.Config != providers(t, "a").Hash {
			t.Errorf("Status() = %+v and accepted %v, want the refusal, and the old config", st, p.accepted())
		}
		p.publish(providers(t, "a", "c"))
		if st := p.Status(); p.accepted() != 1 || st.Refused != nil {
			t.Errorf("after a good config, Status() = %+v and accepted %v, want no refusal", st, p.accepted())
		}
	})
}

// Nothing of what an Envoy refuses when it connects may stand in the way of the config that mends it.
func TestABadBeginningIsMendedByTheNextConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, providers(t, "a", "b"))
		e := p.connect("poor", unable("b"))
		if len(e.heard) > 4 || p.accepted() != 0 {
			t.Errorf("the Envoy heard %v and accepted is %v, want each type once, and 0", e.heard, p.accepted())
		}
		p.publish(providers(t, "a"))
		e.clusters(t, "a")
		if p.accepted() != 1 {
			t.Error("the Envoy has accepted everything, but accepted is 0")
		}
	})
}

func TestAnEnvoyThatCannotDoesNotStandInTheOthersWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, providers(t, "a", "b"))
		p.connect("poor", unable("b"))
		rich := p.connect("rich", willing)
		p.publish(providers(t, "a", "b", "c"))
		rich.clusters(t, "a", "b", "c")
		if p.accepted() != 0 {
			t.Error("one Envoy still refuses, but accepted is 1")
		}
	})
}

func TestHostileStreamsAreBounded(t *testing.T) {
	for _, tt := range []struct {
		name string
		ask  *discovery.DiscoveryRequest
		code codes.Code
	}{
		{"types without end are asked for", &discovery.DiscoveryRequest{TypeUrl: "type.googleapis.com/not.served"}, codes.InvalidArgument},
		{"a request is enormous", &discovery.DiscoveryRequest{TypeUrl: resource.ClusterType, ResourceNames: []string{strings.Repeat("x", maxRequest)}}, codes.InvalidArgument},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := begin(t, providers(t, "a")).connect("hostile", willing)
				e.asks <- tt.ask
				synctest.Wait()
				e.mu.Lock()
				defer e.mu.Unlock()
				if status.Code(e.ended) != tt.code {
					t.Errorf("the stream ended with %v, want %s", e.ended, tt.code)
				}
			})
		})
	}
	t.Run("more Envoys come than can be served", func(t *testing.T) {
		e := newEnvoys(slog.New(slog.DiscardHandler), prometheus.NewCounterVec(prometheus.CounterOpts{Name: "n"}, []string{"type"}), nil)
		for id := range int64(maxStreams) {
			if err := e.opened(id); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.opened(maxStreams); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("opened(one too many) = %v, want %s", err, codes.ResourceExhausted)
		}
		e.closed(0)
		if err := e.opened(maxStreams); err != nil {
			t.Errorf("opened(after one has left) = %v, want nil", err)
		}
	})
}
