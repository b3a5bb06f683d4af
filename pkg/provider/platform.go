package provider

import (
	"net/url"
	"slices"
	"strings"

	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// Headers that platforms and tiers have a use for.
const (
	betaHeader      = "anthropic-beta"
	versionHeader   = "anthropic-version"
	profileHeader   = "anthropic-user-profile-id"
	bedrockTier     = "x-amzn-bedrock-service-tier"
	sharedHeader    = "x-vertex-ai-llm-shared-request-type"
	dedicatedHeader = "x-vertex-ai-llm-request-type"
)

// wire is how a platform takes a dialect's requests. Its zero value is the dialect's own API.
type wire struct {
	path    string       // below the endpoint; "": the standard path
	answer  classify.API // how answers are read
	inPath  bool         // the path names the model, the body does not
	drop    []string     // members of the body that the platform does not know
	version string       // anthropic_version of the body, instead of the header
	betas   bool         // anthropic_beta of the body, instead of the header
	profile bool         // user_profile_id of the body, instead of the header
	accept  string       // the Accept that the platform's own SDK sends; "": the client's
	query   string       // a parameter to set
	tiers   tierFields
}

// wireOf is the wire of p for a request. A model in a path is t's.
func wireOf(p *config.Provider, model string, q *Request) wire {
	switch {
	case q.route.api == classify.AnthropicMessages:
		return anthropicWire(p, model, q)
	case q.route.api == classify.Gemini:
		return geminiWire(p, model, q)
	case p.Platform == config.Azure:
		return azureWire(p, model, q)
	}
	return wire{answer: q.route.api, tiers: openAITiers(q)}
}

func anthropicWire(p *config.Provider, model string, q *Request) wire {
	switch p.Platform {
	case config.Bedrock:
		return bedrockWire(p, model, q)
	case config.Vertex:
		// anthropic-sdk-go/vertex/vertex.go: the model moves to the path, the version to the body, anthropic-beta
		// stays a header; docs: anthropic_version "vertex-2023-10-16". speed is known there (wire-formats 4).
		return wire{
			path:    vertexPath(p, "v1", "publishers/anthropic/models/"+segment(model)) + pick(q.Stream, ":streamRawPredict", ":rawPredict"),
			answer:  classify.AnthropicVertex,
			inPath:  true,
			version: "vertex-2023-10-16",
			drop:    []string{"service_tier"},
			tiers:   tierFields{speed: "speed"},
		}
	case config.Foundry:
		// anthropic-sdk-go/foundry/foundry.go: as the dialect's own API below /anthropic. "Foundry uses separate
		// model IDs ending -fast and no speed field" (wire-formats 1d).
		return wire{path: "/anthropic/v1/messages", answer: classify.AnthropicMessages, drop: []string{"service_tier", "speed"}}
	}
	return wire{answer: classify.AnthropicMessages, tiers: tierFields{tier: "service_tier", speed: "speed"}}
}

// bedrockWire is Bedrock's: anthropic-sdk-go/bedrock/{bedrock,bedrockmantle}.go. Its tiers are a header of its own on
// bedrock-runtime (bedrockruntime/schemas: X-Amzn-Bedrock-Service-Tier); Anthropic's service_tier and speed are not
// known there.
func bedrockWire(p *config.Provider, model string, q *Request) wire {
	w := wire{drop: []string{"service_tier", "speed"}, profile: true}
	switch p.Surface {
	case config.Mantle:
		w.path, w.answer = "/anthropic/v1/messages", classify.AnthropicMessages
	case config.Messages:
		w.path, w.answer = "/anthropic/v1/messages", classify.AnthropicMessages
		w.tiers.header = bedrockTier
	default:
		w.path = "/model/" + segment(model) + pick(q.Stream, "/invoke-with-response-stream", "/invoke")
		w.answer = classify.BedrockInvoke
		w.inPath, w.betas = true, true
		w.drop = append(w.drop, "stream")
		w.version = "bedrock-2023-05-31"
		w.accept = "application/json"
		w.tiers.header = bedrockTier
	}
	return w
}

// notAzures are headers of OpenAI's: "remove OpenAI-Organization/Project" (wire-formats 7).
var notAzures = []string{"openai-organization", "openai-project"}

// azureSegments are the paths with a deployment in them on Azure's classic API; others are below /openai
// (openai-go/azure/azure.go: jsonRoutes, multipartRoutes).
var azureSegments = []string{
	"/chat/completions", "/embeddings", "/audio/speech", "/images/generations", // JSON
	"/audio/transcriptions", "/audio/translations", "/images/edits", // forms
}

// azureWire is Azure's: the v1 API takes OpenAI's requests below /openai/v1, with a deployment as the model; the classic
// one names the deployment in the path and "body model is ignored" (wire-formats 7).
func azureWire(p *config.Provider, model string, q *Request) wire {
	w := wire{answer: q.route.api, path: "/openai" + q.route.path, tiers: openAITiers(q)}
	w.tiers.known = azureTiers
	if p.APIVersion == "" {
		return w
	}
	w.query = "api-version=" + url.QueryEscape(p.APIVersion)
	below := strings.TrimPrefix(q.route.path, "/v1")
	if slices.Contains(azureSegments, below) {
		w.path = "/openai/deployments/" + segment(model) + below
	} else {
		w.path = "/openai" + below
	}
	return w
}

// geminiWire is Google's, as genai's transformer.go (tModel) and api_client.go (createAPIURL) make it; genai's default
// version for Vertex is v1beta1.
func geminiWire(p *config.Provider, model string, q *Request) wire {
	verb := q.route.path[strings.LastIndexByte(q.route.path, ':'):]
	w := wire{answer: classify.Gemini, inPath: true, tiers: tierFields{tier: "serviceTier"}}
	if p.Platform != config.Vertex {
		name := model
		if !strings.HasPrefix(name, "models/") && !strings.HasPrefix(name, "tunedModels/") {
			name = "models/" + name
		}
		w.path = "/" + q.route.version + "/" + segments(name) + verb
		return w
	}
	version := pick(q.route.version == "v1", "v1", "v1beta1")
	switch {
	case strings.HasPrefix(model, "projects/"):
		w.path = "/" + version + "/" + segments(model) + verb
	case strings.HasPrefix(model, "publishers/"):
		w.path = vertexPath(p, version, segments(model)) + verb
	default:
		w.path = vertexPath(p, version, "publishers/google/models/"+segment(model)) + verb
	}
	w.tiers.header = sharedHeader
	return w
}

func vertexPath(p *config.Provider, version, model string) string {
	return "/" + version + "/projects/" + segment(p.Project) + "/locations/" + segment(p.Region) + "/" + model
}

// segment is s as one segment of a path: an ARN has slashes.
func segment(s string) string { return url.PathEscape(s) }

// segments is a name of several segments.
func segments(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = segment(part)
	}
	return strings.Join(parts, "/")
}

func pick(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

// below is a path below an endpoint's own. Where the endpoint is written with the start of the path, as SDKs want it
// (foundry.go: the base URL "must include the /anthropic path"; …openai.azure.com/openai/v1), that is not repeated.
func below(base, path string) string {
	for cut := len(path); cut > 0; cut = strings.LastIndexByte(path[:cut], '/') {
		if strings.HasSuffix(base, path[:cut]) {
			return base + path[cut:]
		}
	}
	return base + path
}
