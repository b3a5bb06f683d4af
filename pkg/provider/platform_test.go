package provider

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// on is a target of model m at a platform.
func on(t testing.TB, endpoint string, change func(*config.Provider)) *config.Target {
	p := account(t, endpoint, bearer)
	p.Name = endpoint
	change(p)
	return &config.Target{Name: "t", Provider: p, Model: "m"}
}

func bedrockTarget(t testing.TB, surface config.Surface) *config.Target {
	return on(t, "https://bedrock.example", func(p *config.Provider) {
		p.Platform, p.Surface, p.Region = config.Bedrock, surface, "us-east-1"
	})
}

func vertexTarget(t testing.TB) *config.Target {
	return on(t, "https://us-east5-aiplatform.googleapis.com", func(p *config.Provider) {
		p.Platform, p.Region, p.Project = config.Vertex, "us-east5", "acme"
	})
}

func azureTarget(t testing.TB, endpoint, version string) *config.Target {
	return on(t, endpoint, func(p *config.Provider) { p.Platform, p.APIVersion = config.Azure, version })
}

func native(t testing.TB) *config.Target {
	return on(t, "https://api.example", func(*config.Provider) {})
}

func modelled(target *config.Target, model string) *config.Target {
	target.Model = model
	return target
}

// message is what the Anthropic SDK sends, in an order and with a field of its own.
const message = `{"max_tokens": 10, "model":"claude-x","messages":[{"role":"user","content":"é\u00e9 <&>"}],"new_field":{"model":1.0},"stream":true}`

// sdkHeaders are what clients say beside.
var sdkHeaders = http.Header{
	"Anthropic-Version": {"2023-06-01"},
	"Anthropic-Beta":    {"a-2025-01-01, b-2025-01-01", "c"},
	"Content-Type":      {"application/json"},
}

// changed are the headers that a rewriting sets and removes beyond those of every target, in a row.
func changed(rw Rewrite) string {
	always := append(Credentials(), "content-encoding")
	var out []string
	for _, h := range rw.Set {
		if h != (Header{"accept-encoding", "identity"}) && h != (Header{"authorization", "Bearer s3cret"}) {
			out = append(out, h.Name+": "+h.Value)
		}
	}
	for _, name := range rw.Remove {
		if i := slices.Index(always, name); i >= 0 {
			always = slices.Delete(always, i, i+1)
			continue
		}
		out = append(out, "-"+name)
	}
	return strings.Join(out, "; ")
}

