//go:build e2e

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"understudy/internal/scripted"
)

// mount is a folder as an orchestrator mounts a secret: its files are links through one link, "..data", that is moved in
// one step.
type mount struct {
	dir string
	n   int
}

// put makes files what the mount holds.
func (m *mount) put(t *testing.T, files map[string][]byte) {
	t.Helper()
	m.n++
	version := fmt.Sprintf("..version%d", m.n)
	if err := os.MkdirAll(filepath.Join(m.dir, version), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		write(t, filepath.Join(m.dir, version, name), data)
		if err := os.Symlink(filepath.Join("..data", name), m.at(name)); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	next := m.at("..data_next")
	if err := errors.Join(os.Symlink(version, next), os.Rename(next, m.at("..data"))); err != nil {
		t.Fatal(err)
	}
}

func (m *mount) at(name string) string { return filepath.Join(m.dir, name) }

// pair is a certificate and its key as a mounted secret holds them.
func pair(t *testing.T, cert *tls.Certificate) map[string][]byte {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{
		"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}),
		"tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	}
}

// rotation is two ends that know each other by certificates, each with its own mounted secret.
type rotation struct {
	server, client mount
	sds            string // a folder
}

func newRotation(t *testing.T) *rotation {
	dir := t.TempDir()
	return &rotation{server: mount{dir: filepath.Join(dir, "server")}, client: mount{dir: filepath.Join(dir, "client")}, sds: dir}
}

// hold mounts what issuer signs on both ends, who trust the authorities in trusted, and returns Envoy's certificate.
func (r *rotation) hold(t *testing.T, issuer *scripted.CA, trusted ...*scripted.CA) (shown []byte) {
	t.Helper()
	var bundle []byte
	for _, ca := range trusted {
		bundle = append(bundle, ca.PEM()...)
	}
	for end, name := range map[*mount]string{&r.server: "understudy.test", &r.client: "envoy.test"} {
		files := pair(t, leaf(t, issuer, name))
		files["ca.crt"] = bundle
		end.put(t, files)
		if end == &r.client {
			shown = files["tls.crt"]
		}
	}
	return shown
}

func (r *rotation) configure(f *file) {
	f.Server.TLS = map[string]string{"cert": r.server.at("tls.crt"), "key": r.server.at("tls.key"), "client_ca": r.server.at("ca.crt")}
	f.Envoy.TLS = map[string]string{"cert": r.client.at("tls.crt"), "key": r.client.at("tls.key"), "ca": r.client.at("ca.crt"),
		"server_name": "understudy.test", "sds": r.sds}
}

// envoy starts one that follows its certificates.
func (r *rotation) envoy(t testing.TB, s *Stack, config string) (*process, error) {
	if _, err := output(exec.Command(binary, "envoy", "-c", config, "--sds", r.sds)); err != nil {
		return nil, fmt.Errorf("extproc envoy --sds: %w", err)
	}
	return s.runEnvoy(t, "envoy", config)
}

// greets makes a handshake with the service as a client that shows cert and trusts ca.
func (s *Stack) greets(t *testing.T, ca *scripted.CA, cert *tls.Certificate) error {
	t.Helper()
	d := tls.Dialer{Config: &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{*cert}, ServerName: "understudy.test", NextProtos: []string{"h2"}}}
	conn, err := d.DialContext(within(t, patience), "tcp", s.services[0].grpc)
	if err != nil {
		return err
	}
	defer conn.Close()
	// In TLS 1.3 a client hears of its refusal after its own handshake; a server of HTTP/2 speaks first.
	_, err = conn.Read(make([]byte, 1))
	return err
}

// envoyHolds says what is not so yet: Envoy shows cert, and trusts ca before any other. (Before 1.37 it tells of no other.)
func (s *Stack) envoyHolds(t *testing.T, cert []byte, ca *scripted.CA) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.envoyAdmin+"/certs", nil)
	if err != nil {
		return err
	}
	a := s.do(req)
	for _, number := range []string{serial(t, cert), serial(t, ca.PEM())} {
		if !strings.Contains(a.body, `"`+number+`"`) {
			return fmt.Errorf("envoy has no certificate %s yet: %s, %v", number, a.body, a.err)
		}
	}
	return a.err
}

// serial is the number of the first certificate in a file, as Envoy writes it.
func serial(t *testing.T, file []byte) string {
	t.Helper()
	block, _ := pem.Decode(file)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", cert.SerialNumber.Bytes())
}

func TestCertificatesRotateUnderLoad(t *testing.T) { // alone: it is heavy
	for _, version := range []string{envoyMain, envoyOldest} {
		t.Run(version, func(t *testing.T) { rotate(t, version) })
	}
}

func rotate(t *testing.T, version string) {
	r := newRotation(t)
	before, after := newCA(t), newCA(t)
	old, young := leaf(t, before, "envoy.test"), leaf(t, after, "envoy.test")
	r.hold(t, before, before)
	s := startStack(t, plan{envoy: version, chains: surviving(), edit: r.configure, another: r.envoy})
	if s.greets(t, before, young) == nil {
		t.Fatal("a client of the next authority is let in before its time")
	}
	of := func(i int) call {
		return call{path: messages, stream: true, chain: "flow", script: "a=ok n=20 delay=100ms", id: fmt.Sprint(t.Name(), i)}
	}
	answers := s.underLoad(t, of, func() {
		for _, step := range []struct {
			issuer  *scripted.CA
			trusted []*scripted.CA
			shown   *tls.Certificate
		}{
			{before, []*scripted.CA{after, before}, young}, // both are trusted,
			{after, []*scripted.CA{before, after}, young},  // before anybody shows the next,
			{after, []*scripted.CA{after}, young},          // and nobody shows the old one when it goes.
		} {
			shown := r.hold(t, step.issuer, step.trusted...)
			eventually(t, patience, func() error { return s.greets(t, step.issuer, step.shown) })
			eventually(t, patience, func() error { return s.envoyHolds(t, shown, step.trusted[0]) })
		}
		eventually(t, patience, func() error {
			if s.greets(t, after, old) == nil {
				return errors.New("a client with the old certificate is still let in")
			}
			return nil
		})
	})
	for _, a := range answers {
		if a.err != nil || a.header.Get("x-llm-rung") != "0" {
			t.Errorf("an exchange got %d, %v, rung %q, want 200 from rung 0", a.status, a.err, a.header.Get("x-llm-rung"))
		}
	}
	t.Logf("%d exchanges", len(answers))
	s.reads(t, is(1), "understudy_tls_reload_success", "listener", "grpc")

	// Nothing of the old is left on any side: a new connection is made, and carries.
	s.services[0].stop(patience)
	s.back(t, "flow")
}

func TestABadCertificateChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRotation(t)
	ca := newCA(t)
	r.hold(t, ca, ca)
	s := startStack(t, plan{chains: linked, edit: r.configure, another: r.envoy})
	for _, end := range []*mount{&r.server, &r.client} {
		files := pair(t, leaf(t, ca, "another.test"))
		files["tls.key"], files["ca.crt"] = []byte("no key"), []byte("no certificate")
		end.put(t, files)
	}
	s.reads(t, is(0), "understudy_tls_reload_success", "listener", "grpc")
	s.failsOver(t)
	if err := s.greets(t, ca, leaf(t, ca, "envoy.test")); err != nil {
		t.Errorf("a new connection is refused: %v", err)
	}
	r.hold(t, ca, ca)
	s.reads(t, is(1), "understudy_tls_reload_success", "listener", "grpc")
	s.failsOver(t)
}
