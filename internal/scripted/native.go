package scripted

import (
	"fmt"
	"net/http"
	"strings"
)

// Native plays a dialect's own API, "anthropic", "openai" or "gemini", as strictly as the platforms.
type Native struct {
	API  string
	Auth Auth
}

func (n Native) extra(p *Provider, mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/models", p.recorded(p.listModels))
	if n.API == "openai" {
		keep(mux, p, "/v1/responses/{id}")
	}
}

// keep adds what can be asked of a response that is kept.
func keep(mux *http.ServeMux, p *Provider, path string) {
	mux.HandleFunc("GET "+path, p.recorded(stored))
	mux.HandleFunc("DELETE "+path, p.recorded(stored))
	mux.HandleFunc("POST "+path+"/cancel", p.recorded(stored))
}

// stored answers what asks for a response that is kept.
func stored(w http.ResponseWriter, r *http.Request, _ *Request) {
	reply(w, http.StatusOK, fmt.Sprintf(`{"id":%s,"object":"response","status":"completed","output":[]}`, quote(r.PathValue("id"))))
}

func (n Native) call(x *exchange) *refusal {
	switch n.API {
	case "anthropic":
		return n.anthropic(x)
	case "openai":
		return n.openAI(x)
	}
	return n.gemini(x)
}

func (n Native) anthropic(x *exchange) *refusal {
	x.dialect = anthropic{}
	if err := n.Auth.check(x.r, x.body); err != nil {
		return anthropicRefusal(http.StatusUnauthorized, "authentication_error", "invalid x-api-key: %s", err)
	}
	if x.r.URL.Path != "/v1/messages" {
		return anthropicRefusal(http.StatusNotFound, "not_found_error", "no such path: %s", x.r.RequestURI)
	}
	return x.firstParty()
}

func (n Native) openAI(x *exchange) *refusal {
	dialects := map[string]dialect{"/v1/chat/completions": chat{}, "/v1/responses": responses{}, "/v1/embeddings": embeddings{}}
	if err := n.Auth.check(x.r, x.body); err != nil {
		return openAIRefusal(http.StatusUnauthorized, "invalid_api_key", "Incorrect API key provided: %s", err)
	}
	if x.dialect = dialects[x.r.URL.Path]; x.dialect == nil {
		return openAIRefusal(http.StatusNotFound, "unknown_url", "Unknown request URL: %s", x.r.RequestURI)
	}
	if wrong := x.wrongForm(); wrong != "" {
		return openAIRefusal(http.StatusBadRequest, "invalid_request", "%s", wrong)
	}
	if !x.p.has(x.ask.Model) {
		return openAIRefusal(http.StatusNotFound, "model_not_found", "The model `%s` does not exist", x.ask.Model)
	}
	return nil
}

// gemini is POST /v1beta/models/{model}:generateContent.
func (n Native) gemini(x *exchange) *refusal {
	if err := n.Auth.check(x.r, x.body); err != nil {
		return googleRefusal(http.StatusBadRequest, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key: %s", err)
	}
	path := escapedSegments(x.r.URL)
	if len(path) != 3 || !contains("v1 v1beta", path[0]) || path[1] != "models" {
		return googleRefusal(http.StatusNotFound, "NOT_FOUND", "no such path: %s", x.r.RequestURI)
	}
	escaped, verb, _ := strings.Cut(path[2], ":")
	if x.ask.Model = x.p.known(escaped); x.ask.Model == "" {
		return googleRefusal(http.StatusNotFound, "NOT_FOUND", "models/%s is not found for API version %s", escaped, path[0])
	}
	return x.gemini(verb)
}
