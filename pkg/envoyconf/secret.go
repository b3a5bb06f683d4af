package envoyconf

import (
	"strings"

	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	injectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/credential_injector/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	genericv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/injected_credentials/generic/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"understudy/pkg/config"
)

// With fail-open, Envoy adds a provider's credential where the service did not. It does so in the provider's
// cluster: a filter of the listener would be enabled by the route that a request begins with, and so add the
// primary's credential to what the service then sends elsewhere. The values are not written here: Envoy takes them
// from its own environment, or from the file when it starts.

// injects says whether Envoy adds p's credential.
func (b *builder) injects(p *config.Provider) bool {
	return b.c.Envoy.FailOpen && !p.Auth.FromClient && p.Auth.Header != ""
}

// inFile is the path of p's secret, if that is where it is.
func inFile(p *config.Provider) (path string, ok bool) {
	return strings.CutPrefix(p.Auth.Secret.Ref(), "file:")
}

// credential adds p's to a request that carries none: what the service has set wins.
func credential(p *config.Provider) *mutationv3.HeaderMutation {
	value := "%REQ(" + aside + "credential)%"
	if name, ok := strings.CutPrefix(p.Auth.Secret.Ref(), "env:"); ok {
		value = "%ENVIRONMENT(" + name + ")%"
	}
	return &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_Append{Append: &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: p.Auth.Header, Value: p.Auth.Prefix + value},
		AppendAction: corev3.HeaderValueOption_ADD_IF_ABSENT,
	}}}
}

// injector lays a secret from a file aside for credential: Envoy 1.36 can put no prefix before what it injects.
// Before 1.40 Envoy takes a line break at the file's end for part of the secret, and refuses the request.
func (b *builder) injector(p *config.Provider) *hcmv3.HttpFilter {
	return b.filter("envoy.filters.http.credential_injector", &injectorv3.CredentialInjector{
		Overwrite:                     true,
		AllowRequestWithoutCredential: true,
		Credential: b.extension("envoy.http.injected_credentials.generic", &genericv3.Generic{
			Credential: &tlsv3.SdsSecretConfig{Name: secretName(p), SdsConfig: b.secretsFrom},
			Header:     aside + "credential",
		}),
	})
}

// secrets name the files of the credentials that Envoy injects.
func (b *builder) secrets() []*tlsv3.Secret {
	var out []*tlsv3.Secret
	for _, p := range b.providers() {
		if path, ok := inFile(p); ok && b.injects(p) {
			out = append(out, &tlsv3.Secret{
				Name: secretName(p),
				Type: &tlsv3.Secret_GenericSecret{GenericSecret: &tlsv3.GenericSecret{Secret: file(path)}},
			})
		}
	}
	return out
}

func secretName(p *config.Provider) string { return "credential." + p.Name }
