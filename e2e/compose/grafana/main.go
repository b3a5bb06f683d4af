// Command grafana stands in for Grafana's server where none can be had. It reads the provisioning files as Grafana would,
// refuses what Grafana would not show, and answers the few calls of Grafana's HTTP API that the test of the compose stack
// makes. It draws nothing.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
)

const (
	provisioning = "/etc/grafana/provisioning"
	listen       = ":3000"
)

func main() {
	log.SetFlags(0)
	log.Print("#### THIS IS NOT GRAFANA: a stand-in that checks the provisioning files and answers a few API calls ####")
	p, err := load(provisioning, os.Getenv("GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"))
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("%d data sources, %d dashboards", len(p.sources), len(p.boards))
	log.Fatal(http.ListenAndServe(listen, p.api()))
}

// api is the part of Grafana's HTTP API that an anonymous viewer needs to read dashboards and to query data sources.
func (p *provisioned) api() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/health", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]string{"database": "ok", "version": "stand-in"})
	})
	mux.HandleFunc("GET /api/search", func(w http.ResponseWriter, _ *http.Request) {
		hits := []hit{}
		for _, b := range p.boards {
			hits = append(hits, hit{UID: b.UID, Title: b.Title, Type: "dash-db"})
		}
		answer(w, hits)
	})
	mux.HandleFunc("GET /api/dashboards/uid/{uid}", func(w http.ResponseWriter, r *http.Request) {
		b, ok := p.boards[r.PathValue("uid")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		answer(w, map[string]json.RawMessage{"dashboard": b.raw})
	})
	for _, s := range p.sources {
		prefix := "/api/datasources/proxy/uid/" + s.UID
		mux.Handle(prefix+"/", http.StripPrefix(prefix, proxy(s.to)))
	}
	return mux
}

type hit struct {
	UID   string `json:"uid"`
	Title string `json:"title"`
	Type  string `json:"type"`
}

func proxy(to *url.URL) http.Handler {
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
}

func answer[T any](w http.ResponseWriter, v T) {
	w.Header().Set("content-type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
