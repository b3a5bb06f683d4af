package degrade

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"go.uber.org/goleak"

	"understudy/pkg/classify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sdks are the official clients of a server that always gives the same answer.
type sdks struct {
	ctx       context.Context
	anthropic anthropic.Client
	openai    openai.Client
}

func newSDKs(t *testing.T, status int, contentType string, body []byte) *sdks {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("content-type", contentType)
		w.WriteHeader(status)
		_, _ = w.Write(body)
	}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return &sdks{
		ctx: ctx,
		anthropic: anthropic.NewClient(anthropicoption.WithBaseURL(server.URL), anthropicoption.WithAPIKey("k"),
			anthropicoption.WithMaxRetries(0), anthropicoption.WithHTTPClient(server.Client())),
		openai: openai.NewClient(openaioption.WithBaseURL(server.URL+"/v1"), openaioption.WithAPIKey("k"),
			openaioption.WithMaxRetries(0), openaioption.WithHTTPClient(server.Client())),
	}
}

var (
	message = anthropic.MessageNewParams{Model: "m", MaxTokens: 1,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hi"))}}
	completion = openai.ChatCompletionNewParams{Model: "m",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")}}
	response = responses.ResponseNewParams{Model: "m",
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("hi")}}
)

// ask makes a call that is not streamed.
func (s *sdks) ask(api classify.API) (err error) {
	switch api {
	case classify.AnthropicMessages:
		_, err = s.anthropic.Messages.New(s.ctx, message)
	case classify.OpenAIResponses:
		_, err = s.openai.Responses.New(s.ctx, response)
	default:
		_, err = s.openai.Chat.Completions.New(s.ctx, completion)
	}
	return err
}

// events is what all SDKs' streams have.
type events interface {
	Next() bool
	Err() error
	Close() error
}

// listen reads a stream to its end; n counts the events that the caller of the SDK sees.
func (s *sdks) listen(api classify.API) (n int, err error) {
	var stream events
	switch api {
	case classify.AnthropicMessages:
		stream = s.anthropic.Messages.NewStreaming(s.ctx, message)
	case classify.OpenAIResponses:
		stream = s.openai.Responses.NewStreaming(s.ctx, response)
	default:
		stream = s.openai.Chat.Completions.NewStreaming(s.ctx, completion)
	}
	for stream.Next() {
		n++
	}
	err = stream.Err()
	_ = stream.Close()
	return n, err
}
