package provider

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// account is a provider at endpoint whose secret is "s3cret", or that takes the client's own credential.
func account(t testing.TB, endpoint string, auth config.Auth) *config.Provider {
	t.Helper()
	u, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("UNDERSTUDY_TEST_SECRET", "s3cret")
	if auth.Secret, err = config.ReadSecret("env:UNDERSTUDY_TEST_SECRET"); err != nil {
		t.Fatal(err)
	}
	return &config.Provider{Name: "p", Endpoint: u, Auth: auth}
}

var (
	keyHeader  = config.Auth{Header: "x-api-key"}
	bearer     = config.Auth{Header: "authorization", Prefix: "Bearer "}
	fromClient = config.Auth{FromClient: true}
)

// read reads a request to /v1/messages.
func read(t testing.TB, body string) Request { return sent(t, "/v1/messages", nil, body) }

// sent reads a request.
func sent(t testing.TB, path string, header http.Header, body string) Request {
	t.Helper()
	q, err := Read(Incoming{Path: path, Header: header, Body: []byte(body)}, 1<<20)
	if err != nil {
		t.Fatalf("Read(%s) = %v, want nil", body, err)
	}
	return q
}

// packed reads a compressed request to /v1/messages.
func packed(body []byte, encoding string, limit int64) (Request, error) {
	return Read(Incoming{Path: "/v1/messages", Header: http.Header{"Content-Encoding": {encoding}}, Body: body}, limit)
}

func TestWhereARequestGoes(t *testing.T) {
	rows := []struct {
		name, endpoint, path string
		auth                 config.Auth
		authority, want      string
	}{
		{"the host stays the gateway's", "https://api.anthropic.com", "/v1/messages", keyHeader, "api.anthropic.com", "/v1/messages"},
		{"the port of an endpoint is lost", "http://127.0.0.1:8080", "/v1/messages", keyHeader, "127.0.0.1:8080", "/v1/messages"},
		{"the base path of an endpoint is lost", "https://gw.example/openai/v2", "/v1/responses", bearer, "gw.example", "/openai/v2/v1/responses"},
		{"a base path is unescaped", "https://gw.example/a%2Fb", "/v1/responses", bearer, "gw.example", "/a%2Fb/v1/responses"},
		{"the client's prefix reaches the provider", "https://api.openai.com", "/team-a/v1/chat/completions", bearer, "api.openai.com", "/v1/chat/completions"},
		{"the query is lost", "https://api.anthropic.com", "/v1/messages?beta=true", keyHeader, "api.anthropic.com", "/v1/messages?beta=true"},
		{"the bytes of a query change", "https://api.anthropic.com", "/v1/messages?a=%20b+c&&=&d?e", keyHeader, "api.anthropic.com", "/v1/messages?a=%20b+c&&=&d?e"},
		{"an empty query leaves a question mark", "https://api.anthropic.com", "/v1/messages?", keyHeader, "api.anthropic.com", "/v1/messages"},
		{"the client's key in the query reaches the provider", "https://api.anthropic.com", "/v1/messages?key=abc&beta=true", keyHeader, "api.anthropic.com", "/v1/messages?beta=true"},
		{"the last parameter's key reaches the provider", "https://api.openai.com", "/v1/responses?a=b&api-key=abc", bearer, "api.openai.com", "/v1/responses?a=b"},
		{"a key alone leaves a question mark", "https://api.openai.com", "/v1/responses?api_key=abc", bearer, "api.openai.com", "/v1/responses"},
		{"an escaped or shouted key reaches the provider", "https://api.openai.com", "/v1/responses?%6bey=abc&API-Key=abc&access%5Ftoken=abc", bearer, "api.openai.com", "/v1/responses"},
		{"a key without a value reaches the provider", "https://api.openai.com", "/v1/responses?key&x", bearer, "api.openai.com", "/v1/responses?x"},
		{"a parameter that only looks like a key is lost", "https://api.openai.com", "/v1/responses?keys=a&mykey=b&%zz=c", bearer, "api.openai.com", "/v1/responses?keys=a&mykey=b&%zz=c"},
		{"from: client loses the client's key", "https://api.openai.com", "/v1/responses?key=abc", fromClient, "api.openai.com", "/v1/responses?key=abc"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			target := &config.Target{Provider: account(t, row.endpoint, row.auth), Model: "m"}
			rw, err := ForTarget(target, nil, sent(t, row.path, nil, `{"model":"m"}`))
			if err != nil || rw.Authority != row.authority || rw.Path != row.want {
				t.Errorf("ForTarget(%s) = %s%s, %v, want %s%s", row.path, rw.Authority, rw.Path, err, row.authority, row.want)
			}
		})
	}
}

