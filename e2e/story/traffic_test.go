//go:build story

package story

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	anthropic "github.com/anthropics/anthropic-sdk-go/v2"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
)

// traffic is a client that calls four times a second, one call after the other, and counts what it has asked.
//
// Concurrency: calls may be read after stop.
type traffic struct {
	calls  int
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// steady starts it. A call that is not answered is the test's failure: users are to notice nothing.
func (s *stack) steady(call func(context.Context) error) *traffic {
	ctx, cancel := context.WithCancel(s.t.Context())
	f := &traffic{cancel: cancel}
	s.t.Cleanup(f.stop)
	f.wg.Go(func() {
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			f.calls++
			if err := call(s.t.Context()); err != nil && s.t.Context().Err() == nil { // not ctx: the last call ends well, too
				s.t.Errorf("call %d of a client = %v, want an answer", f.calls, err)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return f
}

// stop waits for the last call's answer. It may be called again.
func (f *traffic) stop() {
	f.cancel()
	f.wg.Wait()
}

// message streams an answer with Anthropic's SDK, which may not retry: nothing is to be hidden.
func (s *stack) message(ctx context.Context) error {
	sdk := anthropic.NewClient(anthropicoption.WithBaseURL(s.front), anthropicoption.WithAPIKey("a-clients-own"),
		anthropicoption.WithHTTPClient(http.DefaultClient), anthropicoption.WithMaxRetries(0))
	stream := sdk.Messages.NewStreaming(ctx, anthropic.MessageNewParams{Model: "m", MaxTokens: 100,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hello"))}})
	defer stream.Close()
	text := ""
	for stream.Next() {
		text += stream.Current().Delta.Text
	}
	return answered(text, stream.Err())
}

// completion asks for a whole answer with OpenAI's SDK, likewise.
func (s *stack) completion(ctx context.Context) error {
	sdk := openai.NewClient(openaioption.WithBaseURL(s.front+"/v1"), openaioption.WithAPIKey("a-clients-own"),
		openaioption.WithHTTPClient(http.DefaultClient), openaioption.WithMaxRetries(0))
	got, err := sdk.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{Model: "m",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")}})
	if err != nil || len(got.Choices) == 0 {
		return answered("", err)
	}
	return answered(got.Choices[0].Message.Content, nil)
}

func answered(text string, err error) error {
	if err == nil && text == "" {
		err = errors.New("an answer without a word")
	}
	return err
}
