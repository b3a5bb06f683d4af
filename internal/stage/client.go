package stage

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	anthropic "github.com/anthropics/anthropic-sdk-go/v2"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
)

// Do is the body of a 200.
func Do(req *http.Request) ([]byte, error) {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s = %s %.300s", req.Method, req.URL, resp.Status, body)
	}
	return body, err
}

// Get is Do for who has only a URL.
func Get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return Do(req)
}

// GetJSON is Get of a JSON value.
func GetJSON[T any](ctx context.Context, url string) (v T, err error) {
	body, err := Get(ctx, url)
	if err == nil {
		err = json.Unmarshal(body, &v)
	}
	return v, err
}

// ClientKey is the credential that clients send and no provider may see.
const ClientKey = "the-clients-own-key"

// Call is how a chain is called by the official SDK of a dialect, which may not retry: nothing is to be hidden.
type Call struct {
	API    string // anthropic or openai
	URL    string // of the front
	Model  string
	Stream bool
	Header map[string]string
	HTTP   *http.Client // nil: the default
}

// Answer is what the SDK made of a call.
type Answer struct {
	Status int // 0: no answer
	Header http.Header
	Text   string // of the model
	Err    error  // what the SDK raised
}

// Ask makes the call with a prompt.
func (c Call) Ask(ctx context.Context, prompt string) Answer {
	var resp *http.Response
	ask := c.openAI
	if c.API == "anthropic" {
		ask = c.anthropic
	}
	text, err := ask(ctx, prompt, &resp)
	a := Answer{Text: text, Err: err, Header: http.Header{}}
	if resp != nil {
		a.Status, a.Header = resp.StatusCode, resp.Header
	}
	return a
}

func (c Call) anthropic(ctx context.Context, prompt string, resp **http.Response) (string, error) {
	opts := []anthropicoption.RequestOption{
		anthropicoption.WithBaseURL(c.URL), anthropicoption.WithAPIKey(ClientKey), anthropicoption.WithHTTPClient(cmp.Or(c.HTTP, http.DefaultClient)),
		anthropicoption.WithResponseInto(resp), anthropicoption.WithMaxRetries(0),
	}
	for name, value := range c.Header {
		opts = append(opts, anthropicoption.WithHeader(name, value))
	}
	sdk := anthropic.NewClient(opts...)
	params := anthropic.MessageNewParams{Model: anthropic.Model(c.Model), MaxTokens: 100,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(prompt))}}
	var text strings.Builder
	if !c.Stream {
		message, err := sdk.Messages.New(ctx, params)
		if err == nil {
			for _, block := range message.Content {
				text.WriteString(block.Text)
			}
		}
		return text.String(), err
	}
	stream := sdk.Messages.NewStreaming(ctx, params)
	defer stream.Close()
	for stream.Next() {
		text.WriteString(stream.Current().Delta.Text)
	}
	return text.String(), stream.Err()
}

func (c Call) openAI(ctx context.Context, prompt string, resp **http.Response) (string, error) {
	opts := []openaioption.RequestOption{
		openaioption.WithBaseURL(c.URL + "/v1"), openaioption.WithAPIKey(ClientKey), openaioption.WithHTTPClient(cmp.Or(c.HTTP, http.DefaultClient)),
		openaioption.WithResponseInto(resp), openaioption.WithMaxRetries(0),
	}
	for name, value := range c.Header {
		opts = append(opts, openaioption.WithHeader(name, value))
	}
	sdk := openai.NewClient(opts...)
	params := openai.ChatCompletionNewParams{Model: c.Model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)}}
	var text strings.Builder
	if !c.Stream {
		completion, err := sdk.Chat.Completions.New(ctx, params)
		if err == nil && len(completion.Choices) > 0 {
			text.WriteString(completion.Choices[0].Message.Content)
		}
		return text.String(), err
	}
	stream := sdk.Chat.Completions.NewStreaming(ctx, params)
	defer stream.Close()
	for stream.Next() {
		if chunk := stream.Current(); len(chunk.Choices) > 0 {
			text.WriteString(chunk.Choices[0].Delta.Content)
		}
	}
	return text.String(), stream.Err()
}

// Answers reports whether who listens at addr answers a request of somebody who shows what conf says. In TLS 1.3 who is
// refused learns it when it reads. Somebody who does neither until ctx ends fails the test.
func Answers(ctx context.Context, t testing.TB, addr string, conf *tls.Config, request string) bool {
	t.Helper()
	conn, err := (&tls.Dialer{Config: conf}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte(request)); err != nil {
		return false
	}
	n, err := conn.Read(make([]byte, 1<<10))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%s neither answers nor hangs up", addr)
	}
	return n > 0
}
