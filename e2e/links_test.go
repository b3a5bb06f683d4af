//go:build e2e

package e2e

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"understudy/internal/scripted"
)

// linked is the chain of the tests below.
var linked = []chain{{name: "linked", api: "anthropic", on: []string{"a", "dead", "b"}}}

// failsOver checks that a stack rescues an exchange, whatever its parts are joined with.
func (s *Stack) failsOver(t *testing.T) {
	t.Helper()
	c := call{path: messages, stream: true, chain: "linked", script: "a=error-start; b=ok n=20"}
	served{by: "b", target: "linked/b", rung: 2, attempts: 3, reason: "transport", n: 20}.check(t, c, s.sdk(within(t, patience), t, c))

	long := s.request(within(t, time.Minute), t, call{path: messages, script: "a=529; b=ok", id: "long"}, bytes.NewReader(sized(messages, 20_000_000)))
	if a := s.do(long); a.status != 200 || a.header.Get("x-llm-target") != "default-anthropic/b" {
		t.Errorf("a long request got %d %.300s, %v, want 200 from default-anthropic/b", a.status, a.body, a.err)
	}
	if a := s.do(s.plain(within(t, patience), t, http.MethodGet, "/v1/models", nil)); a.status != 200 {
		t.Errorf("GET /v1/models = %d %s, %v, want 200", a.status, a.body, a.err)
	}
	s.survives(t)
}

func TestFrontAndHopMeetInSeveralWays(t *testing.T) {
	t.Parallel()
	for _, hop := range []string{"internal", "tcp", "uds"} {
		for _, version := range []string{envoyMain, envoyOldest} {
			t.Run(hop+" on "+version, func(t *testing.T) {
				t.Parallel()
				startStack(t, plan{hop: hop, envoy: version, chains: linked}).failsOver(t)
			})
		}
	}
}

func TestTheServiceMayListenOnASocketFile(t *testing.T) {
	t.Parallel()
	startStack(t, plan{socket: true, chains: linked}).failsOver(t)
}

func TestTheServiceKnowsItsEnvoyByACertificate(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		stranger bool
	}{{"the right one", false}, {"a stranger's", true}} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			files := makeCertificates(t, row.stranger)
			s := startStack(t, plan{chains: linked, edit: func(f *file) {
				f.Server.TLS = map[string]string{"cert": files["server"], "key": files["server-key"], "client_ca": files["ca"]}
				f.Envoy.TLS = map[string]string{"cert": files["client"], "key": files["client-key"], "ca": files["ca"], "server_name": "understudy.test"}
			}})
			if !row.stranger {
				s.failsOver(t)
				return
			}
			a := s.raw(within(t, patience), t, call{path: messages, script: "*=ok"})
			refused(t, a, messages, http.StatusServiceUnavailable)
			s.calls(t, t.Name(), "a:0 b:0")
		})
	}
}

// makeCertificates writes a CA, a server's and a client's certificate and says where; a stranger's is of another CA.
func makeCertificates(t *testing.T, stranger bool) map[string]string {
	t.Helper()
	dir := t.TempDir()
	ours, theirs := newCA(t), newCA(t)
	if !stranger {
		theirs = ours
	}
	files := map[string]string{"ca": filepath.Join(dir, "ca.pem")}
	write(t, files["ca"], ours.PEM())
	for name, cert := range map[string]*tls.Certificate{"server": leaf(t, ours, "understudy.test"), "client": leaf(t, theirs, "envoy.test")} {
		files[name], files[name+"-key"] = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
		write(t, files[name], pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}))
		key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		write(t, files[name+"-key"], pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	}
	return files
}

func newCA(t *testing.T) *scripted.CA {
	t.Helper()
	ca, err := scripted.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	return ca
}
