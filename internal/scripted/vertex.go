package scripted

import (
	"fmt"
	"net/http"
	"strings"
)

// Vertex plays Google's Vertex AI for API "anthropic" or "gemini" (wire-formats 4 and 8).
type Vertex struct {
	plainPlatform
	API, Project, Region string
	Auth                 Auth
}

func (v Vertex) call(x *exchange) *refusal {
	if err := v.Auth.check(x.r, x.body); err != nil {
		return googleRefusal(http.StatusUnauthorized, "UNAUTHENTICATED", "Request had invalid authentication credentials: %s", err)
	}
	path := escapedSegments(x.r.URL)
	versions, publisher := "v1", "anthropic"
	if v.API == "gemini" {
		versions, publisher = "v1 v1beta1", "google"
	}
	want := []string{"projects", v.Project, "locations", v.Region, "publishers", publisher, "models"}
	if len(path) != 9 || !contains(versions, path[0]) || strings.Join(path[1:8], "/") != strings.Join(want, "/") {
		return googleRefusal(http.StatusNotFound, "NOT_FOUND", "no such path: %s", x.r.RequestURI)
	}
	escaped, verb, _ := strings.Cut(path[8], ":")
	if x.ask.Model = x.p.known(escaped); x.ask.Model == "" {
		return googleRefusal(http.StatusNotFound, "NOT_FOUND", "Publisher Model `%s` was not found", escaped)
	}
	if v.API == "gemini" {
		return x.gemini(verb)
	}
	return v.anthropic(x, verb)
}

func contains(list, word string) bool { return strings.Contains(" "+list+" ", " "+word+" ") }

// anthropic is rawPredict and streamRawPredict: "remove body model (keep stream:true), drop anthropic-version header, body
// anthropic_version …; anthropic-beta stays a header".
func (v Vertex) anthropic(x *exchange, verb string) *refusal {
	x.dialect = rawPredict{streamed: verb == "streamRawPredict"}
	invalid := func(reason string) *refusal {
		return googleRefusal(http.StatusBadRequest, "INVALID_ARGUMENT", "%s", reason)
	}
	if verb != "rawPredict" && verb != "streamRawPredict" || !x.onlyBeta() {
		return googleRefusal(http.StatusNotFound, "NOT_FOUND", "no such path: %s", x.r.RequestURI)
	}
	if wrong := x.wrongForm(); wrong != "" {
		return invalid(wrong)
	}
	if x.r.Header.Get("anthropic-version") != "" {
		return invalid("the header anthropic-version is none of Vertex AI's")
	}
	members := x.object()
	if name := someOf(members, "model", "anthropic_beta", "service_tier", "fallbacks", "inference_geo"); name != "" {
		return invalid(name + ": Extra inputs are not permitted")
	}
	if version := text(members, "anthropic_version"); version != "vertex-2023-10-16" && version != "2026-10-21" {
		return invalid("anthropic_version: got " + string(members["anthropic_version"]))
	}
	if x.ask.Stream != (verb == "streamRawPredict") {
		return invalid(fmt.Sprintf("stream: %t does not go with %s", x.ask.Stream, verb))
	}
	if wrong := wrongMessages(members); wrong != "" {
		return anthropicRefusal(http.StatusBadRequest, "invalid_request_error", "%s", wrong)
	}
	return nil
}

// rawPredict is Anthropic's dialect as Vertex AI says it: its front end has errors of Google's, "for :streamRawPredict
// frequently wrapped in an array"; overload is told by Anthropic.
type rawPredict struct {
	anthropic
	streamed bool
}

// googleStatuses are google.rpc.Code by HTTP status.
var googleStatuses = map[int]fault{
	400: {"INVALID_ARGUMENT", "", "Request contains an invalid argument."},
	401: {"UNAUTHENTICATED", "", "Request had invalid authentication credentials."},
	403: {"PERMISSION_DENIED", "", "Permission 'aiplatform.endpoints.predict' denied."},
	404: {"NOT_FOUND", "", "Publisher Model was not found."},
	408: {"DEADLINE_EXCEEDED", "", "Deadline expired before operation could complete."},
	429: {"RESOURCE_EXHAUSTED", "", "Quota exceeded for aiplatform.googleapis.com/online_prediction_requests_per_base_model."},
	503: {"UNAVAILABLE", "", "The service is currently unavailable."},
	504: {"DEADLINE_EXCEEDED", "", "Deadline expired before operation could complete."},
	529: {"UNAVAILABLE", "", "The model is overloaded. Please try again later."},
}

func googleProblem(status int, code string) string {
	f, ok := googleStatuses[status]
	if !ok {
		f = fault{"INTERNAL", "", "An internal error has occurred."}
	}
	return googleError(status, orElse(code, f.kind), f.message)
}

func (r rawPredict) problem(h http.Header, status int, code string) string {
	if status == 529 || status == 200 {
		return r.anthropic.problem(h, status, code)
	}
	h.Set("server", "scaffolding on HTTPServer2")
	if r.streamed {
		return "[" + googleProblem(status, code) + "\n]"
	}
	return googleProblem(status, code)
}
