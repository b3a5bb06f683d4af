// Package admin serves what operators and their monitoring ask for: the status page, the same as JSON, metrics, and the
// changes that an operator may make. It knows nothing of what it shows: who makes a Handler gathers it.
package admin

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// ErrUnknown is the error of a change to what the config does not have.
var ErrUnknown = errors.New("nothing has this name")

//go:embed status.schema.json
var schema []byte

// Options are what the listener serves.
type Options struct {
	Metrics prometheus.Gatherer
	Ready   func() error // nil: ready
	// Status gathers what there is to see. It is called by one goroutine at a time, twice a second at most.
	Status func() Status
	// Job is the state and result of a queued request, as a status and JSON.
	Job func(ctx context.Context, id string) (status int, body []byte)
	// Switch switches a chain off or on again, for all replicas.
	Switch func(ctx context.Context, chain string, off bool) error
	// Force keeps a target's breaker open or closed, or releases it (open, closed, release), for all replicas.
	Force  func(ctx context.Context, target, how string) error
	Drills Drills // nil: there are none
	// Token is what a caller must show for results and changes, "" when none is configured.
	Token func() string
	// Local says that only this machine can reach the listener: then no token is needed where none is configured.
	Local bool
	// Names are hosts, in lower case, by which browsers may ask for pages, beside IP addresses and localhost.
	Names []string
	// Quiet is closed when the listener closes: pages that are open follow it until then.
	Quiet <-chan struct{}
}

// site is the pages and what is behind them.
type site struct {
	Options
	board     *board
	key       formKey
	foreign   *http.CrossOriginProtection
	listeners atomic.Int64 // open pages
}

// Handler serves the pages / and /operate, the same as / in JSON at /api/status, /metrics, /healthz (the process lives),
// /readyz, /jobs/{id}, and the changes: POST /chains/{chain}/off and /on, POST /breakers/{how}/{target}, and those of
// [Drills].
func Handler(o Options) http.Handler {
	s := &site{Options: o, board: newBoard(o.Status), key: newFormKey(), foreign: http.NewCrossOriginProtection()}
	mux := http.NewServeMux()
	s.pages(mux)
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.Metrics, promhttp.HandlerOpts{EnableOpenMetrics: true}))
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
		w.WriteHeader(status)
		_, _ = w.Write(body)
	}))
	mux.HandleFunc("POST /chains/{chain}/off", o.trusted(o.switching(true)))
	mux.HandleFunc("POST /chains/{chain}/on", o.trusted(o.switching(false)))
	mux.HandleFunc("POST /breakers/{how}/{target...}", o.trusted(o.forcing))
	if o.Drills != nil {
		o.drills(mux)
	}
	return guarded(mux)
}

// pages are what browsers ask for. They are for everybody who reaches the listener, as the metrics are.
func (s *site) pages(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", s.known(compressed(s.page)))
	mux.HandleFunc("GET /events", s.known(s.events))
	mux.HandleFunc("GET /operate", s.known(compressed(s.panel)))
	mux.HandleFunc("POST /operate", s.known(s.operate))
	mux.HandleFunc("GET /api/status", s.known(compressed(s.json)))
	mux.HandleFunc("GET /api/status.schema.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/schema+json")
		_, _ = w.Write(schema)
	})
	for name, kind := range map[string]string{"page.css": "text/css; charset=utf-8", "live.js": "text/javascript; charset=utf-8"} {
		mux.HandleFunc("GET /assets/"+name, compressed(func(w http.ResponseWriter, _ *http.Request) {
			data, err := fs.ReadFile(assets, "assets/"+name)
			if err != nil {
				say(w, http.StatusInternalServerError, err.Error())
				return
			}
			w.Header().Set("Content-Type", kind)
			_, _ = w.Write(data)
		}))
	}
}

// page is the status as a page.
func (s *site) page(w http.ResponseWriter, r *http.Request) {
	v, err := s.board.look()
	if err != nil {
		say(w, http.StatusInternalServerError, err.Error())
		return
	}
	s.write(w, http.StatusOK, "page", v.page(done(r.FormValue("done"))))
}

// json is the status as JSON.
func (s *site) json(w http.ResponseWriter, _ *http.Request) {
	v, err := s.board.look()
	var body []byte
	if err == nil {
		body, err = json.Marshal(v.status)
	}
	if err != nil {
		say(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

func (o Options) switching(off bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		told(w, o.Switch(r.Context(), r.PathValue("chain"), off), nil)
	}
}

func (o Options) forcing(w http.ResponseWriter, r *http.Request) {
	switch how := r.PathValue("how"); how {
	case "open", "closed", "release":
		told(w, o.Force(r.Context(), r.PathValue("target"), how), nil)
	default:
		say(w, http.StatusNotFound, "write /breakers/open/TARGET, /breakers/closed/TARGET or /breakers/release/TARGET")
	}
}

func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n"))
}