func TestCredentialsOfClientsStayHere(t *testing.T) {
	theirs := []string{"authorization", "x-api-key", "api-key", "x-goog-api-key", "x-amz-security-token", "cookie",
		"proxy-authorization", "openai-organization", "openai-project", "anthropic-organization-id", "anthropic-workspace-id", "x-goog-user-project"}
	rows := []struct {
		name    string
		auth    config.Auth
		set     []Header
		removed []string
	}{
		{"a client's credential goes on beside a key header", keyHeader, []Header{{"x-api-key", "s3cret"}}, theirs},
		{"a client's credential goes on beside a bearer token", bearer, []Header{{"authorization", "Bearer s3cret"}}, theirs},
		{"from: client takes the credential away, or adds ours", fromClient, nil, nil},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			p := account(t, "https://api.example", row.auth)
			check := func(call string, rw Rewrite, err error, set []Header) {
				t.Helper()
				slices.Sort(rw.Remove)
				slices.Sort(row.removed)
				if err != nil || !slices.Equal(rw.Set, set) || !slices.Equal(rw.Remove, row.removed) || rw.Body != nil {
					t.Errorf("%s sets %v, removes %v, %v, want %v and %v", call, rw.Set, rw.Remove, err, set, row.removed)
				}
			}
			rw, err := ForTarget(&config.Target{Provider: p, Model: "m"}, nil, read(t, `{"model":"m"}`))
			check("ForTarget", rw, err, append(slices.Clone(row.set), Header{"accept-encoding", "identity"}))
			rw, err = ForPassthrough(p, "/v1/models")
			check("ForPassthrough", rw, err, row.set)
		})
	}
}

func TestRewritesDoNotShareMemory(t *testing.T) {
	p := account(t, "https://api.example", bearer)
	first, err := ForPassthrough(p, "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	first.Remove[0] = "changed"
	if again, _ := ForPassthrough(p, "/v1/models"); again.Remove[0] == "changed" {
		t.Errorf("ForPassthrough().Remove is shared between requests")
	}
}

func TestPassthroughKeepsThePath(t *testing.T) {
	rows := []struct{ name, endpoint, path, want string }{
		{"the path changes", "https://api.openai.com", "/v1/models/gpt%2F5", "/v1/models/gpt%2F5"},
		{"a standard path inside another one is cut", "https://api.openai.com", "/v1/files/v1/messages", "/v1/files/v1/messages"},
		{"the base path is lost", "https://gw.example/base", "/v1/files?limit=2", "/base/v1/files?limit=2"},
		{"the client's key reaches the provider", "https://api.openai.com", "/v1/files?key=abc&limit=2", "/v1/files?limit=2"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			rw, err := ForPassthrough(account(t, row.endpoint, bearer), row.path)
			if err != nil || rw.Path != row.want {
				t.Errorf("ForPassthrough(%s) = %s, %v, want %s", row.path, rw.Path, err, row.want)
			}
		})
	}
}

func TestAnAbsentSecretIsNamedAndNothingIsSent(t *testing.T) {
	absent, err := config.ReadSecret("env:UNDERSTUDY_TEST_ABSENT")
	if err != nil {
		t.Fatal(err)
	}
	p := account(t, "https://api.example", bearer)
	p.Auth.Secret = absent
	rw, err := ForTarget(&config.Target{Provider: p, Model: "m"}, nil, read(t, `{"model":"m"}`))
	if err == nil || !strings.Contains(err.Error(), "UNDERSTUDY_TEST_ABSENT") || rw.Path != "" {
		t.Errorf("ForTarget() = %+v, %v, want an error that names the secret", rw, err)
	}
	if rw, err = ForPassthrough(p, "/v1/models"); err == nil || rw.Path != "" {
		t.Errorf("ForPassthrough() = %+v, %v, want an error", rw, err)
	}
}

func TestEndpoints(t *testing.T) {
	rows := []struct {
		name, path string
		api        classify.API
		standard   string
	}{
		{"messages are not found", "/v1/messages", classify.AnthropicMessages, "/v1/messages"},
		{"chat completions are not found", "/v1/chat/completions", classify.OpenAIChat, "/v1/chat/completions"},
		{"responses are not found", "/v1/responses", classify.OpenAIResponses, "/v1/responses"},
		{"a prefix hides the endpoint", "/team/a/v1/responses", classify.OpenAIResponses, "/v1/responses"},
		{"half a segment counts as a prefix", "/teamv1/messages", classify.APIUnknown, ""},
		{"counting tokens counts as messages", "/v1/messages/count_tokens", classify.APIUnknown, ""},
		{"the messages of a thread are Anthropic's", "/v1/threads/t/messages", classify.APIUnknown, ""},
		{"one response counts as responses", "/v1/responses/resp_1", classify.APIUnknown, ""},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if api, standard := Endpoint(row.path); api != row.api || standard != row.standard {
				t.Errorf("Endpoint(%s) = %v, %q, want %v, %q", row.path, api, standard, row.api, row.standard)
			}
		})
	}
}
