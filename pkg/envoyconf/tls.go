package envoyconf

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"understudy/pkg/config"
)

// originTLS checks the certificate of a server outside against its host: Envoy checks no name by itself.
func (b *builder) originTLS(host, ca string) *corev3.TransportSocket {
	return b.tls(host, &tlsv3.CommonTlsContext{ValidationContextType: trust(ca, host)})
}

// serviceTLS is how Envoy and the service know each other; nil is plaintext.
func (b *builder) serviceTLS() *corev3.TransportSocket {
	t := b.c.Envoy.TLS
	if t == nil {
		return nil
	}
	common := &tlsv3.CommonTlsContext{AlpnProtocols: []string{"h2"}}
	if t.SDS != "" {
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContextSdsSecretConfig{
			ValidationContextSdsSecretConfig: followed(t.SDS, trustFile),
		}
	} else {
		common.ValidationContextType = trust(t.CA, t.ServerName)
	}
	switch {
	case t.Cert != "" && t.SDS != "":
		common.TlsCertificateSdsSecretConfigs = []*tlsv3.SdsSecretConfig{followed(t.SDS, certFile)}
	case t.Cert != "":
		common.TlsCertificates = []*tlsv3.TlsCertificate{certificate(t)}
	}
	return b.tls(t.ServerName, common)
}

func certificate(t *config.ClientTLS) *tlsv3.TlsCertificate {
	return &tlsv3.TlsCertificate{CertificateChain: file(t.Cert), PrivateKey: file(t.Key)}
}

func (b *builder) tls(host string, common *tlsv3.CommonTlsContext) *corev3.TransportSocket {
	up := &tlsv3.UpstreamTlsContext{CommonTlsContext: common}
	if !isIP(host) {
		up.Sni = host // RFC 6066: "Literal IPv4 and IPv6 addresses are not permitted".
	}
	return &corev3.TransportSocket{
		Name:       "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: b.pack(up)},
	}
}

// trust accepts certificates that ca vouches for and that name host.
func trust(ca, host string) *tlsv3.CommonTlsContext_ValidationContext {
	kind := tlsv3.SubjectAltNameMatcher_DNS
	if isIP(host) {
		kind = tlsv3.SubjectAltNameMatcher_IP_ADDRESS
	}
	return &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
		TrustedCa: file(ca),
		MatchTypedSubjectAltNames: []*tlsv3.SubjectAltNameMatcher{{
			SanType: kind,
			Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: host}},
		}},
	}}
}

func file(path string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}}
}
