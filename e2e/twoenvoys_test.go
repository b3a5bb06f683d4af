//go:build e2e

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"path/filepath"
	"strconv"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"understudy/internal/scripted"
	"understudy/internal/stage"
	"understudy/pkg/config"
	"understudy/pkg/envoyconf"
)

// The names in the certificates of the two Envoys.
const (
	appName = "assistant.apps.test" // an application's sidecar
	hopName = "hop.egress.test"     // the shared egress gateway
)

// twoEnvoys is a front as an application's sidecar, and the hop in an egress gateway that many share. The hop believes
// x-envoy-attempt-count and x-llm-*, so it lets in sidecars only, which it knows by their certificates.
type twoEnvoys struct {
	ca  *scripted.CA
	hop string // host:port
}

// start starts both and is the front's process.
func (e *twoEnvoys) start(t testing.TB, s *Stack, file string) (*process, error) {
	c, err := config.Load(file)
	if err != nil {
		return nil, err
	}
	p, err := envoyconf.Build(c, envoyconf.Internal)
	if err != nil {
		return nil, err
	}
	e.hop = stage.Free(t)
	there := *s
	there.envoyAdmin = stage.Free(t)
	hop, err := there.launch(t, "hop", s.edited(t, e.bootstrap(t, e.gateway(t, s.dir, p), there.envoyAdmin)))
	if err != nil {
		return nil, err
	}
	s.solos = append(s.solos, hop)
	return s.launch(t, "sidecar", e.bootstrap(t, e.sidecar(t, s.dir, p), s.envoyAdmin))
}

// sidecar has the front, and a cluster that reaches the gateway.
func (e *twoEnvoys) sidecar(t testing.TB, dir string, p *envoyconf.Pieces) *bootstrapv3.Bootstrap_StaticResources {
	hop := proto.CloneOf(p.Clusters[0])
	hop.LoadAssignment.Endpoints[0].LbEndpoints[0].HostIdentifier = &endpointv3.LbEndpoint_Endpoint{
		Endpoint: &endpointv3.Endpoint{Address: socket(t, e.hop)},
	}
	hop.TransportSocket = secured(t, &tlsv3.UpstreamTlsContext{Sni: hopName, CommonTlsContext: e.certificates(t, dir, appName, hopName)})
	return &bootstrapv3.Bootstrap_StaticResources{Listeners: []*listenerv3.Listener{p.Front}, Clusters: []*clusterv3.Cluster{hop}}
}

// gateway has the hop on a port of its own, and everything behind it.
func (e *twoEnvoys) gateway(t testing.TB, dir string, p *envoyconf.Pieces) *bootstrapv3.Bootstrap_StaticResources {
	hop := proto.CloneOf(p.Hop)
	hop.ListenerSpecifier, hop.Address = nil, socket(t, e.hop)
	hop.FilterChains[0].TransportSocket = secured(t, &tlsv3.DownstreamTlsContext{
		CommonTlsContext: e.certificates(t, dir, hopName, appName), RequireClientCertificate: wrapperspb.Bool(true),
	})
	return &bootstrapv3.Bootstrap_StaticResources{Listeners: []*listenerv3.Listener{hop}, Clusters: p.Clusters[1:], Secrets: p.Secrets}
}

func (e *twoEnvoys) bootstrap(t testing.TB, resources *bootstrapv3.Bootstrap_StaticResources, admin string) []byte {
	t.Helper()
	out, err := envoyconf.YAML(&bootstrapv3.Bootstrap{Admin: &bootstrapv3.Admin{Address: socket(t, admin)}, StaticResources: resources})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// certificates are own's, and trust in peer alone.
func (e *twoEnvoys) certificates(t testing.TB, dir, own, peer string) *tlsv3.CommonTlsContext {
	t.Helper()
	cert, err := e.ca.Leaf(own)
	if err != nil {
		t.Fatal(err)
	}
	chain, key, ca := filepath.Join(dir, own+".crt"), filepath.Join(dir, own+".key"), filepath.Join(dir, "mesh.crt")
	der, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	write(t, chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}))
	write(t, key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	write(t, ca, e.ca.PEM())
	return &tlsv3.CommonTlsContext{
		TlsCertificates: []*tlsv3.TlsCertificate{{CertificateChain: inFile(chain), PrivateKey: inFile(key)}},
		ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			TrustedCa: inFile(ca),
			MatchTypedSubjectAltNames: []*tlsv3.SubjectAltNameMatcher{{
				SanType: tlsv3.SubjectAltNameMatcher_DNS,
				Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: peer}},
			}},
		}},
	}
}

func inFile(path string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}}
}

func secured(t testing.TB, m proto.Message) *corev3.TransportSocket {
	t.Helper()
	packed, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return &corev3.TransportSocket{Name: "envoy.transport_sockets.tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: packed}}
}

func socket(t testing.TB, address string) *corev3.Address {
	t.Helper()
	host, p, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
	}}}
}

func TestAFrontInASidecarFailsOverThroughASharedHop(t *testing.T) {
	t.Parallel()
	for version, kinds := range map[string][]call{
		envoyMain:   clientKinds,
		envoyOldest: {clientKinds[0], clientKinds[3]},
	} {
		t.Run("Envoy "+version, func(t *testing.T) {
			e := &twoEnvoys{ca: newCA(t)}
			failovers(t, plan{envoy: version, another: e.start}, kinds)
		})
	}
}

func TestASharedHopBelievesSidecarsOnly(t *testing.T) {
	t.Parallel()
	e := &twoEnvoys{ca: newCA(t)}
	s := startStack(t, plan{another: e.start, chains: []chain{{name: "shared", api: "anthropic", on: []string{"a", "b"}}}})
	t.Run("a client that says what only sidecars may say", func(t *testing.T) {
		c := call{path: messages, stream: true, chain: "shared", script: "a=529; b=ok", header: steering}
		served{by: "b", target: "shared/b", rung: 1, attempts: 2, reason: "overloaded"}.check(t, c, s.sdk(within(t, patience), t, c))
		s.calls(t, t.Name(), "a:1 b:1")
	})
	t.Run("a client from outside", func(t *testing.T) {
		c := call{path: messages, chain: "shared", script: "a=529; b=ok", header: map[string]string{"x-forwarded-for": "203.0.113.7"}}
		served{by: "b", target: "shared/b", rung: 1, attempts: 2, reason: "overloaded"}.check(t, c, s.sdk(within(t, patience), t, c))
	})
	for name, row := range map[string]struct {
		name string
		want bool
	}{
		"a sidecar's certificate":        {appName, true},
		"another workload's certificate": {"shop.apps.test", false},
		"a caller without a certificate": {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := e.answers(t, row.name); got != row.want {
				t.Errorf("the hop answers = %v, want %v", got, row.want)
			}
		})
	}
	s.survives(t)
}

// answers reports whether the hop answers a caller with a certificate for name; "": without one. In TLS 1.3 who is refused learns it
// when it reads.
func (e *twoEnvoys) answers(t *testing.T, name string) bool {
	conf := &tls.Config{RootCAs: e.ca.Pool(), ServerName: hopName}
	if name != "" {
		conf.Certificates = []tls.Certificate{*leaf(t, e.ca, name)}
	}
	return stage.Answers(within(t, patience), t, e.hop, conf, "GET /nothing HTTP/1.1\r\nhost: x\r\nx-envoy-attempt-count: 2\r\n\r\n")
}
