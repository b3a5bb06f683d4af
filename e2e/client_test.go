//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	anthropic "github.com/anthropics/anthropic-sdk-go/v2"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"understudy/internal/scripted"
)

// The kinds of call that a client makes.
const (
	messages  = "/v1/messages"
	chats     = "/v1/chat/completions"
	responsed = "/v1/responses"
)

func apiOf(path string) string {
	if path == messages {
		return "anthropic"
	}
	return "openai"
}

// clientKey is the credential that clients send and no provider may see.
const clientKey = "the-clients-own-key"

// call is one request as a client makes it.
type call struct {
	path   string
	stream bool
	chain  string
	script string
	id     string // of the script; the test's name when empty
	header map[string]string
	onText func(text string) // streams: called at each piece

	body    string // instead of the smallest; raw calls only
	insists bool   // the SDK retries as it does by default: twice
}

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	text   string // of the model
	body   string // as it came; raw calls only
	err    error  // what the client library raised, or what reading the body gave
}

func (c call) headers(t testing.TB) map[string]string {
	headers := map[string]string{scripted.ScriptHeader: c.script, scripted.IDHeader: c.scriptID(t)}
	if c.chain != "" {
		headers["x-llm-chain"] = c.chain
	}
	for name, value := range c.header {
		headers[name] = value
	}
	return headers
}

func (c call) scriptID(t testing.TB) string {
	if c.id == "" {
		return t.Name()
	}
	return c.id
}

func (c call) got(text *strings.Builder, piece string) {
	text.WriteString(piece)
	if c.onText != nil && piece != "" {
		c.onText(piece)
	}
}

// sdk makes the call with the official client of its dialect, retries off unless it insists.
func (s *Stack) sdk(ctx context.Context, t testing.TB, c call) answer {
	t.Helper()
	switch c.path {
	case messages:
		return s.anthropicSDK(ctx, t, c)
	case chats:
		return s.chatSDK(ctx, t, c)
	default:
		return s.responsesSDK(ctx, t, c)
	}
}

func (s *Stack) anthropicSDK(ctx context.Context, t testing.TB, c call) answer {
	var resp *http.Response
	opts := []anthropicoption.RequestOption{
		anthropicoption.WithBaseURL(s.front()), anthropicoption.WithAPIKey(clientKey),
		anthropicoption.WithHTTPClient(s.http), anthropicoption.WithResponseInto(&resp),
	}
	if !c.insists {
		opts = append(opts, anthropicoption.WithMaxRetries(0))
	}
	for name, value := range c.headers(t) {
		opts = append(opts, anthropicoption.WithHeader(name, value))
	}
	sdk := anthropic.NewClient(opts...)
	params := anthropic.MessageNewParams{Model: "m", MaxTokens: 100, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hello"))}}
	var text strings.Builder
	if !c.stream {
		message, err := sdk.Messages.New(ctx, params)
		if err == nil {
			for _, block := range message.Content {
				c.got(&text, block.Text)
			}
		}
		return answered(resp, &text, err)
	}
	stream := sdk.Messages.NewStreaming(ctx, params)
	defer stream.Close()
	for stream.Next() {
		c.got(&text, stream.Current().Delta.Text)
	}
	return answered(resp, &text, stream.Err())
}

func (s *Stack) openaiSDK(t testing.TB, c call, resp **http.Response) openai.Client {
	opts := []openaioption.RequestOption{
		openaioption.WithBaseURL(s.front() + "/v1"), openaioption.WithAPIKey(clientKey),
		openaioption.WithHTTPClient(s.http), openaioption.WithResponseInto(resp),
	}
	if !c.insists {
		opts = append(opts, openaioption.WithMaxRetries(0))
	}
	for name, value := range c.headers(t) {
		opts = append(opts, openaioption.WithHeader(name, value))
	}
	return openai.NewClient(opts...)
}

func (s *Stack) chatSDK(ctx context.Context, t testing.TB, c call) answer {
	var resp *http.Response
	sdk := s.openaiSDK(t, c, &resp)
	params := openai.ChatCompletionNewParams{Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")}}
	var text strings.Builder
	if !c.stream {
		completion, err := sdk.Chat.Completions.New(ctx, params)
		if err == nil && len(completion.Choices) > 0 {
			c.got(&text, completion.Choices[0].Message.Content)
		}
		return answered(resp, &text, err)
	}
	stream := sdk.Chat.Completions.NewStreaming(ctx, params)
	defer stream.Close()
	for stream.Next() {
		if chunk := stream.Current(); len(chunk.Choices) > 0 {
			c.got(&text, chunk.Choices[0].Delta.Content)
		}
	}
	return answered(resp, &text, stream.Err())
}

func (s *Stack) responsesSDK(ctx context.Context, t testing.TB, c call) answer {
	var resp *http.Response
	sdk := s.openaiSDK(t, c, &resp)
	params := responses.ResponseNewParams{Model: "m", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("hello")}}
	var text strings.Builder
	if !c.stream {
		response, err := sdk.Responses.New(ctx, params)
		if err == nil {
			c.got(&text, response.OutputText())
		}
		return answered(resp, &text, err)
	}
	stream := sdk.Responses.NewStreaming(ctx, params)
	defer stream.Close()
	var failed error
	for stream.Next() {
		switch event := stream.Current(); event.Type {
		case "response.output_text.delta":
			c.got(&text, event.Delta)
		case "response.failed": // the SDK hands it out as an event
			failed = errors.New("response.failed: " + event.Response.Error.Message)
		}
	}
	return answered(resp, &text, errors.Join(stream.Err(), failed))
}

func answered(resp *http.Response, text *strings.Builder, err error) answer {
	a := answer{text: text.String(), err: err, header: http.Header{}}
	if resp != nil {
		a.status, a.header = resp.StatusCode, resp.Header
	}
	return a
}

// requestBody is the smallest request of a dialect.
func requestBody(path string, stream bool) string {
	asked := `"messages":[{"role":"user","content":"hello"}],"max_tokens":100`
	if path == responsed {
		asked = `"input":"hello"`
	}
	if stream {
		asked += `,"stream":true`
	}
	return `{"model":"m",` + asked + `}`
}

// request is the call as a raw HTTP request.
func (s *Stack) request(ctx context.Context, t testing.TB, c call, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.front()+c.path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("content-type", "application/json")
	for name, value := range c.headers(t) {
		req.Header.Set(name, value)
	}
	return req
}

// raw makes the call over plain HTTP and keeps the body as it came.
func (s *Stack) raw(ctx context.Context, t testing.TB, c call) answer {
	t.Helper()
	return s.do(s.request(ctx, t, c, strings.NewReader(cmp.Or(c.body, requestBody(c.path, c.stream)))))
}

func (s *Stack) do(req *http.Request) answer {
	resp, err := s.http.Do(req)
	if err != nil {
		return answer{err: err, header: http.Header{}}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, body: string(body), err: err}
}

// ended is nil for a clean end.
func ended(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}
