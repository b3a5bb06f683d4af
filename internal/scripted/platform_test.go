package scripted_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"understudy/internal/scripted"
)

const (
	keyID     = "AKIDEXAMPLE"
	secretKey = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
)

// asked is a request to a platform.
type asked struct {
	path   string
	body   string
	header map[string]string
	script string
	sign   string // the service of an AWS signature; "": none
	at     time.Time
}

func (a asked) with(change func(*asked)) asked {
	headers := map[string]string{}
	for name, value := range a.header {
		headers[name] = value
	}
	a.header = headers
	change(&a)
	return a
}

func header(name, value string) func(*asked) { return func(a *asked) { a.header[name] = value } }
func body(s string) func(*asked)             { return func(a *asked) { a.body = s } }
func path(s string) func(*asked)             { return func(a *asked) { a.path = s } }

// send makes a request as AWS's own signer signs it.
func (a asked) send(t *testing.T, base string) got {
	t.Helper()
	req, err := http.NewRequestWithContext(deadline(t), http.MethodPost, base+a.path, strings.NewReader(a.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("content-type", "application/json")
	for name, value := range a.header {
		req.Header.Set(name, value)
	}
	if a.sign != "" {
		sum := sha256.Sum256([]byte(a.body))
		keys := aws.Credentials{AccessKeyID: keyID, SecretAccessKey: secretKey, SessionToken: "session"}
		if a.at.IsZero() {
			a.at = time.Now()
		}
		if err := v4.NewSigner().SignHTTP(context.Background(), keys, req, hex.EncodeToString(sum[:]), a.sign, "us-east-1", a.at); err != nil {
			t.Fatal(err)
		}
	}
	req.Header.Set(scripted.ScriptHeader, a.script) // not signed
	resp, err := plainClient.Do(req)
	if err != nil {
		return got{err: err}
	}
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	return got{resp.StatusCode, resp.Header, string(read), err}
}

func TestAPlatformTakesOnlyWhatItsOwnClientSends(t *testing.T) {
	t.Parallel()
	sigv4 := func(service string) scripted.Auth {
		return scripted.SigV4{Region: "us-east-1", Service: service, Secret: scripted.StaticKey(keyID, secretKey, "session")}
	}
	key := func(name string) scripted.Auth { return scripted.Key{Header: name, Valid: scripted.Exactly("k")} }
	bearer := scripted.Bearer{Valid: scripted.Exactly("t")}
	const turns = `"max_tokens":9,"messages":[{"role":"user","content":"hé"}]`
	invoke := asked{path: "/model/us.anthropic.m%3A0/invoke", body: `{"anthropic_version":"bedrock-2023-05-31",` + turns + `}`, sign: "bedrock"}
	mantle := asked{path: "/anthropic/v1/messages", body: `{"model":"m",` + turns + `}`, header: map[string]string{"anthropic-version": "2023-06-01"}, sign: "bedrock-mantle"}
	raw := asked{path: "/v1/projects/acme/locations/global/publishers/anthropic/models/m@1:rawPredict", header: map[string]string{"authorization": "Bearer t"},
		body: `{"anthropic_version":"vertex-2023-10-16",` + turns + `}`}
	foundry := asked{path: "/anthropic/v1/messages", body: `{"model":"m",` + turns + `}`, header: map[string]string{"anthropic-version": "2023-06-01", "x-api-key": "k"}}
	chats := `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	classic := asked{path: "/openai/deployments/m/chat/completions?api-version=2024-10-21", body: chats, header: map[string]string{"api-key": "k"}}
	v1 := asked{path: "/openai/v1/chat/completions", body: chats, header: map[string]string{"authorization": "Bearer t"}}
	contents := `{"contents":[{"parts":[{"text":"hi"}]}]}`
	gemini := asked{path: "/v1beta/models/m:generateContent", body: contents, header: map[string]string{"x-goog-api-key": "k"}}
	vertexGemini := asked{path: "/v1beta1/projects/acme/locations/eu/publishers/google/models/m:streamGenerateContent?alt=sse", body: contents, header: map[string]string{"authorization": "Bearer t"}}
	for _, row := range []struct {
		name     string
		platform scripted.Platform
		asked    asked
		status   int
		has      string
	}{
		{"InvokeModel", scripted.Bedrock{Surface: "invoke", Auth: sigv4("bedrock")}, invoke, 200, `"type":"message"`},
		{"InvokeModel with a raw colon", scripted.Bedrock{Surface: "invoke", Auth: sigv4("bedrock")}, invoke.with(path("/model/us.anthropic.m:0/invoke")), 200, `"type":"message"`},
		{"InvokeModel of no such model", scripted.Bedrock{Surface: "invoke", Auth: sigv4("bedrock")}, invoke.with(path("/model/x/invoke")), 404, "x"},
		{"InvokeModel of an ARN", scripted.Bedrock{Surface: "invoke", Auth: sigv4("bedrock")}, invoke.with(path("/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fm/invoke")), 200, `"type":"message"`},
		{"InvokeModel with the model in the body", scripted.Bedrock{Surface: "invoke", Auth: sigv4("bedrock")}, invoke.with(body(`{"model":"m","anthropic_version":"bedrock-2023-05-31",` + turns + `}`)), 400, "extraneous key [model]"},
		{"InvokeModel with stream in the body", scripted.Bedrock{Surface: "invoke", Auth: sigv4("bedrock")}, invoke.with(body(`{"stream":true,"anthropic_version":"bedrock-2023-05-31",` + turns + `}`)), 400, "extraneous key [stream]"},
		{"InvokeModel without a version", scripted.Bedrock{Surface: "invoke", Auth: sigv4("bedrock")}, invoke.with(body(`{` + turns + `}`)), 400, "anthropic_version"},
		{"InvokeModel with a beta in the header", scripted.Bedrock{Surface: "invoke", Auth: sigv4("bedrock")}, invoke.with(header("anthropic-beta", "b")), 400, "anthropic-beta"},
		{"InvokeModel, unsigned", scripted.Bedrock{Surface: "invoke", Auth: sigv4("bedrock")}, invoke.with(func(a *asked) { a.sign = "" }), 403, "Missing Authentication Token"},
		{"InvokeModel, signed for another service", scripted.Bedrock{Surface: "invoke", Auth: sigv4("bedrock")}, invoke.with(func(a *asked) { a.sign = "s3" }), 403, "scoped to correct service"},
		{"InvokeModel, signed six minutes ago", scripted.Bedrock{Surface: "invoke", Auth: sigv4("bedrock")}, invoke.with(func(a *asked) { a.at = time.Now().Add(-6 * time.Minute) }), 403, "Signature expired"},
		{"InvokeModel, signed in six minutes", scripted.Bedrock{Surface: "invoke", Auth: sigv4("bedrock")}, invoke.with(func(a *asked) { a.at = time.Now().Add(6 * time.Minute) }), 403, "not yet current"},
		{"InvokeModel with a client's key, too", scripted.Bedrock{Surface: "invoke", Auth: sigv4("bedrock")}, invoke.with(header("x-api-key", "k")), 403, "X-Api-Key"},
		{"mantle", scripted.Bedrock{Surface: "mantle", Auth: sigv4("bedrock-mantle")}, mantle, 200, `"type":"message"`},
		{"mantle without a version", scripted.Bedrock{Surface: "mantle", Auth: sigv4("bedrock-mantle")}, mantle.with(func(a *asked) { delete(a.header, "anthropic-version") }), 400, `"type":"error"`},
		{"rawPredict", scripted.Vertex{API: "anthropic", Project: "acme", Region: "global", Auth: bearer}, raw, 200, `"type":"message"`},
		{"rawPredict in another region", scripted.Vertex{API: "anthropic", Project: "acme", Region: "eu", Auth: bearer}, raw, 404, "NOT_FOUND"},
		{"rawPredict with the model in the body", scripted.Vertex{API: "anthropic", Project: "acme", Region: "global", Auth: bearer}, raw.with(body(`{"model":"m","anthropic_version":"vertex-2023-10-16",` + turns + `}`)), 400, "model: Extra"},
		{"rawPredict of a stream", scripted.Vertex{API: "anthropic", Project: "acme", Region: "global", Auth: bearer}, raw.with(body(`{"stream":true,"anthropic_version":"vertex-2023-10-16",` + turns + `}`)), 400, "stream: true"},
		{"rawPredict with another token", scripted.Vertex{API: "anthropic", Project: "acme", Region: "global", Auth: bearer}, raw.with(header("authorization", "Bearer u")), 401, "UNAUTHENTICATED"},
		{"Foundry", scripted.Foundry{Auth: scripted.Either{key("x-api-key"), bearer}}, foundry, 200, `"type":"message"`},
		{"Foundry with a speed", scripted.Foundry{Auth: key("x-api-key")}, foundry.with(body(`{"model":"m","speed":"fast",` + turns + `}`)), 400, "speed"},
		{"Foundry with two credentials", scripted.Foundry{Auth: scripted.Either{key("x-api-key"), bearer}}, foundry.with(header("authorization", "Bearer t")), 401, "Access denied"},
		{"Azure's classic API", scripted.Azure{APIVersion: "2024-10-21", Auth: key("api-key")}, classic, 200, `"content_filter_results"`},
		{"Azure's classic API in another version", scripted.Azure{APIVersion: "2025-01-01", Auth: key("api-key")}, classic, 404, "Resource not found"},
		{"Azure's classic API without such a deployment", scripted.Azure{APIVersion: "2024-10-21", Auth: key("api-key")}, classic.with(path("/openai/deployments/x/chat/completions?api-version=2024-10-21")), 404, "DeploymentNotFound"},
		{"Azure's v1", scripted.Azure{Auth: scripted.Either{key("api-key"), bearer}}, v1, 200, `"content_filter_results"`},
		{"Azure's v1 with two credentials", scripted.Azure{Auth: scripted.Either{key("api-key"), bearer}}, v1.with(header("api-key", "k")), 401, "Access denied"},
		{"Azure's v1 with an organization of OpenAI's", scripted.Azure{Auth: bearer}, v1.with(header("openai-organization", "o")), 400, "openai-organization"},
		{"Gemini", scripted.Native{API: "gemini", Auth: key("x-goog-api-key")}, gemini, 200, `"candidates"`},
		{"Gemini with a key in the query", scripted.Native{API: "gemini", Auth: key("x-goog-api-key")}, gemini.with(path("/v1beta/models/m:generateContent?key=k")), 400, "API key not valid"},
		{"Gemini on Vertex", scripted.Vertex{API: "gemini", Project: "acme", Region: "eu", Auth: bearer}, vertexGemini, 200, "data: {\"candidates\""},
		{"Gemini on Vertex as a list", scripted.Vertex{API: "gemini", Project: "acme", Region: "eu", Auth: bearer},
			vertexGemini.with(path("/v1/projects/acme/locations/eu/publishers/google/models/m:streamGenerateContent")), 200, `[{"candidates"`},
		{"OpenAI's own", scripted.Native{API: "openai", Auth: bearer}, v1.with(path("/v1/chat/completions")), 200, `"object":"chat.completion"`},
		{"Anthropic's own", scripted.Native{API: "anthropic", Auth: key("x-api-key")}, foundry.with(path("/v1/messages")), 200, `"type":"message"`},
		{"throttling on Bedrock", scripted.Bedrock{Surface: "invoke", Auth: sigv4("bedrock")}, invoke.with(func(a *asked) { a.script = "p=429" }), 429, "Too many requests"},
		{"a blocked prompt on Azure", scripted.Azure{Auth: bearer}, v1.with(func(a *asked) { a.script = "p=400 code=content_filter" }), 400, "ResponsibleAIPolicyViolation"},
		{"a quota on Vertex", scripted.Vertex{API: "anthropic", Project: "acme", Region: "global", Auth: bearer}, raw.with(func(a *asked) { a.script = "p=429" }), 429, "RESOURCE_EXHAUSTED"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := scripted.New("p", scripted.Options{Platform: row.platform,
				Models: []string{"m", "m@1", "us.anthropic.m:0", "arn:aws:bedrock:us-east-1:1:inference-profile/m"}})
			s, err := scripted.Serve(p, "127.0.0.1:0", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			a := row.asked.send(t, s.URL("127.0.0.1"))
			if a.err != nil || a.status != row.status || !strings.Contains(a.body, row.has) {
				t.Errorf("%s = %d %s, %v, want %d with %s", row.asked.path, a.status, a.body, a.err, row.status, row.has)
			}
			refused := p.Requests("")[0].Refused
			if (refused != "") != (row.status != 200 && row.asked.script == "") {
				t.Errorf("Refused = %q at status %d", refused, a.status)
			}
		})
	}
}

// The vectors of AWS's own suite (aws-sig-v4-test-suite: get-vanilla, get-vanilla-query-order-key-case).
func TestSignaturesOfAWSsOwnSuiteAreVerified(t *testing.T) {
	t.Parallel()
	for query, signature := range map[string]string{
		"":                             "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
		"?Param2=value2&Param1=value1": "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
	} {
		p := scripted.New("p", scripted.Options{Platform: scripted.Bedrock{Surface: "invoke", Auth: scripted.SigV4{
			Region: "us-east-1", Service: "service", Secret: scripted.StaticKey(keyID, secretKey, ""),
			Clock: func() time.Time { return time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC) },
		}}})
		s, err := scripted.Serve(p, "127.0.0.1:0", nil)
		if err != nil {
			t.Fatal(err)
		}
		for wrong, status := range map[string]int{"": 404, "0": 403} { // verified, there is no such path
			req, err := http.NewRequestWithContext(deadline(t), http.MethodGet, s.URL("127.0.0.1")+"/"+query, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = "example.amazonaws.com"
			req.Header.Set("x-amz-date", "20150830T123600Z")
			req.Header.Set("authorization", "AWS4-HMAC-SHA256 Credential="+keyID+"/20150830/us-east-1/service/aws4_request, "+
				"SignedHeaders=host;x-amz-date, Signature="+wrong+signature[len(wrong):])
			resp, err := plainClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != status {
				t.Errorf("GET /%s with signature %s… = %d, want %d: %s", query, wrong, resp.StatusCode, status, p.Requests("")[0].Refused)
			}
		}
		s.Close()
	}
}

func TestBedrockStreamsFrames(t *testing.T) {
	t.Parallel()
	p := scripted.New("p", scripted.Options{Platform: scripted.Bedrock{Surface: "invoke", Auth: scripted.Bearer{Valid: scripted.Exactly("t")}}})
	s, err := scripted.Serve(p, "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	for script, want := range map[string]string{
		"p=ok n=1":                                "message_start content_block_start content_block_delta content_block_stop message_delta message_stop",
		"p=error-first":                           "!serviceUnavailableException",
		"p=error n=1 code=throttlingException":    "message_start content_block_start content_block_delta !throttlingException",
		"p=failed n=0 code=internalFailure":       "message_start !internalFailure",
		"p=error n=1 code=overloaded_error bytes": "message_start content_block_start content_block_delta error",
	} {
		a := asked{path: "/model/m/invoke-with-response-stream", script: script, header: map[string]string{"authorization": "Bearer t"},
			body: `{"anthropic_version":"2026-10-21","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`}.send(t, s.URL("127.0.0.1"))
		if got := a.header.Get("content-type"); a.status != 200 || got != "application/vnd.amazon.eventstream" {
			t.Fatalf("%s = %d %s %s, want frames", script, a.status, got, a.body)
		}
		if got := kindsOf(t, a.body); got != want {
			t.Errorf("%s = %s, want %s", script, got, want)
		}
	}
}

// kindsOf are the types of the events in frames, exceptions and errors with a "!", as AWS's decoder reads them.
func kindsOf(t *testing.T, body string) string {
	t.Helper()
	var kinds []string
	in, dec := bytes.NewReader([]byte(body)), eventstream.NewDecoder()
	for {
		msg, err := dec.Decode(in, nil)
		if errors.Is(err, io.EOF) {
			return strings.Join(kinds, " ")
		}
		if err != nil {
			t.Fatal(err)
		}
		value := func(name string) string {
			if v := msg.Headers.Get(name); v != nil {
				return v.String()
			}
			return ""
		}
		if value(":message-type") != "event" {
			kinds = append(kinds, "!"+value(":exception-type")+value(":error-code"))
			continue
		}
		var chunk struct{ Bytes string }
		var event struct{ Type string }
		err = json.Unmarshal(msg.Payload, &chunk)
		plain, err2 := base64.StdEncoding.DecodeString(chunk.Bytes)
		if err := errors.Join(err, err2, json.Unmarshal(plain, &event)); err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, event.Type)
	}
}

func TestAnIssuersCredentialsEnd(t *testing.T) {
	t.Parallel()
	issuer, err := scripted.NewIssuer(-time.Second, "s")
	if err != nil {
		t.Fatal(err)
	}
	s, err := scripted.Serve(issuer, "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	resp, err := plainClient.PostForm(s.URL("127.0.0.1")+"/sts", url.Values{
		"Action": {"AssumeRoleWithWebIdentity"}, "WebIdentityToken": {"s"}, "RoleArn": {"arn:aws:iam::1:role/r"}})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	issued := issuer.Issued()
	if len(issued) != 1 {
		t.Fatalf("Issued() = %v, want one credential", issued)
	}
	if _, _, err := issuer.Keys(issued[0].ID); err == nil || !strings.Contains(err.Error(), "ExpiredTokenException") {
		t.Errorf("Keys(%s) = %v, want that it has expired", issued[0].ID, err)
	}
	if err := issuer.Token("gcp", "r")(issued[0].Token); err == nil {
		t.Error("Token(gcp) took a token of AWS's")
	}
}
