package scripted

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"sync"
)

// Server serves one handler, most often a [Provider], on one TCP address.
//
// Ownership: who calls Serve, who must Close it.
type Server struct {
	http    http.Server
	ln      net.Listener
	scheme  string
	running sync.WaitGroup // the accept loop and every handler
	cancel  context.CancelFunc
}

// Serve listens on addr (host:port; port 0 takes a free one) and serves h until Close. With a certificate it speaks
// TLS, HTTP/2 and HTTP/1.1 as the client prefers; without, plaintext HTTP/1.1.
func Serve(h http.Handler, addr string, cert *tls.Certificate) (*Server, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{ln: ln, scheme: "http", cancel: cancel}
	s.http.Handler = s.counted(h)
	s.http.BaseContext = func(net.Listener) context.Context { return ctx }
	s.http.ErrorLog = stdlog.New(io.Discard, "", 0) // handlers that abort are the job here
	serve := func() error { return s.http.Serve(ln) }
	if cert != nil {
		s.scheme = "https"
		s.http.TLSConfig = &tls.Config{Certificates: []tls.Certificate{*cert}, NextProtos: []string{"h2", "http/1.1"}}
		serve = func() error { return s.http.ServeTLS(ln, "", "") }
	}
	s.running.Go(func() { _ = serve() }) // always http.ErrServerClosed or the listener's own end
	return s, nil
}

func (s *Server) counted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.running.Add(1)
		defer s.running.Done()
		h.ServeHTTP(w, r)
	})
}

// Addr is the host:port that is served.
func (s *Server) Addr() string { return s.ln.Addr().String() }

// URL is scheme://host:port; with TLS, host is what the certificate is for.
func (s *Server) URL(host string) string {
	_, port, _ := net.SplitHostPort(s.Addr())
	return s.scheme + "://" + net.JoinHostPort(host, port)
}

// Close ends every connection at once and waits for the handlers. It may be called again.
func (s *Server) Close() error {
	err := s.http.Close()
	s.cancel() // for connections that were hijacked, and only now: no handler may end its answer well
	s.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
