//go:build e2e

package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// steering is what a client could try to steer Envoy or the service with.
var steering = map[string]string{
	"x-envoy-retry-on":                       "5xx,reset,connect-failure,retriable-status-codes,gateway-error",
	"x-envoy-retry-grpc-on":                  "unavailable",
	"x-envoy-max-retries":                    "10",
	"x-envoy-retriable-status-codes":         "200",
	"x-envoy-retriable-header-names":         "content-type",
	"x-envoy-upstream-rq-timeout-ms":         "1",
	"x-envoy-upstream-rq-per-try-timeout-ms": "1",
	"x-envoy-hedge-on-per-try-timeout":       "true",
	"x-envoy-expected-rq-timeout-ms":         "1",
	"x-envoy-attempt-count":                  "5",
	"x-envoy-original-path":                  "/elsewhere",
	"x-envoy-original-host":                  "elsewhere.test",
	"x-envoy-original-dst-host":              "127.0.0.1:1",
	"x-envoy-internal":                       "true",
	"x-envoy-decorator-operation":            "steered",
	"x-envoy-peer-metadata":                  "steered",
	"x-envoy-peer-metadata-id":               "steered",
	"x-envoy-force-trace":                    "true",
	"x-llm-cluster":                          "llm-b-anthropic",
	"x-llm-failover":                         "next",
	"x-llm-target":                           "steered",
	"x-llm-rung":                             "1",
	"x-llm-attempts":                         "9",
	"x-llm-degraded":                         "off",
	"x-llm-fallback-reason":                  "steered",
	"x-llm-exchange":                         "steered",
	"x-llm-start":                            "1",
	"x-llm-tenant":                           "steered",
	"x-llm-anything":                         "steered",
	"x-understudy-chain":                     "elsewhere",
	"x-understudy-credential":                "steered",
	"x-forwarded-for":                        "127.0.0.1, 10.0.0.1",
	"x-forwarded-proto":                      "https",
	"x-forwarded-host":                       "elsewhere.test",
	"x-forwarded-port":                       "1",
	"x-forwarded-client-cert":                "By=steered",
	"x-request-id":                           "11111111-1111-4111-8111-111111111111",
}

func TestAClientSteersNothing(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{chains: []chain{{name: "steered", api: "anthropic", on: []string{"a", "b"}}}})
	one := map[string]map[string]string{"all at once": steering}
	for name, value := range steering {
		one[name] = map[string]string{name: value}
	}
	for name, headers := range one {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := call{path: messages, stream: true, chain: "steered", script: "a=ok after=100ms", header: headers}
			served{by: "a", target: "steered/a", rung: 0, attempts: 1}.check(t, c, s.sdk(within(t, patience), t, c))
			s.calls(t, t.Name(), "a:1 b:0")
		})
	}
}

// foreign reports whether a header is none of a provider's business, or of a client's.
func foreign(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{"x-llm-", "x-envoy-", "x-understudy-", "x-forwarded-"}, func(p string) bool { return strings.HasPrefix(name, p) }) ||
		name == "x-request-id" || name == "via"
}

// forms are how a client may write headers that it hopes nobody removes.
var forms = []struct {
	name  string
	http2 bool
	write func(r *http.Request, name, value string)
}{
	{"in odd case", false, func(r *http.Request, name, value string) { r.Header[oddCase(name)] = []string{value} }},
	{"on two lines", false, func(r *http.Request, name, value string) { r.Header[name] = []string{value, value} }},
	{"on two lines in two cases", false, func(r *http.Request, name, value string) {
		r.Header[name], r.Header[oddCase(name)] = []string{value}, []string{value}
	}},
	{"over HTTP/2", true, func(r *http.Request, name, value string) { r.Header[name] = []string{value, value} }},
	{"as trailers of a chunked body", false, asTrailer},
	{"as trailers over HTTP/2", true, asTrailer},
}

