package envoyconf

import (
	"path"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"understudy/pkg/config"
)

// Envoy reads the files of a certificate in its bootstrap once. It follows their changes only where the certificate
// itself comes by SDS, for which files will do: one for each secret, as Envoy refuses a file with two.
const (
	certFile  = "understudy-cert.yaml"
	trustFile = "understudy-ca.yaml"
)

// SDS are the files of c.Envoy.TLS.SDS by their names: how Envoy follows changes of its own certificate towards the
// service and of the authority that it trusts. None where c has no such folder.
func SDS(c *config.Config) (map[string][]byte, error) {
	t := c.Envoy.TLS
	if t == nil || t.SDS == "" {
		return nil, nil
	}
	context := trust(t.CA, t.ServerName).ValidationContext
	context.WatchedDirectory = folder(t.CA)
	secrets := map[string]*tlsv3.Secret{
		trustFile: {Type: &tlsv3.Secret_ValidationContext{ValidationContext: context}},
	}
	if t.Cert != "" {
		cert := certificate(t)
		cert.WatchedDirectory = folder(t.Cert)
		secrets[certFile] = &tlsv3.Secret{Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: cert}}
	}
	files := map[string][]byte{}
	for name, secret := range secrets {
		secret.Name = name
		resource, err := anypb.New(secret)
		if err != nil {
			return nil, err
		}
		if files[name], err = YAML(&discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{resource}}); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// followed is a secret that comes by a file of SDS.
func followed(dir, name string) *tlsv3.SdsSecretConfig {
	return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: &corev3.ConfigSource{
		ResourceApiVersion: corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_PathConfigSource{
			PathConfigSource: &corev3.PathConfigSource{Path: path.Join(dir, name)},
		},
	}}
}

// folder is watched for moves into it, by which mounted secrets and careful writers replace files.
func folder(file string) *corev3.WatchedDirectory {
	return &corev3.WatchedDirectory{Path: path.Dir(file)}
}
