package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/bedrock"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/azure"
	openaioption "github.com/openai/openai-go/v3/option"

	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// wireTap answers every request by one response and keeps what it was asked.
type wireTap struct {
	status      int
	contentType string
	answer      []byte
	path        string // escaped, with the query
	header      http.Header
	body        []byte
}

func (w *wireTap) RoundTrip(r *http.Request) (*http.Response, error) {
	w.path, w.header = r.URL.RequestURI(), r.Header.Clone()
	if r.Body != nil {
		w.body, _ = io.ReadAll(r.Body)
	}
	return &http.Response{
		StatusCode: w.status, Header: http.Header{"Content-Type": {w.contentType}}, Request: r,
		Body: io.NopCloser(bytes.NewReader(w.answer)),
	}, nil
}

func newTap(status int, contentType, answer string) *wireTap {
	return &wireTap{status: status, contentType: contentType, answer: []byte(answer)}
}

func (w *wireTap) client() *http.Client { return &http.Client{Transport: w} }

// byKey is a body as JSON, without members that may differ.
func byKey(t *testing.T, body []byte, without ...string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatalf("body %q: %v", body, err)
	}
	for _, name := range without {
		delete(m, name)
	}
	return m
}

func bedrockOption(tap *wireTap) []option.RequestOption {
	return []option.RequestOption{
		option.WithHTTPClient(tap.client()), option.WithMaxRetries(0),
		bedrock.WithConfig(aws.Config{Region: "us-east-1", BearerAuthTokenProvider: bedrock.NewStaticBearerTokenProvider("s3cret")}),
	}
}

// TestBedrockIsAskedAsItsSDKAsks sends one request by the SDK of Anthropic's own API, rewritten by us, and by the SDK's
// own client of Bedrock.
func TestBedrockIsAskedAsItsSDKAsks(t *testing.T) {
	const model = "us.anthropic.claude-x-v1:0"
	params := anthropic.MessageNewParams{
		MaxTokens: 100, Model: model,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("é <&> \u2028"))},
		Thinking: anthropic.ThinkingConfigParamOfEnabled(1024),
	}
	betas := option.WithHeader("anthropic-beta", "a, b")
	profile := option.WithHeader("anthropic-user-profile-id", "up_1")
	for _, stream := range []bool{false, true} {
		ours, theirs := newTap(400, "application/json", "{}"), newTap(400, "application/json", "{}")
		ask := func(c anthropic.Client) {
			if stream {
				c.Messages.NewStreaming(t.Context(), params, betas, profile)
			} else {
				_, _ = c.Messages.New(t.Context(), params, betas, profile)
			}
		}
		ask(anthropic.NewClient(option.WithHTTPClient(ours.client()), option.WithAPIKey("client's"), option.WithMaxRetries(0)))
		ask(anthropic.NewClient(bedrockOption(theirs)...))

		target := bedrockTarget(t, config.Invoke)
		target.Model = model
		q, err := Read(Incoming{Path: ours.path, Header: ours.header, Body: ours.body}, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		rw, err := ForTarget(target, target, q)
		if err != nil || rw.Path != theirs.path {
			t.Errorf("ForTarget().Path = %s, %v, want %s", rw.Path, err, theirs.path)
		}
		// The version is Bedrock's own, which all of its models take.
		if got, want := byKey(t, rw.Body, "anthropic_version"), byKey(t, theirs.body, "anthropic_version"); !reflect.DeepEqual(got, want) {
			t.Errorf("ForTarget().Body = %s, want %s", rw.Body, theirs.body)
		}
		for _, name := range rw.Remove {
			ours.header.Del(name)
		}
		for _, h := range rw.Set {
			ours.header.Set(h.Name, h.Value)
		}
		ours.header.Del("Accept-Encoding")
		if !reflect.DeepEqual(ours.header, theirs.header) {
			t.Errorf("headers = %v, want %v", ours.header, theirs.header)
		}
	}
}