func TestPlatforms(t *testing.T) {
	completion := `{"model":"gpt-x", "messages":[] ,"n":1}`
	gemini := `{"contents":[{"parts":[{"text":"hi"}]}]}`
	const stream = "/v1beta/models/gemini-x:streamGenerateContent?alt=sse"
	rows := []struct {
		name          string
		target        *config.Target
		path          string
		header        http.Header
		body          string
		want, headers string // path; what changed beyond credentials and encodings
		wantBody      string // "": unchanged
		answer        classify.API
	}{
		{"native loses the version header, or betas", native(t), "/v1/messages?beta=true", sdkHeaders, message,
			"/v1/messages?beta=true", "", strings.Replace(message, "claude-x", "m", 1), classify.AnthropicMessages},

		{"invoke keeps model, stream or headers in their place", bedrockTarget(t, config.Invoke), "/v1/messages", sdkHeaders, message,
			"/model/m/invoke-with-response-stream", "accept: application/json; -anthropic-version; -anthropic-beta",
			`{"max_tokens": 10, "messages":[{"role":"user","content":"é\u00e9 <&>"}],"new_field":{"model":1.0},"anthropic_beta":["a-2025-01-01","b-2025-01-01","c"],"anthropic_version":"bedrock-2023-05-31"}`,
			classify.BedrockInvoke},
		{"invoke without a stream goes to the stream", bedrockTarget(t, ""), "/v1/messages?beta=true", nil, `{"model":"claude-x","stream":false}`,
			"/model/m/invoke?beta=true", "accept: application/json; -anthropic-version; -anthropic-beta", `{"anthropic_version":"bedrock-2023-05-31"}`, classify.BedrockInvoke},
		{"an ARN's slashes end a segment", modelled(bedrockTarget(t, config.Invoke), "arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-x-v1:0"), "/v1/messages", nil, `{"a":1}`,
			"/model/arn:aws:bedrock:us-east-1:1:inference-profile%2Fus.anthropic.claude-x-v1:0/invoke", "accept: application/json; -anthropic-version; -anthropic-beta",
			`{"a":1,"anthropic_version":"bedrock-2023-05-31"}`, classify.BedrockInvoke},
		{"invoke overwrites a version in the body", bedrockTarget(t, config.Invoke), "/v1/messages", nil, `{"model":"x","anthropic_version":"2026-10-21","anthropic_beta":["z"]}`,
			"/model/m/invoke", "accept: application/json; -anthropic-version; -anthropic-beta", `{"anthropic_version":"2026-10-21","anthropic_beta":["z"]}`, classify.BedrockInvoke},
		{"invoke leaves tiers it does not know", bedrockTarget(t, config.Invoke), "/v1/messages", nil, `{"service_tier":"auto","model":"x","speed":"fast","a":1,"stream":false}`,
			"/model/m/invoke", "accept: application/json; -anthropic-version; -anthropic-beta", `{"a":1,"anthropic_version":"bedrock-2023-05-31"}`, classify.BedrockInvoke},
		{"invoke leaves the user profile in its header", bedrockTarget(t, config.Invoke), "/v1/messages", http.Header{"Anthropic-User-Profile-Id": {"up_1"}}, `{"model":"x"}`,
			"/model/m/invoke", "accept: application/json; -anthropic-version; -anthropic-user-profile-id; -anthropic-beta", `{"anthropic_version":"bedrock-2023-05-31","user_profile_id":"up_1"}`, classify.BedrockInvoke},
		{"the messages surface is not below /anthropic", bedrockTarget(t, config.Messages), "/v1/messages", sdkHeaders, message,
			"/anthropic/v1/messages", "", strings.Replace(message, "claude-x", "m", 1), classify.AnthropicMessages},
		{"mantle is sent the tier", bedrockTarget(t, config.Mantle), "/v1/messages", sdkHeaders, `{"model":"x","service_tier":"auto"}`,
			"/anthropic/v1/messages", "", `{"model":"m"}`, classify.AnthropicMessages},
		{"an endpoint with /anthropic has it twice", on(t, "https://res.services.ai.azure.com/anthropic", func(p *config.Provider) { p.Platform = config.Foundry }),
			"/v1/messages", nil, `{"model":"x"}`, "/anthropic/v1/messages", "", `{"model":"m"}`, classify.AnthropicMessages},

		{"Vertex is sent the model in the body, or no stream", modelled(vertexTarget(t), "claude-x@20251101"), "/v1/messages", sdkHeaders, message,
			"/v1/projects/acme/locations/us-east5/publishers/anthropic/models/claude-x@20251101:streamRawPredict", "-anthropic-version",
			`{"max_tokens": 10, "messages":[{"role":"user","content":"é\u00e9 <&>"}],"new_field":{"model":1.0},"stream":true,"anthropic_version":"vertex-2023-10-16"}`,
			classify.AnthropicVertex},
		{"Vertex is sent a service tier, or loses the speed", vertexTarget(t), "/v1/messages", nil, `{"model":"x","speed":"fast","service_tier":"auto"}`,
			"/v1/projects/acme/locations/us-east5/publishers/anthropic/models/m:rawPredict", "-anthropic-version",
			`{"speed":"fast","anthropic_version":"vertex-2023-10-16"}`, classify.AnthropicVertex},
		{"a base path of a proxy is lost", on(t, "https://proxy.example/gcp", func(p *config.Provider) { p.Platform, p.Region, p.Project = config.Vertex, "global", "a/b" }), "/v1/messages", nil, `{}`,
			"/gcp/v1/projects/a%2Fb/locations/global/publishers/anthropic/models/m:rawPredict", "-anthropic-version", `{"anthropic_version":"vertex-2023-10-16"}`, classify.AnthropicVertex},

		{"Foundry is sent tier or speed", on(t, "https://res.services.ai.azure.com", func(p *config.Provider) { p.Platform = config.Foundry }), "/v1/messages", sdkHeaders,
			`{"speed":"fast","model":"x","service_tier":"auto"}`, "/anthropic/v1/messages", "", `{"model":"m"}`, classify.AnthropicMessages},

		{"Azure v1 is not below /openai/v1", azureTarget(t, "https://res.openai.azure.com", ""), "/v1/chat/completions", nil, completion,
			"/openai/v1/chat/completions", "-openai-organization; -openai-project", `{"model":"m", "messages":[] ,"n":1}`, classify.OpenAIChat},
		{"an Azure endpoint with /openai/v1 has it twice", azureTarget(t, "https://res.openai.azure.com/openai/v1", ""), "/v1/responses", nil, `{"model":"m"}`,
			"/openai/v1/responses", "-openai-organization; -openai-project", "", classify.OpenAIResponses},
		{"classic Azure has no deployment, or the client's version", azureTarget(t, "https://res.openai.azure.com", "2024-10-21"), "/v1/chat/completions?api-version=1&a=b", nil, completion,
			"/openai/deployments/m/chat/completions?a=b&api-version=2024-10-21", "-openai-organization; -openai-project", `{"model":"m", "messages":[] ,"n":1}`, classify.OpenAIChat},
		{"classic Azure has a deployment in the path of responses", azureTarget(t, "https://res.openai.azure.com/openai", "v"), "/v1/responses", nil, `{"model":"m"}`,
			"/openai/responses?api-version=v", "-openai-organization; -openai-project", "", classify.OpenAIResponses},
		{"classic Azure has no deployment in the path of a form", azureTarget(t, "https://res.openai.azure.com", "v"), "/v1/audio/transcriptions", nil, "--form--",
			"/openai/deployments/m/audio/transcriptions?api-version=v", "-openai-organization; -openai-project", "", classify.APIUnknown},
		{"Azure is sent a tier it does not know", azureTarget(t, "https://res.openai.azure.com", ""), "/v1/responses", nil, `{"model":"m","service_tier":"scale"}`,
			"/openai/v1/responses", "-openai-organization; -openai-project", `{"model":"m"}`, classify.OpenAIResponses},
		{"Azure loses a tier it knows", azureTarget(t, "https://res.openai.azure.com", ""), "/v1/responses", nil, `{"model":"m","service_tier":"flex"}`,
			"/openai/v1/responses", "-openai-organization; -openai-project", "", classify.OpenAIResponses},

		{"embeddings keep their model", native(t), "/v1/embeddings", nil, `{"input":"x","model":"y"}`, "/v1/embeddings", "", `{"input":"x","model":"m"}`, classify.APIUnknown},
		{"a form is touched", native(t), "/v1/images/edits", nil, `{"model":"y"}`, "/v1/images/edits", "", "", classify.APIUnknown},

		{"Gemini keeps the client's model, or its key", native(t), "/team/v1beta/models/gemini-x:streamGenerateContent?key=k&alt=sse", nil, gemini,
			"/v1beta/models/m:streamGenerateContent?alt=sse", "", "", classify.Gemini},
		{"Gemini's version changes", native(t), "/v1/models/gemini-x:generateContent", nil, gemini, "/v1/models/m:generateContent", "", "", classify.Gemini},
		{"a tuned model is below models/", modelled(native(t), "tunedModels/my-1"), generate, nil, gemini, "/v1beta/tunedModels/my-1:generateContent", "", "", classify.Gemini},
		{"Gemini on Vertex is not v1beta1, or loses alt", vertexTarget(t), stream, nil, gemini,
			"/v1beta1/projects/acme/locations/us-east5/publishers/google/models/m:streamGenerateContent?alt=sse", "", "", classify.Gemini},
		{"a publisher's model is Google's", modelled(vertexTarget(t), "publishers/meta/models/llama"), generate, nil, gemini,
			"/v1beta1/projects/acme/locations/us-east5/publishers/meta/models/llama:generateContent", "", "", classify.Gemini},
		{"a tuned endpoint is a model of Google's", modelled(vertexTarget(t), "projects/1/locations/l/endpoints/2"), generate, nil, gemini,
			"/v1beta1/projects/1/locations/l/endpoints/2:generateContent", "", "", classify.Gemini},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			rw, err := ForTarget(row.target, row.target, sent(t, row.path, row.header, row.body))
			if err != nil {
				t.Fatal(err)
			}
			if got := rw.Path + "\n" + changed(rw) + "\n" + string(rw.Body); got != row.want+"\n"+row.headers+"\n"+row.wantBody {
				t.Errorf("ForTarget() =\n%s\nwant\n%s\n%s\n%s", got, row.want, row.headers, row.wantBody)
			}
			if rw.Answer != row.answer || rw.Authority != row.target.Provider.Endpoint.Host {
				t.Errorf("ForTarget() = %s, answers like %d, want %s, %d", rw.Authority, rw.Answer, row.target.Provider.Endpoint.Host, row.answer)
			}
		})
	}
}