// oddCase is a name as nobody writes it: x-LlM-ClUsTeR.
func oddCase(name string) string {
	odd := []byte(strings.ToLower(name))
	for i := 0; i < len(odd); i += 2 {
		odd[i] = strings.ToUpper(string(odd[i]))[0]
	}
	return string(odd)
}

func asTrailer(r *http.Request, name, value string) {
	if r.Trailer == nil {
		r.Trailer, r.ContentLength = http.Header{}, -1
	}
	r.Trailer.Set(name, value)
}

// http2 is a client that speaks HTTP/2 without TLS from the start.
func http2(t *testing.T) *http.Client {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// formsSteerNothing checks that in whatever form, all that steers leads to the first target, and only there.
func formsSteerNothing(t *testing.T, s *Stack, chain string) {
	for _, form := range forms {
		t.Run(form.name, func(t *testing.T) {
			view := *s
			if form.http2 {
				view.http = http2(t)
			}
			c := call{path: messages, chain: chain, script: "*=ok"}
			r := view.request(within(t, patience), t, c, strings.NewReader(requestBody(messages, false)))
			for name, value := range steering {
				form.write(r, name, value)
			}
			if a := view.do(r); a.status != http.StatusOK {
				t.Errorf("the client got %d %.300s, %v, want 200", a.status, a.body, a.err)
			}
			s.calls(t, t.Name(), "a:1 b:0")
			s.reachedRight(t, messages)
		})
	}
}

func TestNoFormOfAHeaderSteers(t *testing.T) {
	t.Parallel()
	formsSteerNothing(t, startStack(t, plan{chains: []chain{{name: "formed", api: "anthropic", on: []string{"a", "b"}}}}), "formed")
}

// Only the service can say which calls are its own.
func TestAClientDoesNotPassForUs(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{chains: []chain{{name: "own", api: "anthropic", on: []string{"a", "b"}}}})
	a := s.raw(within(t, patience), t, call{path: messages, chain: "own", script: "*=ok", header: map[string]string{"x-llm-internal": "steered"}})
	if a.status < 400 || a.status >= 500 {
		t.Errorf("the client got %d %.300s, %v, want a refusal", a.status, a.body, a.err)
	}
	s.calls(t, t.Name(), "a:0 b:0")
}

func TestNothingOfOursReachesAProvider(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{chains: []chain{{name: "clean", api: "anthropic", on: []string{"a", "b"}}}})
	headers := map[string]string{"authorization": "Bearer " + clientKey, "x-llm-degrade": "off", "x-mine": "kept"}
	for name, value := range steering {
		headers[name] = value
	}
	s.sdk(within(t, patience), t, call{path: messages, chain: "clean", script: "a=529", header: headers})
	passed := s.plain(within(t, patience), t, http.MethodGet, "/v1/models", nil)
	for name, value := range steering {
		passed.Header.Set(name, value)
	}
	s.do(passed)
	s.calls(t, t.Name(), "a:2 b:1")
	for _, name := range []string{"a", "b"} {
		for _, r := range s.providers[name].Requests(t.Name()) {
			for header, values := range r.Header {
				if foreign(header) || strings.Contains(strings.Join(values, ","), clientKey) {
					t.Errorf("provider %s was sent %s: %q on %s", name, header, values, r.Path)
				}
			}
			if strings.HasPrefix(r.Path, messages) && r.Header.Get("x-mine") != "kept" {
				t.Errorf("provider %s did not get the client's own header: %v", name, r.Header)
			}
		}
	}
}

