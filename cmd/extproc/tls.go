package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"

	"understudy/pkg/config"
)

// listenerTLS is the TLS of one listener. When its files change they are read again, for the handshakes that follow:
// open connections and their streams stay.
//
// Ownership: newApp makes it, and one goroutine of the app looks at its files.
// Concurrency: handshakes from any goroutine; look belongs to one.
type listenerTLS struct {
	key      string // of the config
	files    *config.ServerTLS
	auth     tls.ClientAuthType // where there is a client_ca
	protocol string             // of ALPN

	live        atomic.Pointer[tls.Config]
	seen, tried [sha256.Size]byte // what the files held at the last look, and what was last read for use
	ok, expiry  prometheus.Gauge
	log         *slog.Logger
}

// wires are the listeners' TLS, nil where they speak plaintext.
type wires struct {
	grpc, admin *listenerTLS
	ok, expiry  *prometheus.GaugeVec
}

func newWires(s config.Server, log *slog.Logger) (*wires, error) {
	w := &wires{
		ok: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "understudy_tls_reload_success",
			Help: "Whether the listener's certificates are used as they are on disk (1) or were refused at the last change (0)."}, []string{"listener"}),
		expiry: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "understudy_tls_cert_expiry_seconds",
			Help: "When the certificate that the listener shows expires, in seconds since the epoch."}, []string{"listener"}),
	}
	var errs [2]error
	w.grpc, errs[0] = w.open("grpc", &listenerTLS{key: "server.tls", files: s.TLS, auth: tls.RequireAndVerifyClientCert, protocol: "h2", log: log})
	// The probes of an orchestrator carry no certificate: vouched asks for it.
	w.admin, errs[1] = w.open("admin", &listenerTLS{key: "server.admin_tls", files: s.AdminTLS, auth: tls.VerifyClientCertIfGiven, protocol: "http/1.1", log: log})
	return w, errors.Join(errs[:]...)
}

// open reads l's files for the first time; nil without any.
func (w *wires) open(listener string, l *listenerTLS) (*listenerTLS, error) {
	if l.files == nil {
		return nil, nil
	}
	l.ok, l.expiry = w.ok.WithLabelValues(listener), w.expiry.WithLabelValues(listener)
	held := l.read()
	l.seen, l.tried = held.sum, held.sum
	return l, l.use(held)
}

// watch looks at the files every second until ctx ends.
func (w *wires) watch(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, l := range []*listenerTLS{w.grpc, w.admin} {
			if l != nil {
				l.look()
			}
		}
	}
}

// config hands each handshake what the files held last.
func (l *listenerTLS) config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return l.live.Load(), nil },
	}
}

// look uses the files if they have changed and stood still for one look: a certificate and its key are two files, and
// between the two writes they are no pair.
func (l *listenerTLS) look() {
	held := l.read()
	still := held.sum == l.seen
	l.seen = held.sum
	if !still || held.sum == l.tried || l.early(held) {
		return
	}
	l.tried = held.sum
	if err := l.use(held); err != nil {
		l.ok.Set(0)
		l.log.Error("the changed certificates are not used", "error", err.Error())
		return
	}
	l.log.Info("certificates reloaded", "config", l.key, "expires", l.live.Load().Certificates[0].Leaf.NotAfter)
}

// early says whether the certificate of h is not valid yet, and the one in use still is: then it is waited for.
func (l *listenerTLS) early(h held) bool {
	now := time.Now()
	next, err := tls.X509KeyPair(h.cert, h.key)
	return err == nil && now.Before(next.Leaf.NotBefore) && now.Before(l.live.Load().Certificates[0].Leaf.NotAfter)
}

// held is what the files held at one look. sum tells it from other looks'.
type held struct {
	cert, key, ca []byte
	err           error
	sum           [sha256.Size]byte
}

func (l *listenerTLS) read() held {
	var h held
	all := sha256.New()
	file := func(path string) []byte {
		data, err := os.ReadFile(path)
		h.err = errors.Join(h.err, err)
		fmt.Fprintf(all, "%d:%s", len(data), data)
		return data
	}
	h.cert, h.key = file(l.files.Cert), file(l.files.Key)
	if l.files.ClientCA != "" {
		h.ca = file(l.files.ClientCA)
	}
	fmt.Fprint(all, h.err)
	all.Sum(h.sum[:0])
	return h
}

