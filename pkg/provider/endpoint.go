package provider

import (
	"net/url"
	"regexp"
	"strings"

	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// endpoint is one that a chain can protect.
type endpoint struct {
	path string       // the standard path
	api  classify.API // how its answers are read; APIUnknown: by their status class alone
	form bool         // its body is multipart, and goes on as it came
}

// endpoints are those whose model the body names. Their standard paths are those of the official SDKs
// (anthropic-sdk-go/message.go, openai-go/{chatcompletion,embedding,moderation,image,audiospeech,…}.go); OpenAI
// has no rerank, which compatible servers have at the path of Cohere and Jina.
var endpoints = []endpoint{
	{path: "/v1/messages", api: classify.AnthropicMessages},
	{path: "/v1/chat/completions", api: classify.OpenAIChat},
	{path: responsesPath, api: classify.OpenAIResponses},
	{path: "/v1/embeddings"},
	{path: "/v1/moderations"},
	{path: "/v1/rerank"},
	{path: "/v1/images/generations"},
	{path: "/v1/images/edits", form: true},
	{path: "/v1/audio/speech"},
	{path: "/v1/audio/transcriptions", form: true},
	{path: "/v1/audio/translations", form: true},
}

// Gemini's standard paths: they name the model (genai/models.go: "{model}:generateContent").
const (
	geminiOnce   = "/v1beta/models/{model}:generateContent"
	geminiStream = "/v1beta/models/{model}:streamGenerateContent"
)

// route is what a request's path says of it.
type route struct {
	endpoint
	version string // of Gemini's path: v1 or v1beta
	model   string // of Gemini's path
	stream  bool   // Gemini's path asks for a stream
}

// Endpoint tells which endpoint a request path names, and its standard path, "" if none can be protected; a prefix
// before it is the client's. Where api is APIUnknown only the status class of an answer can be read. Gemini's standard
// path has "{model}" in the place of the model, which Request.Model is.
func Endpoint(path string) (api classify.API, standard string) {
	r := routeOf(path)
	return r.api, r.path
}

// Form reports whether an endpoint's body is multipart: it needs no reading, and cannot be rewritten.
func Form(path string) bool { return routeOf(path).form }

func routeOf(path string) route {
	for _, e := range endpoints {
		if strings.HasSuffix(path, e.path) {
			return route{endpoint: e}
		}
	}
	return geminiRoute(path)
}

// geminiRoute reads …/v1beta/models/{model}:generateContent, which is no route if it is not that.
func geminiRoute(path string) route {
	dir, last, _ := cutLast(path, "/")
	model, verb, _ := cutLast(last, ":")
	r := route{endpoint: endpoint{api: classify.Gemini}}
	switch verb {
	case "generateContent":
		r.path = geminiOnce
	case "streamGenerateContent":
		r.path, r.stream = geminiStream, true
	default:
		return route{}
	}
	switch {
	case strings.HasSuffix(dir, "/v1beta/models"):
		r.version = "v1beta"
	case strings.HasSuffix(dir, "/v1/models"):
		r.version = "v1"
	default:
		return route{}
	}
	var err error
	if r.model, err = url.PathUnescape(model); err != nil || r.model == "" {
		return route{}
	}
	return r
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return "", s, false
}

// responsesPath is the standard path on which responses are made that a provider keeps.
const responsesPath = "/v1/responses"

// storedID is how the id of a response looks. Anything else after the path, above all with an escape or dots in it, could
// name another resource to a provider, under a credential of ours.
var storedID = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

const maxStoredID = 200 // bytes

// StoredResponse is the path on which a stored response was made and its id, of a request that is for one: GET and DELETE
// /v1/responses/{id}, POST …/cancel, GET …/input_items. Both are "" of another request.
func StoredResponse(method, path string) (made, id string) {
	at := strings.Index(path, responsesPath+"/")
	if at < 0 {
		return "", ""
	}
	at += len(responsesPath)
	id, action, _ := strings.Cut(path[at+1:], "/")
	switch method + " " + action {
	case "GET ", "DELETE ", "POST cancel", "GET input_items":
		if len(id) <= maxStoredID && storedID.MatchString(id) {
			return path[:at], id
		}
	}
	return "", ""
}

// ForStored rewrites a request for a response that p keeps: the path as its platform has it, without what a client's proxy
// may have put before it.
func ForStored(p *config.Provider, pathAndQuery string) (Rewrite, error) {
	path, query, _ := strings.Cut(pathAndQuery, "?")
	path = path[max(0, strings.Index(path, responsesPath+"/")):]
	if p.Platform != config.Azure {
		return base(p, path, query)
	}
	w := azureWire(p, "", &Request{route: route{endpoint: endpoint{path: path, api: classify.OpenAIResponses}}})
	rw, err := base(p, w.path, withParameter(query, w.query))
	rw.Remove = append(rw.Remove, notAzures...)
	return rw, err
}
