// Package envoyconf turns a Config into Envoy's configuration: front, hop, providers and the service itself.
//
// Every setting here was tried on real Envoys; comments give the fact that forces it. Only fields known to
// Envoy 1.36 are used. Each resource has its own function, so that it can be served alone over xDS.
package envoyconf

import (
	"errors"
	"fmt"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	internalv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/bootstrap/internal_listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"sigs.k8s.io/yaml"

	"understudy/pkg/config"
)

// Bootstrap is a complete Envoy configuration for c, with the hop behind the kind of listener that hop names.
// The error joins everything in c that Envoy could not be told.
func Bootstrap(c *config.Config, hop Hop) (*bootstrapv3.Bootstrap, error) {
	p, err := (&builder{c: c, hop: hop}).pieces()
	boot := &bootstrapv3.Bootstrap{
		Admin: p.Admin,
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{
			Listeners: []*listenerv3.Listener{p.Front, p.Hop},
			Clusters:  p.Clusters,
			Secrets:   p.Secrets,
		},
		BootstrapExtensions: p.Extensions,
	}
	if t := c.Envoy.TLS; t != nil && t.SDS != "" { // "node 'id' and 'cluster' are required", also for SDS by files
		boot.Node = &corev3.Node{Id: ServiceName, Cluster: ServiceName}
	}
	return boot, err
}

// Pieces are what Envoy needs of a Config, each by itself, for other ways to put them together than Bootstrap's.
// Clusters are the hop's, the service's, and one for each provider and status feed.
type Pieces struct {
	Admin                    *bootstrapv3.Admin
	Front, Hop               *listenerv3.Listener
	FrontManager, HopManager *hcmv3.HttpConnectionManager // of the two listeners, routes included
	Clusters                 []*clusterv3.Cluster
	Secrets                  []*tlsv3.Secret
	Extensions               []*corev3.TypedExtensionConfig // of the bootstrap
}

// Build makes the pieces for c, to be added to an Envoy that has its own tracing. The error joins everything in c that
// Envoy could not be told.
func Build(c *config.Config, hop Hop) (*Pieces, error) {
	return (&builder{c: c, hop: hop, attached: true}).pieces()
}

// Discovered makes the pieces for an Envoy that asks a control plane for them: its clusters ask for their secrets, too.
func Discovered(c *config.Config, hop Hop) (*Pieces, error) {
	return (&builder{c: c, hop: hop, secretsFrom: ADS()}).pieces()
}

// ADS says to ask for something on the stream on which Envoy asks for all.
func ADS() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
}

func (b *builder) pieces() (*Pieces, error) {
	c, hop := b.c, b.hop
	b.checkHop()
	p := &Pieces{
		Admin:        &bootstrapv3.Admin{Address: b.listenAddress("envoy.admin", c.Envoy.Admin)},
		FrontManager: b.frontManager(),
		HopManager:   b.hopManager(),
		Clusters:     b.clusters(),
		Secrets:      b.secrets(),
	}
	p.Front, p.Hop = b.frontListener(p.FrontManager), b.hopListener(p.HopManager)
	if hop == Internal {
		p.Extensions = []*corev3.TypedExtensionConfig{
			b.extension("envoy.bootstrap.internal_listener", &internalv3.InternalListener{}),
		}
	}
	return p, errors.Join(b.errs...)
}

// YAML writes a file as Envoy reads it: proto field names, keys sorted, so that equal configs give equal bytes.
func YAML(m proto.Message) ([]byte, error) {
	js, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	return yaml.JSONToYAML(js)
}

// builder makes the resources of one Config. Faults are collected in errs, so that all are told at once.
type builder struct {
	c    *config.Config
	hop  Hop
	errs []error

	secretsFrom *corev3.ConfigSource // nil: they are Envoy's own
	attached    bool                 // the pieces are added to somebody's Envoy
}

func (b *builder) fault(format string, args ...any) {
	b.errs = append(b.errs, fmt.Errorf(format, args...))
}

func (b *builder) pack(m proto.Message) *anypb.Any {
	a, err := Pack(m)
	if err != nil {
		b.fault("pack %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return a
}

// Pack makes an Any of m. Equal messages give equal bytes, by which Envoy and its control plane tell that nothing has
// changed.
func Pack(m proto.Message) (*anypb.Any, error) {
	a := &anypb.Any{}
	return a, anypb.MarshalFrom(a, m, proto.MarshalOptions{Deterministic: true})
}

func (b *builder) extension(name string, m proto.Message) *corev3.TypedExtensionConfig {
	return &corev3.TypedExtensionConfig{Name: name, TypedConfig: b.pack(m)}
}

func (b *builder) clusters() []*clusterv3.Cluster {
	cs := []*clusterv3.Cluster{b.hopCluster()}
	cs = append(cs, b.serviceClusters()...)
	for _, p := range b.providers() {
		cs = append(cs, b.providerCluster(p))
	}
	cs = append(cs, b.feedClusters()...)
	cs = append(cs, b.collectorClusters()...)
	if b.c.Drill.Listen != (config.Address{}) {
		cs = append(cs, b.drillCluster())
	}
	return cs
}