func TestFetchedCredentialsLeaveNoneOfTheClient(t *testing.T) {
	for _, auth := range []config.Auth{{AWS: "default"}, {GCP: "default"}, {Entra: "default"}, {None: true}} {
		target := bedrockTarget(t, config.Invoke)
		target.Provider.Auth = auth
		rw, err := ForTarget(target, target, read(t, `{"model":"m"}`))
		if err != nil {
			t.Fatalf("ForTarget() with %+v = %v, want nil", auth, err)
		}
		for _, h := range rw.Set {
			if slices.Contains(Credentials(), h.Name) {
				t.Errorf("ForTarget() with %+v sets %v, want no credential", auth, h)
			}
		}
		for _, name := range Credentials() {
			if !slices.Contains(rw.Remove, name) {
				t.Errorf("ForTarget() with %+v leaves %s", auth, name)
			}
		}
	}
}

func TestGeminisPathsSayModelAndStream(t *testing.T) {
	rows := []struct {
		name, path, standard, model string
		stream                      bool
	}{
		{"a model is not found", "/v1beta/models/gemini-3-pro:generateContent", geminiOnce, "gemini-3-pro", false},
		{"a stream is not found", "/a/v1/models/gemini%2D3:streamGenerateContent?alt=sse", geminiStream, "gemini-3", true},
		{"another verb is protected", "/v1beta/models/gemini-3-pro:countTokens", "", "", false},
		{"another version is protected", "/v2/models/gemini-3-pro:generateContent", "", "", false},
		{"half a segment is a version", "/xv1/models/gemini-3-pro:generateContent", "", "", false},
		{"no model is a model", "/v1/models/:generateContent", "", "", false},
		{"a bad escape is a model", "/v1/models/%zz:generateContent", "", "", false},
		{"a file is a model", "/v1beta/files/x:generateContent", "", "", false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			path, _, _ := strings.Cut(row.path, "?")
			_, standard := Endpoint(path)
			q := sent(t, row.path, nil, `{"model":"x","stream":true,"contents":[]}`)
			if standard != row.standard || standard != "" && (q.Model != row.model || q.Stream != row.stream) {
				t.Errorf("Read(%s) = %q, model %q, stream %v, want %q, %q, %v", row.path, standard, q.Model, q.Stream, row.standard, row.model, row.stream)
			}
		})
	}
}

