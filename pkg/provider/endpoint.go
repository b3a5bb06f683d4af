package provider

import (
	"net/url"
	"strings"

	"understudy/pkg/classify"
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
	{path: "/v1/responses", api: classify.OpenAIResponses},
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

// StoredResponse is the id in a path of OpenAI's that names one response which a provider keeps (GET and DELETE
// /v1/responses/{id}, POST …/cancel, GET …/input_items), "" of another path.
func StoredResponse(path string) string {
	_, rest, ok := strings.Cut(path, "/v1/responses/")
	if !ok {
		return ""
	}
	id, action, _ := strings.Cut(rest, "/")
	if action != "" && action != "cancel" && action != "input_items" {
		return ""
	}
	return id
}