func TestAProviderSteersAndLeaksNothing(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{chains: []chain{
		{name: "steers-good", api: "anthropic", on: []string{"a", "b"}},
		{name: "steers-bad", api: "anthropic", on: []string{"a", "b"}},
		{name: "steers-invalid", api: "anthropic", on: []string{"a", "b"}},
	}})
	rows := []struct {
		chain, script, calls string
		status               int
		want                 served
	}{
		{"steers-good", "a=ok evil", "a:1 b:0", 200, served{by: "a", target: "steers-good/a", rung: 0, attempts: 1}},
		{"steers-bad", "a=529 evil; b=ok evil", "a:1 b:1", 200, served{by: "b", target: "steers-bad/b", rung: 1, attempts: 2, reason: "overloaded"}},
		{"steers-invalid", "a=400 evil", "a:1 b:0", 400, served{}},
	}
	for _, row := range rows {
		for _, stream := range []bool{true, false} {
			c := call{path: messages, stream: stream, chain: row.chain, script: row.script, id: row.chain + map[bool]string{true: " streamed"}[stream]}
			a := s.sdk(within(t, patience), t, c)
			if a.status != row.status {
				t.Errorf("%s = status %d, %v, want %d", row.script, a.status, a.err, row.status)
			}
			if row.status == 200 {
				row.want.check(t, c, a)
			}
			s.calls(t, c.id, row.calls)
			leaksNothing(t, a.header)
		}
	}
	models := s.plain(within(t, patience), t, http.MethodGet, "/v1/models", nil)
	leaksNothing(t, s.do(models).header)
}

// ours are the response headers of the contract.
var ours = []string{"X-Llm-Target", "X-Llm-Rung", "X-Llm-Attempts", "X-Llm-Fallback-Reason", "X-Llm-Degraded"}

func leaksNothing(t *testing.T, header http.Header) {
	t.Helper()
	for name, values := range header {
		lower := strings.ToLower(name)
		steers := strings.HasPrefix(lower, "x-llm-") && !slices.Contains(ours, name) || strings.HasPrefix(lower, "x-envoy-") || lower == "x-should-retry"
		if name == "X-Envoy-Upstream-Service-Time" { // the front's own
			steers = false
		}
		if steers || strings.Contains(strings.Join(values, ","), "evil") {
			t.Errorf("the client was sent %s: %q", name, values)
		}
	}
}

func TestAProvidersOwn507IsJustAFailure(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{chains: []chain{
		{name: "first", api: "anthropic", on: []string{"a", "b"}},
		{name: "both", api: "anthropic", on: []string{"a", "b"}},
	}})
	c := call{path: messages, chain: "first", script: "a=507", id: "first"}
	served{by: "b", target: "first/b", rung: 1, attempts: 2, reason: "server_error"}.check(t, c, s.sdk(within(t, patience), t, c))
	s.calls(t, "first", "a:1 b:1")

	a := s.raw(within(t, patience), t, call{path: messages, chain: "both", script: "*=507", id: "both"})
	if a.status < 500 || !strings.Contains(a.body, `"type":"error"`) || !strings.Contains(a.body, "api_error") {
		t.Errorf("the client got %d %s, want the provider's own failure", a.status, a.body)
	}
	s.calls(t, "both", "a:1 b:1")
}

func TestACertificateForAnotherNameIsRefused(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{tls: true, chains: []chain{{name: "names", api: "anthropic", on: []string{"wrong", "b"}}}})
	c := call{path: messages, chain: "names", script: "*=ok"}
	served{by: "b", target: "names/b", rung: 1, attempts: 2, reason: "transport"}.check(t, c, s.sdk(within(t, time.Minute), t, c))
	s.calls(t, t.Name(), "wrong:0 b:1")
}

func TestOnlyAConfiguredChainIsPicked(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{chains: []chain{{name: "mine", api: "anthropic", on: []string{"b", "a"}}}})
	for name, target := range map[string]string{"mine": "mine/b", "": "default-anthropic/a"} {
		c := call{path: messages, chain: name, script: "*=ok", id: "picked " + name}
		if a := s.sdk(within(t, patience), t, c); a.header.Get("x-llm-target") != target {
			t.Errorf("x-llm-chain %q was served by %q, %v, want %q", name, a.header.Get("x-llm-target"), a.err, target)
		}
	}
}
