package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"understudy/internal/scripted"
	"understudy/pkg/config"
)

// secret is a mounted folder of certificates.
type secret struct {
	t   *testing.T
	dir string
}

// mount writes what ca signs for name, and ca itself, as one who replaces whole files does.
func (s secret) mount(ca *scripted.CA, name string) {
	s.t.Helper()
	cert, key := inPEM(s.t, signed(s.t, ca, name))
	s.write("tls.crt", cert)
	s.write("tls.key", key)
	s.write("ca.crt", ca.PEM())
}

func (s secret) write(name string, data []byte) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), data, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s secret) files() *config.ServerTLS {
	at := func(name string) string { return filepath.Join(s.dir, name) }
	return &config.ServerTLS{Cert: at("tls.crt"), Key: at("tls.key"), ClientCA: at("ca.crt")}
}

// expired is a pair whose time is over.
func expired(t *testing.T) (cert, key []byte) {
	t.Helper()
	return dated(t, time.Time{}, time.Now().Add(-time.Hour))
}

// dated is a pair for that time.
func dated(t *testing.T, from, to time.Time) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"understudy.test"}, NotBefore: from, NotAfter: to}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	return inPEM(t, &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private})
}

func inPEM(t *testing.T, pair *tls.Certificate) (cert, key []byte) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func signed(t *testing.T, ca *scripted.CA, name string) *tls.Certificate {
	t.Helper()
	leaf, err := ca.Leaf(name)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

func authority(t *testing.T) *scripted.CA {
	t.Helper()
	ca, err := scripted.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// greets makes a handshake with l as a client that shows cert, nil for none, and trusts ca; a word comes back, as in TLS
// 1.3 a client hears of its refusal only afterwards.
func greets(t *testing.T, l *listenerTLS, ca *scripted.CA, cert *tls.Certificate) error {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", l.config())
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		if c, err := ln.Accept(); err == nil {
			fmt.Fprint(c, "welcome")
			c.Close()
		}
	}()
	c := &tls.Config{RootCAs: ca.Pool(), ServerName: "understudy.test", NextProtos: []string{"h2"}}
	if cert != nil {
		c.Certificates = []tls.Certificate{*cert}
	}
	conn, err := tls.Dial("tcp", ln.Addr().String(), c)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Read(make([]byte, 1))
	return err
}

func TestHandshakesGoByTheFilesAsTheyAre(t *testing.T) {
	before, after := authority(t), authority(t)
	old, young := signed(t, before, "envoy.test"), signed(t, after, "envoy.test")
	s := secret{t, t.TempDir()}
	s.mount(before, "understudy.test")
	var log lockedBuffer
	w, err := newWires(config.Server{TLS: s.files()}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	uses := func(when string, ca *scripted.CA, in, out *tls.Certificate, ok float64) {
		t.Helper()
		if err := greets(t, w.grpc, ca, in); err != nil {
			t.Errorf("%s: a client of the authority in use is refused: %v", when, err)
		}
		if out != nil && greets(t, w.grpc, ca, out) == nil {
			t.Errorf("%s: a client of another authority is let in", when)
		}
		if got := testutil.ToFloat64(w.ok); got != ok {
			t.Errorf("%s: understudy_tls_reload_success = %v, want %v", when, got, ok)
		}
	}
	looks := func() { w.grpc.look(); w.grpc.look() }

	uses("at first", before, old, young, 1)
	_, otherKey := inPEM(t, young)
	s.write("tls.key", otherKey)
	w.grpc.look()
	uses("between two writes", before, old, young, 1)
	if log.String() != "" {
		t.Errorf("a key that is one look old was complained of:\n%s", log.String())
	}
	w.grpc.look()
	uses("with another certificate's key", before, old, young, 0)
	looks()
	if n := strings.Count(log.String(), "are not used"); n != 1 {
		t.Errorf("one bad change was complained of %d times, want once:\n%s", n, log.String())
	}

	s.mount(after, "understudy.test")
	looks()
	uses("with the next authority", after, young, old, 1)
	leaf := w.grpc.live.Load().Certificates[0].Leaf
	if got := testutil.ToFloat64(w.expiry); got != float64(leaf.NotAfter.Unix()) {
		t.Errorf("understudy_tls_cert_expiry_seconds = %v, want %v", got, leaf.NotAfter.Unix())
	}
	for name, spoil := range map[string]func(){
		"no certificate":               func() { s.write("tls.crt", []byte("oops")) },
		"no authority":                 func() { s.write("ca.crt", nil) },
		"no file":                      func() { os.Remove(filepath.Join(s.dir, "ca.crt")) },
		"a certificate's half":         func() { s.write("tls.crt", []byte("-----BEGIN CERTIFICATE-----\n")) },
		"an authority that is cut off": func() { s.write("ca.crt", append(after.PEM(), before.PEM()[:200]...)) },
		"an authority that is damaged": func() {
			s.write("ca.crt", append(after.PEM(), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"...))
		},
		"an intermediate that is cut off": func() {
			cert, err := os.ReadFile(filepath.Join(s.dir, "tls.crt"))
			if err != nil {
				t.Fatal(err)
			}
			s.write("tls.crt", append(cert, before.PEM()[:200]...))
		},
		"an expired pair": func() {
			cert, key := expired(t)
			s.write("tls.crt", cert)
			s.write("tls.key", key)
		},
	} {
		s.mount(after, "understudy.test")
		looks()
		spoil()
		looks()
		uses("with "+name, after, young, old, 0)
	}
}

func TestACertificateWhoseTimeHasNotComeIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := authority(t)
		s := secret{t, t.TempDir()}
		s.mount(ca, "understudy.test")
		var log lockedBuffer
		w, err := newWires(config.Server{TLS: s.files()}, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		shown := func() *x509.Certificate { return w.grpc.live.Load().Certificates[0].Leaf }
		old := shown()
		cert, key := dated(t, time.Now().Add(10*time.Minute), time.Now().Add(time.Hour))
		s.write("tls.crt", cert)
		s.write("tls.key", key)
		w.grpc.look()
		w.grpc.look()
		if !shown().Equal(old) || log.String() != "" {
			t.Errorf("a certificate of tomorrow is shown today, or complained of: %s", log.String())
		}
		time.Sleep(11 * time.Minute)
		w.grpc.look()
		if shown().Equal(old) {
			t.Error("a certificate whose time has come is not shown")
		}
	})
}

func TestAnEnvoyThatIsNotLetInIsToldOf(t *testing.T) {
	ca := authority(t)
	dir := folder(t)
	secret{t, dir}.mount(ca, "understudy.test")
	pair := `cert: "DIR/tls.crt", key: "DIR/tls.key"`
	s := beginWith(t, dir, embedded(dir), strings.Replace(serviceYAML, "drain: 1s}",
		`drain: 1s, tls: {`+pair+`, client_ca: "DIR/ca.crt", client_names: [envoy.test]}}
envoy: {tls: {`+pair+`, ca: "DIR/ca.crt", server_name: understudy.test}}`, 1))
	defer s.end()
	knock := func(cert *tls.Certificate) {
		t.Helper()
		conn, err := net.Dial("unix", filepath.Join(dir, "service.sock"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if cert == nil {
			return // as a health check of TCP does
		}
		c := tls.Client(conn, &tls.Config{RootCAs: ca.Pool(), ServerName: "understudy.test", NextProtos: []string{"h2"}, Certificates: []tls.Certificate{*cert}})
		c.Handshake() // whose error comes later
		c.Read(make([]byte, 1))
	}
	knock(nil)
	for range 3 {
		knock(signed(t, ca, "other.test"))
	}
	eventually(t, func(context.Context) error {
		if !strings.Contains(s.log.String(), "client_names") {
			return fmt.Errorf("the log has no word of it:\n%s", s.log.String())
		}
		return nil
	})
	if n := strings.Count(s.log.String(), "is not let in"); n != 1 {
		t.Errorf("the log tells of it %d times, want once:\n%s", n, s.log.String())
	}
}

func TestAClientNeedsOneOfTheNames(t *testing.T) {
	ca := authority(t)
	s := secret{t, t.TempDir()}
	s.mount(ca, "understudy.test")
	files := s.files()
	files.ClientNames = []string{"envoy.test", "spiffe://mesh/envoy"}
	w, err := newWires(config.Server{TLS: files}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := greets(t, w.grpc, ca, signed(t, ca, "envoy.test")); err != nil {
		t.Errorf("a client with the name is refused: %v", err)
	}
	if greets(t, w.grpc, ca, signed(t, ca, "other.test")) == nil {
		t.Error("a client with another name is let in")
	}
	if greets(t, w.grpc, ca, nil) == nil {
		t.Error("a client without a certificate is let in")
	}
}

func TestTheAdminPortAsksForACertificateButTellsEverybodyWhetherItLives(t *testing.T) {
	ca := authority(t)
	dir := folder(t)
	m := secret{t, dir}
	m.mount(ca, "localhost")
	s := beginWith(t, dir, embedded(dir), strings.Replace(serviceYAML, "drain: 1s",
		`drain: 1s, admin_tls: {cert: "DIR/tls.crt", key: "DIR/tls.key", client_ca: "DIR/ca.crt", client_names: [prometheus.test]}`, 1))
	defer s.end()
	_, port, err := net.SplitHostPort(s.adminListener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, path string
		cert       *tls.Certificate
		want       int // 0: no answer
	}{
		{"nobody asks for metrics", "/metrics", nil, http.StatusForbidden},
		{"nobody asks for an unknown page", "/healthz/../metrics", nil, http.StatusForbidden},
		{"a probe asks whether it lives", "/healthz", nil, http.StatusOK},
		{"a friend asks for metrics", "/metrics", signed(t, ca, "prometheus.test"), http.StatusOK},
		{"one with another name asks for metrics", "/metrics", signed(t, ca, "other.test"), 0},
		{"one of another authority asks whether it lives", "/healthz", signed(t, authority(t), "prometheus.test"), 0},
	} {
		c := &tls.Config{RootCAs: ca.Pool()}
		if row.cert != nil {
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return row.cert, nil }
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}}
		got := 0
		if resp, err := client.Get("https://localhost:" + port + row.path); err == nil {
			got = resp.StatusCode
			resp.Body.Close()
		}
		if got != row.want {
			t.Errorf("%s: GET %s = %d, want %d", row.name, row.path, got, row.want)
		}
	}
	eventually(t, func(ctx context.Context) error {
		var out bytes.Buffer
		if code := run(ctx, []string{"health", "--admin", "https://127.0.0.1:" + port}, std{nil, &out, &out}); code != exitFine {
			return fmt.Errorf("extproc health = exit %d, %s", code, out.String())
		}
		return nil
	})
	if resp, err := http.Get("http://localhost:" + port + "/metrics"); err == nil && resp.StatusCode < 400 {
		t.Errorf("GET /metrics without TLS = %d, want a refusal", resp.StatusCode)
	}
}

func TestASocketIsForWhomItsModeSays(t *testing.T) {
	for mode, want := range map[string]os.FileMode{"": 0o600, ", socket_mode: '0660'": 0o660} {
		dir := folder(t)
		s := beginWith(t, dir, embedded(dir), strings.Replace(serviceYAML, "drain: 1s", "drain: 1s"+mode, 1))
		info, err := os.Stat(filepath.Join(dir, "service.sock"))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("with %q the socket's mode = %v, %v, want %v", mode, info.Mode().Perm(), err, want)
		}
		s.end()
	}
}

func TestOnlyASocketIsReplacedByASocket(t *testing.T) {
	dir := folder(t)
	socket := config.Address{Network: "unix", Addr: filepath.Join(dir, "service.sock")}
	left, err := net.Listen("unix", socket.Addr)
	if err != nil {
		t.Fatal(err)
	}
	left.(*net.UnixListener).SetUnlinkOnClose(false) // as a process does that is killed
	left.Close()
	l, err := listen(socket, 0o600)
	if err != nil {
		t.Fatalf("listen where a dead process has left its socket = %v, want nil", err)
	}
	l.Close()
	for what, make := range map[string]func() error{
		"file":   func() error { return os.WriteFile(socket.Addr, []byte("precious"), 0o600) },
		"folder": func() error { return os.Mkdir(socket.Addr, 0o700) },
		"link":   func() error { return os.Symlink("elsewhere", socket.Addr) },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
		if l, err := listen(socket, 0o600); err == nil {
			l.Close()
			t.Errorf("listen where there is a %s = nil, want an error", what)
		}
		if _, err := os.Lstat(socket.Addr); err != nil {
			t.Errorf("after listen the %s is gone: %v", what, err)
		}
		os.Remove(socket.Addr)
	}
}

func TestFilesThatAnEnvoyFollowsAreMovedIntoPlace(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "u.yaml")
	const tlsOn = `tls: {cert: /c, key: /k, ca: /a, server_name: understudy.test, sds: /etc/envoy/understudy}`
	text := strings.NewReplacer("DIR", dir, "STORE", embedded(dir), "drain: 1s}", "drain: 1s, tls: {cert: /c, key: /k, client_ca: /a}}\nenvoy: {"+tlsOn+"}").Replace(serviceYAML)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var before []os.FileInfo
	for range 2 {
		var out bytes.Buffer
		if code := run(t.Context(), []string{"envoy", "-c", config, "--sds", dir}, std{nil, &out, &out}); code != exitFine {
			t.Fatalf("extproc envoy --sds = exit %d, %s", code, out.String())
		}
		var now []os.FileInfo
		for _, name := range []string{"understudy-cert.yaml", "understudy-ca.yaml"} {
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			now = append(now, info)
		}
		for i := range before {
			if os.SameFile(before[i], now[i]) {
				t.Errorf("%s is written over, want another in its place", now[i].Name())
			}
		}
		before = now
	}
	if all, _ := os.ReadDir(dir); len(all) != 3 {
		t.Errorf("the folder holds %v, want the config and two files", all)
	}
}
