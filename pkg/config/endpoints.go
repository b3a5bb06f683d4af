package config

import (
	"slices"
	"strings"
)

// The roots of a dialect are the standard paths of its model calls as match rules name them. Gemini's calls have the
// model after it: /v1beta/models/{model}:generateContent.
func (a API) roots() []string {
	switch a {
	case Anthropic:
		return []string{"/v1/messages"}
	case OpenAI:
		return []string{"/v1/chat/completions", "/v1/responses"}
	case Gemini:
		return []string{geminiRoot}
	}
	return nil
}

const geminiRoot = "/v1beta/models"

// geminiVerbs end the path of a call. https://ai.google.dev/api/generate-content
var geminiVerbs = []string{":generateContent", ":streamGenerateContent"}

// Others are the paths of a dialect's endpoints that are no model calls. A chain can protect one of them by the status
// of its answers. OpenAI has no rerank, but servers of its dialect do.
func (a API) Others() []string {
	if a != OpenAI {
		return nil
	}
	return []string{embeddings, "/v1/moderations", "/v1/rerank", "/v1/images/generations", "/v1/audio/speech"}
}

const embeddings = "/v1/embeddings"

// Paths are the standard paths of a dialect's model calls, whose answers are read. A proxy may put a prefix before them.
// In Gemini's, "{model}" stands in the place of the model.
func (a API) Paths() []string {
	var paths []string
	for _, root := range a.roots() {
		paths = append(paths, a.calls(root)...)
	}
	return paths
}

// calls are the request paths that a match rule with path rule means.
func (a API) calls(rule string) []string {
	if a != Gemini {
		return []string{rule}
	}
	var paths []string
	for _, verb := range geminiVerbs {
		paths = append(paths, rule+"/{model}"+verb)
	}
	return paths
}

// ruled is a request path as match rules name it, "" where no rule can: of Gemini's what stands before the model.
func (a API) ruled(path string) string {
	if a != Gemini {
		return path
	}
	slash := strings.LastIndexByte(path, '/')
	if slash < 0 {
		return ""
	}
	for _, verb := range geminiVerbs {
		if model, ok := strings.CutSuffix(path[slash+1:], verb); ok && model != "" {
			return path[:slash]
		}
	}
	return ""
}

// Has reports whether path is a model call of the dialect, with or without a prefix.
func (a API) Has(path string) bool {
	endpoint, ok := a.endpoint(a.ruled(path))
	return ok && endpoint == ""
}

// Standard is a request path without what a proxy may have put before it, "" where it is none of the dialect's.
func (a API) Standard(path string) string {
	rule := a.ruled(path)
	for _, end := range a.ends() {
		if prefix, ok := strings.CutSuffix(rule, end); ok {
			return path[len(prefix):]
		}
	}
	return ""
}

// endpoint is which of the dialect a match rule with this path means, as Chain.Endpoint has it.
func (a API) endpoint(rule string) (endpoint string, ok bool) {
	i := slices.IndexFunc(a.ends(), func(end string) bool { return strings.HasSuffix(rule, end) })
	if i < 0 {
		return "", false
	}
	if end := a.ends()[i]; slices.Contains(a.Others(), end) {
		return end, true
	}
	return "", true
}

// ends are how the path of a match rule can end.
func (a API) ends() []string {
	if a == Gemini {
		return []string{geminiRoot, "/v1/models"}
	}
	return append(a.roots(), a.Others()...)
}

// has reports whether path is of ch's kind: it can be picked there by header.
func (ch *Chain) has(path string) bool {
	endpoint, ok := ch.API.endpoint(ch.API.ruled(path))
	return ok && endpoint == ch.Endpoint
}

// standard are the standard paths of ch's kind, as match rules name them.
func (ch *Chain) standard() []string {
	if ch.Endpoint != "" {
		return []string{ch.Endpoint}
	}
	return ch.API.roots()
}