// TestAzureIsAskedAsItsSDKAsks does the same with OpenAI's SDK and its client of Azure.
func TestAzureIsAskedAsItsSDKAsks(t *testing.T) {
	const deployment = "my deployment/1"
	asks := map[string]func(openai.Client){
		"chat": func(c openai.Client) {
			_, _ = c.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{Model: deployment, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")}})
		},
		"embeddings": func(c openai.Client) {
			_, _ = c.Embeddings.New(t.Context(), openai.EmbeddingNewParams{Model: deployment})
		},
		"speech": func(c openai.Client) {
			res, _ := c.Audio.Speech.New(t.Context(), openai.AudioSpeechNewParams{Model: deployment})
			_ = res
		},
		"images": func(c openai.Client) {
			_, _ = c.Images.Generate(t.Context(), openai.ImageGenerateParams{Model: deployment})
		},
		"moderations": func(c openai.Client) {
			_, _ = c.Moderations.New(t.Context(), openai.ModerationNewParams{Model: deployment})
		},
		"edits": func(c openai.Client) {
			_, _ = c.Images.Edit(t.Context(), openai.ImageEditParams{Model: deployment, Image: openai.ImageEditParamsImageUnion{OfFile: strings.NewReader("x")}})
		},
		"transcriptions": func(c openai.Client) {
			_, _ = c.Audio.Transcriptions.New(t.Context(), openai.AudioTranscriptionNewParams{Model: deployment, File: strings.NewReader("x")})
		},
	}
	for name, ask := range asks {
		t.Run(name, func(t *testing.T) {
			ours, theirs := newTap(400, "application/json", "{}"), newTap(400, "application/json", "{}")
			ask(openai.NewClient(openaioption.WithHTTPClient(ours.client()), openaioption.WithAPIKey("client's"), openaioption.WithMaxRetries(0)))
			ask(openai.NewClient(azure.WithEndpoint("https://res.openai.azure.com", "2024-10-21"), azure.WithAPIKey("s3cret"),
				openaioption.WithHTTPClient(theirs.client()), openaioption.WithMaxRetries(0)))
			target := azureTarget(t, "https://res.openai.azure.com", "2024-10-21")
			target.Model = deployment
			q, err := Read(Incoming{Path: ours.path, Header: ours.header, Body: ours.body}, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			rw, err := ForTarget(target, target, q)
			if err != nil || theirs.path == "" || rw.Path != theirs.path {
				t.Errorf("ForTarget(%s).Path = %s, %v, want %s", ours.path, rw.Path, err, theirs.path)
			}
		})
	}
}

// TestErrorsOfPlatformsReadAsTheDialects sends errors of other platforms to the SDKs.
func TestErrorsOfPlatformsReadAsTheDialects(t *testing.T) {
	body := ErrorIn(classify.AnthropicMessages, 429, http.Header{"X-Amzn-Errortype": {"ThrottlingException:http://x"}}, []byte(`{"message":"slow"}`))
	tap := newTap(429, "application/json", string(body))
	claude := anthropic.NewClient(option.WithHTTPClient(tap.client()), option.WithAPIKey("k"), option.WithMaxRetries(0))
	_, err := claude.Messages.New(t.Context(), anthropic.MessageNewParams{MaxTokens: 1, Model: "m"})
	if err == nil || !strings.Contains(err.Error(), "rate_limit_error") || !strings.Contains(err.Error(), "slow") {
		t.Errorf("Anthropic's SDK reads %s as %v, want rate_limit_error", body, err)
	}
	body = ErrorIn(classify.OpenAIChat, 401, nil, []byte(`{"statusCode":401,"message":"Access denied"}`))
	tap = newTap(401, "application/json", string(body))
	gpt := openai.NewClient(openaioption.WithHTTPClient(tap.client()), openaioption.WithAPIKey("k"), openaioption.WithMaxRetries(0))
	_, err = gpt.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{Model: "m"})
	var told *openai.Error
	if !errors.As(err, &told) || told.Message != "Access denied" || told.Type != "invalid_request_error" {
		t.Errorf("OpenAI's SDK reads %s as %+v, want its message and type", body, told)
	}
}