func TestWhatIsKeptOfAPath(t *testing.T) {
	for path, want := range map[string][2]string{ // kept for later, and what an answer is kept under
		"/v1/messages?beta=true&key=k":                                 {"/v1/messages?beta=true", "/v1/messages"},
		"/x/v1beta/models/a%2Fb:generateContent?alt=sse":               {"/x/v1beta/models/a%2Fb:generateContent?alt=sse", "/v1beta/models/a%2Fb:generateContent"},
		"/v1beta/models/gemini-3:streamGenerateContent?alt=sse&key=k":  {"/v1beta/models/gemini-3:generateContent", "/v1beta/models/gemini-3:streamGenerateContent?alt=sse"},
		"/v1beta/models/gemini-3:streamGenerateContent?x=y&%24alt=sse": {"/v1beta/models/gemini-3:generateContent?x=y", "/v1beta/models/gemini-3:streamGenerateContent?alt=sse"},
		"/v1beta/models/gemini-3:streamGenerateContent":                {"/v1beta/models/gemini-3:generateContent", "/v1beta/models/gemini-3:streamGenerateContent"},
	} {
		q := sent(t, path, nil, `{}`)
		if got := [2]string{Kept(path), q.Asked()}; got != want {
			t.Errorf("Kept(), Asked() of %s = %q, want %q", path, got, want)
		}
	}
}

func TestStoredResponses(t *testing.T) {
	for call, want := range map[string]string{
		"GET /v1/responses/resp_1": "/v1/responses resp_1", "DELETE /v1/responses/resp_1": "/v1/responses resp_1",
		"POST /x/v1/responses/resp_1/cancel": "/x/v1/responses resp_1", "GET /v1/responses/resp_1/input_items": "/v1/responses resp_1",
		"GET /v1/v1/responses/v1": "/v1/v1/responses v1",
		"GET /v1/responses":       " ", "GET /v1/responses/": " ", "GET /v1/responses/a/b": " ", "GET /v1/files/f": " ",
		"POST /v1/responses/compact": " ", "POST /v1/responses/resp_1": " ", "GET /v1/responses/resp_1/cancel": " ",
		"GET /v1/responses/..": " ", "GET /v1/responses/..%2Ffiles%2Ff": " ", "DELETE /v1/responses/a;b": " ",
	} {
		method, path, _ := strings.Cut(call, " ")
		if made, id := StoredResponse(method, path); made+" "+id != want {
			t.Errorf("StoredResponse(%s) = %q %q, want %q", call, made, id, want)
		}
	}
}

func TestAStoredResponseIsAskedForWhereItsPlatformHasIt(t *testing.T) {
	const asked = "/team/v1/responses/resp_1/input_items?limit=2&api-key=k&api-version=1"
	rows := []struct {
		name   string
		target *config.Target
		want   string
	}{
		{"a proxy's prefix reaches OpenAI", native(t), "/v1/responses/resp_1/input_items?limit=2&api-version=1"},
		{"Azure gets OpenAI's path", azureTarget(t, "https://a.example", ""), "/openai/v1/responses/resp_1/input_items?limit=2&api-version=1"},
		{"Azure's classic API gets no version", azureTarget(t, "https://a.example", "2025-03-01-preview"), "/openai/responses/resp_1/input_items?limit=2&api-version=2025-03-01-preview"},
	}
	for _, row := range rows {
		rw, err := ForStored(row.target.Provider, asked)
		if err != nil || rw.Path != row.want {
			t.Errorf("%s: ForStored() = %s, %v, want %s", row.name, rw.Path, err, row.want)
		}
	}
}
