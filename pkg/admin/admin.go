// Package admin serves what operators and their monitoring ask for.
package admin

import (
	"context"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// ErrUnknown is the error of a Switch for a chain that the config does not have.
var ErrUnknown = errors.New("no chain has this name")

// Options are what the listener serves.
type Options struct {
	Metrics prometheus.Gatherer
	Ready   func() error // nil: ready
	// Job is the state and result of a queued request, as a status and JSON.
	Job func(ctx context.Context, id string) (status int, body []byte)
	// Switch switches a chain off or on again, for all replicas.
	Switch func(ctx context.Context, chain string, off bool) error
	Drills Drills
	// Token is what a caller must show for results and changes, "" when none is configured.
	Token func() string
	// Local says that only this machine can reach the listener: then no token is needed where none is configured.
	Local bool
}

// Handler serves /metrics, /healthz (the process lives), /readyz, /jobs/{id}, and the changes:
// POST /chains/{chain}/off and /chains/{chain}/on, and those of [Drills].
func Handler(o Options) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.Metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := o.Ready(); err != nil {
			say(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		say(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /jobs/{id}", o.trusted(func(w http.ResponseWriter, r *http.Request) {
		status, body := o.Job(r.Context(), r.PathValue("id"))
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(status)
		_, _ = w.Write(body)
	}))
	mux.HandleFunc("POST /chains/{chain}/off", o.trusted(o.switching(true)))
	mux.HandleFunc("POST /chains/{chain}/on", o.trusted(o.switching(false)))
	if o.Drills != nil {
		o.drills(mux)
	}
	return mux
}

func (o Options) switching(off bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		told(w, o.Switch(r.Context(), r.PathValue("chain"), off), nil)
	}
}

// trusted lets through who shows the token, and where none is configured, who is on this machine: not a web page that
// a browser there shows (its calls carry an Origin, or a name as Host that was made to lead here).
func (o Options) trusted(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		token := o.Token()
		shown, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch {
		case token != "" && subtle.ConstantTimeCompare([]byte(shown), []byte(token)) == 1:
		case token != "":
			say(w, http.StatusUnauthorized, "this needs the admin token: send Authorization: Bearer TOKEN")
			return
		case !o.Local:
			say(w, http.StatusForbidden, "this listener is open to the network: set server.admin_token to allow this")
			return
		case r.Header.Get("Origin") != "" || !plain(r.Host):
			say(w, http.StatusForbidden, "web pages may not do this: set server.admin_token and send it")
			return
		}
		next(w, r)
	}
}

// plain says that a Host header is no name that somebody else's DNS may resolve.
func plain(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || host == "localhost" || host == ""
}

func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n"))
}
