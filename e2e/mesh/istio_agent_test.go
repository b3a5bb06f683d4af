//go:build mesh

package mesh

import (
	"crypto/x509"
	"encoding/pem"
	"net"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"understudy/internal/scripted"
)

// istioAgent is what a pod's istio-agent is to its Envoy: secret discovery on a socket, with the pod's own certificate as
// "default" and the mesh's authority as "ROOTCA".
type istioAgent struct {
	secretv3.UnimplementedSecretDiscoveryServiceServer
	secrets map[string]*tlsv3.Secret
}

// istioAgentAt serves the certificate of an identity (NAMESPACE/SERVICEACCOUNT).
func istioAgentAt(t *testing.T, socket string, ca *scripted.CA, identity string) {
	t.Helper()
	cert, err := ca.Leaf(istioSpiffe(identity))
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	a := &istioAgent{secrets: map[string]*tlsv3.Secret{
		"default": {Name: "default", Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
			CertificateChain: inline("CERTIFICATE", cert.Certificate[0]), PrivateKey: inline("PRIVATE KEY", key),
		}}},
		"ROOTCA": {Name: "ROOTCA", Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			TrustedCa: &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: ca.PEM()}},
		}}},
	}}
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	secretv3.RegisterSecretDiscoveryServiceServer(server, a)
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
}

// StreamSecrets answers each subscription once: what follows are acknowledgements.
func (a *istioAgent) StreamSecrets(stream secretv3.SecretDiscoveryService_StreamSecretsServer) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return nil
		}
		if req.ResponseNonce != "" {
			continue
		}
		answer := &discoveryv3.DiscoveryResponse{TypeUrl: req.TypeUrl, VersionInfo: "1", Nonce: "1"}
		for _, name := range req.ResourceNames {
			secret, err := anypb.New(a.secrets[name])
			if err != nil {
				return err
			}
			answer.Resources = append(answer.Resources, secret)
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

func istioSpiffe(identity string) string {
	namespace, account, _ := strings.Cut(identity, "/")
	return "spiffe://cluster.local/ns/" + namespace + "/sa/" + account
}

func inline(kind string, der []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})}}
}
