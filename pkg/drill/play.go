package drill

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"understudy/internal/scripted"
	"understudy/pkg/config"
)

// domain follows the name of a fault in the authority of a request that meets it.
const domain = ".drill.invalid"

// Instead is t as far as the request's shape goes, but played by a fault: at the dialect's own platform, and with no
// credential.
func Instead(t *config.Target, fault string) *config.Target {
	played := *t
	played.Provider = &config.Provider{
		Name: t.Provider.Name, API: t.Provider.API, Platform: config.Native, TierCheck: true,
		Endpoint: &url.URL{Scheme: "http", Host: fault + domain}, Auth: config.Auth{None: true}, Cluster: config.DrillCluster,
	}
	return &played
}

// mostPlayed bounds the faults that are played at once: whoever can reach the server could have any number of them hang.
const mostPlayed = 10_000

// Handler plays the fault that a request's authority names, for as long as a plan can last.
func Handler() http.Handler { return handler(mostPlayed) }

// handler plays at most so many faults at once. Beyond that it answers 503, which is a failure, too.
func handler(most int) http.Handler {
	room := make(chan struct{}, most)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case room <- struct{}{}:
			defer func() { <-room }()
		default:
			http.Error(w, "too many faults are played", http.StatusServiceUnavailable)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), Longest)
		defer cancel()
		r = r.WithContext(ctx)
		f, ok := Named(strings.TrimSuffix(r.Host, domain))
		if !ok {
			http.Error(w, "no such fault", http.StatusNotFound)
			return
		}
		play(f, w, r)
	})
}

// play acts as a provider that does nothing else.
func play(f Fault, w http.ResponseWriter, r *http.Request) {
	o := scripted.Options{Default: f.Script}
	if strings.Contains(r.URL.Path, "/models/") {
		o.Platform = scripted.Native{API: "gemini", Auth: scripted.Anyone{}}
		model, _, _ := strings.Cut(r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:], ":")
		o.Models = []string{model}
	}
	r.Header.Del(scripted.ScriptHeader) // a client has no say in it
	scripted.New("drill", o).ServeHTTP(w, r)
}