// use makes h what handshakes go by from now on, or changes nothing.
func (l *listenerTLS) use(h held) error {
	c, err := l.compile(h)
	if err != nil {
		return fmt.Errorf("%s: %w", l.key, err)
	}
	l.live.Store(c)
	l.ok.Set(1)
	l.expiry.Set(float64(c.Certificates[0].Leaf.NotAfter.Unix()))
	return nil
}

func (l *listenerTLS) compile(h held) (*tls.Config, error) {
	if h.err != nil {
		return nil, h.err
	}
	cert, err := tls.X509KeyPair(h.cert, h.key)
	if err == nil {
		err = whole(h.cert)
	}
	if err != nil {
		return nil, fmt.Errorf("%s with %s: %w", l.files.Cert, l.files.Key, err)
	}
	if end := cert.Leaf.NotAfter; time.Now().After(end) {
		return nil, fmt.Errorf("%s has expired at %s", l.files.Cert, end.Format(time.RFC3339))
	}
	c := &tls.Config{
		Certificates: []tls.Certificate{cert},
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{l.protocol},
		// A resumed session would pass a client by what was trusted before. (crypto/tls: VerifyPeerCertificate "is not
		// invoked on resumed connections".)
		SessionTicketsDisabled: true,
	}
	if l.files.ClientCA == "" {
		return c, nil
	}
	c.ClientAuth, c.ClientCAs, c.VerifyPeerCertificate = l.auth, x509.NewCertPool(), l.named
	if !c.ClientCAs.AppendCertsFromPEM(h.ca) {
		return nil, fmt.Errorf("client_ca: %s holds no PEM certificate", l.files.ClientCA)
	}
	if err := whole(h.ca); err != nil {
		return nil, fmt.Errorf("client_ca: %s: %w", l.files.ClientCA, err)
	}
	return c, nil
}

// whole says whether each certificate that begins in a file can be read. crypto/tls and crypto/x509 pass over one that
// is cut off, as on a full disk, and take the rest for all.
func whole(file []byte) error {
	n := 0
	for block, rest := pem.Decode(file); block != nil; block, rest = pem.Decode(rest) {
		n++
		if _, err := x509.ParseCertificate(block.Bytes); block.Type == "CERTIFICATE" && err != nil {
			return fmt.Errorf("block %d: %w", n, err)
		}
	}
	if begun := bytes.Count(file, []byte("-----BEGIN ")); begun != n {
		return fmt.Errorf("%d of its %d blocks are cut off or damaged", begun-n, begun)
	}
	return nil
}

// audible is TLS for gRPC, which keeps to itself whom it does not let in, and why.
//
// Concurrency: handshakes from any goroutine.
type audible struct {
	credentials.TransportCredentials
	log  *slog.Logger
	told atomic.Int64 // when somebody was last told of, in Unix seconds
}

// quietly is how many seconds pass between two words about handshakes: an Envoy tries again every second.
const quietly = 10

func (a *audible) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := a.TransportCredentials.ServerHandshake(raw)
	now, told := time.Now().Unix(), a.told.Load()
	left := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) // without a word, as health checks of TCP do
	if err != nil && !left && now-told >= quietly && a.told.CompareAndSwap(told, now) {
		a.log.Warn("a caller is not let in", "from", raw.RemoteAddr().String(), "error", err.Error())
	}
	return conn, info, err
}

// named lets in only peers whose certificate carries one of client_names; all that client_ca signed when there are none.
func (l *listenerTLS) named(_ [][]byte, chains [][]*x509.Certificate) error {
	names := l.files.ClientNames
	if len(names) == 0 || len(chains) == 0 {
		return nil
	}
	leaf := chains[0][0]
	for _, uri := range leaf.URIs {
		if slices.Contains(names, uri.String()) {
			return nil
		}
	}
	for _, name := range leaf.DNSNames {
		if slices.Contains(names, name) {
			return nil
		}
	}
	return fmt.Errorf("the client's certificate carries none of %s.client_names", l.key)
}

// vouched lets through callers with a certificate that the listener has verified, and who only asks whether the service
// lives.
func vouched(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		known := r.TLS != nil && len(r.TLS.VerifiedChains) > 0
		if !known && r.URL.Path != "/healthz" && r.URL.Path != "/readyz" {
			http.Error(w, "this listener asks for a client certificate", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
