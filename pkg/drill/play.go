package drill

import (
	"net/http"
	"net/url"
	"strings"

	"understudy/internal/scripted"
	"understudy/pkg/config"
)

// Cluster is Envoy's way to the server that plays faults.
const Cluster = "understudy-drill"

// domain follows the name of a fault in the authority of a request that meets it.
const domain = ".drill.invalid"

// Instead is t as far as the request's shape goes, but played by a fault: at the dialect's own platform, and with no
// credential.
func Instead(t *config.Target, fault string) *config.Target {
	played := *t
	played.Provider = &config.Provider{
		Name: t.Provider.Name, API: t.Provider.API, Platform: config.Native, TierCheck: true,
		Endpoint: &url.URL{Scheme: "http", Host: fault + domain}, Auth: config.Auth{None: true}, Cluster: Cluster,
	}
	return &played
}

// Handler plays the fault that a request's authority names.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
