package scripted

import (
	"fmt"
	"net/http"
	"strings"
)

// Azure plays Azure OpenAI (wire-formats 7): with an APIVersion the classic API, without it v1.
type Azure struct {
	APIVersion string
	Auth       Auth
}

func (a Azure) call(x *exchange) *refusal {
	x.w.Header().Set("apim-request-id", "req-"+x.p.name)
	if err := a.Auth.check(x.r, x.body); err != nil {
		return azureRefusal(http.StatusUnauthorized, "401", "Access denied due to invalid subscription key or wrong API endpoint: %s", err)
	}
	for _, name := range []string{"openai-organization", "openai-project"} {
		if x.r.Header.Get(name) != "" {
			return azureRefusal(http.StatusBadRequest, "BadRequest", "the header %s is OpenAI's own", name)
		}
	}
	operation, wrong := a.operation(x)
	if wrong != nil {
		return wrong
	}
	switch operation {
	case "chat/completions":
		x.dialect = azureChat{}
	case "responses":
		x.dialect = azureResponses{}
	case "embeddings":
		x.dialect = embeddings{}
	default:
		return azureRefusal(http.StatusNotFound, "404", "Resource not found: %s", x.r.RequestURI)
	}
	if wrong := x.wrongForm(); wrong != "" {
		return azureRefusal(http.StatusBadRequest, "BadRequest", "%s", wrong)
	}
	return nil
}

func (a Azure) extra(p *Provider, mux *http.ServeMux) {
	if a.APIVersion == "" {
		keep(mux, p, "/openai/v1/responses/{id}")
	}
}

// operation is what is called, on /openai/v1/… with a deployment as the model or on /openai/deployments/{deployment}/….
// Of the classic API only some operations name the deployment in the path (openai-go/azure/azure.go).
func (a Azure) operation(x *exchange) (string, *refusal) {
	missing := azureRefusal(http.StatusNotFound, "404", "Resource not found: %s", x.r.RequestURI)
	path := x.r.URL.EscapedPath()
	deployment := x.ask.Model
	if a.APIVersion == "" {
		operation, ok := strings.CutPrefix(path, "/openai/v1/")
		if !ok || x.r.URL.RawQuery != "" {
			return "", missing
		}
		return operation, a.deployed(x, deployment)
	}
	if x.r.URL.RawQuery != "api-version="+a.APIVersion {
		return "", missing
	}
	rest, ok := strings.CutPrefix(path, "/openai/deployments/")
	if !ok {
		if path != "/openai/responses" {
			return "", missing
		}
		return "responses", a.deployed(x, deployment)
	}
	escaped, operation, _ := strings.Cut(rest, "/")
	if operation == "responses" {
		return "", missing
	}
	x.ask.Model = x.p.known(escaped)
	return operation, a.deployed(x, x.ask.Model)
}

func (Azure) deployed(x *exchange, deployment string) *refusal {
	if !x.p.has(deployment) {
		return azureRefusal(http.StatusNotFound, "DeploymentNotFound", "The API deployment for this resource does not exist: %s", x.r.RequestURI)
	}
	return nil
}

const safe = `{"hate":{"filtered":false,"severity":"safe"},"violence":{"filtered":false,"severity":"safe"}}`

// azureChat is Chat Completions with what Azure's filter adds: a first chunk without choices, and results in each choice.
type azureChat struct{ chat }

func (c azureChat) stream(m message) (before, content, after []string) {
	before, content, after = c.chat.stream(m)
	first := data(`{"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0,"content_filter_results":` + safe + `}]}`)
	return append([]string{first}, filtered(before)...), filtered(content), filtered(after)
}

func filtered(chunks []string) []string {
	for i, c := range chunks {
		chunks[i] = strings.Replace(c, `"logprobs":null`, `"content_filter_results":`+safe+`,"logprobs":null`, 1)
	}
	return chunks
}

func (c azureChat) answer(m message) string {
	return filtered([]string{c.chat.answer(m)})[0]
}

func (azureChat) problem(_ http.Header, status int, code string) string {
	return azureProblem(status, code)
}

type azureResponses struct{ responses }

func (r azureResponses) problem(h http.Header, status int, code string) string {
	if status == http.StatusOK {
		return r.responses.problem(h, status, code)
	}
	return azureProblem(status, code)
}

// azureFaults are errors whose code is their status.
var azureFaults = map[int]string{
	401: "Access denied due to invalid subscription key or wrong API endpoint.",
	403: "Access denied due to Virtual Network/Firewall rules.",
	404: "Resource not found",
	429: "Requests to the ChatCompletions_Create Operation under Azure OpenAI API version 2024-10-21 have exceeded token rate limit of your current OpenAI S0 pricing tier. Please retry after 37 seconds.",
}

// A prompt that the filter blocks is a 400 with an innererror.
func azureProblem(status int, code string) string {
	if code == "content_filter" {
		return `{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy.","type":null,"param":"prompt","code":"content_filter","status":400,` +
			`"innererror":{"code":"ResponsibleAIPolicyViolation","content_filter_result":{"hate":{"filtered":true,"severity":"medium"},"jailbreak":{"filtered":false,"detected":false}}}}}`
	}
	if message, ok := azureFaults[status]; ok && code == "" {
		return fmt.Sprintf(`{"error":{"code":"%d","message":%s}}`, status, quote(message))
	}
	return openAIProblem(status, code)
}

// Foundry plays Anthropic's Messages on Microsoft Foundry (wire-formats 4): as the dialect's own API below /anthropic, with
// a deployment as the model, "no speed field".
type Foundry struct {
	plainPlatform
	Auth Auth
}

func (f Foundry) call(x *exchange) *refusal {
	x.dialect = anthropic{}
	x.w.Header().Set("apim-request-id", "req-"+x.p.name)
	if err := f.Auth.check(x.r, x.body); err != nil {
		return azureRefusal(http.StatusUnauthorized, "401", "Access denied due to invalid subscription key or wrong API endpoint: %s", err)
	}
	if x.r.URL.Path != "/anthropic/v1/messages" || !x.onlyBeta() {
		return azureRefusal(http.StatusNotFound, "404", "Resource not found: %s", x.r.RequestURI)
	}
	return x.firstParty("service_tier", "speed", "fallbacks", "inference_geo")
}
