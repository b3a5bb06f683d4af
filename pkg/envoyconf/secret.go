package envoyconf

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	injectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/credential_injector/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	genericv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/injected_credentials/generic/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"understudy/pkg/config"
)

// injects says whether Envoy adds p's credential where the service did not: only for fail-open.
func (b *builder) injects(p *config.Provider) bool {
	return b.c.Envoy.FailOpen && !p.Auth.FromClient && p.Auth.Header != ""
}

// injector adds p's credential to a request that carries none. It stands in p's cluster, so the credential can go
// nowhere else, and what the service has set wins (overwrite is off).
func (b *builder) injector(p *config.Provider) *hcmv3.HttpFilter {
	return b.filter("envoy.filters.http.credential_injector", &injectorv3.CredentialInjector{
		Credential: b.extension("envoy.http.injected_credentials.generic", &genericv3.Generic{
			Credential:        &tlsv3.SdsSecretConfig{Name: secretName(p)},
			Header:            p.Auth.Header,
			HeaderValuePrefix: p.Auth.Prefix,
		}),
	})
}

// secrets name where Envoy finds the credentials it injects; their values are not written here.
func (b *builder) secrets() []*tlsv3.Secret {
	var out []*tlsv3.Secret
	for _, p := range b.providers() {
		if b.injects(p) {
			out = append(out, &tlsv3.Secret{
				Name: secretName(p),
				Type: &tlsv3.Secret_GenericSecret{GenericSecret: &tlsv3.GenericSecret{Secret: source(p.Auth.Secret)}},
			})
		}
	}
	return out
}

func secretName(p *config.Provider) string { return "credential." + p.Name }

func source(s config.Secret) *corev3.DataSource {
	kind, name, _ := strings.Cut(s.Ref(), ":")
	if kind == "env" {
		return &corev3.DataSource{Specifier: &corev3.DataSource_EnvironmentVariable{EnvironmentVariable: name}}
	}
	return file(name)
}
