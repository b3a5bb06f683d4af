//go:build compose

package compose

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	anthropic "github.com/anthropics/anthropic-sdk-go/v2"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
)

// answer is what an official SDK made of a call.
type answer struct {
	text   string
	header http.Header
	err    error
}

// clients are the official SDKs, in every way that the stack's two chains are called. None retries by itself.
var clients = map[string]func(ctx context.Context, question string) answer{
	"anthropic":           message,
	"anthropic, streamed": messageStream,
	"openai":              chat,
	"openai, streamed":    chatStream,
}

func anthropicSDK(resp **http.Response) anthropic.Client {
	return anthropic.NewClient(anthropicoption.WithBaseURL(front), anthropicoption.WithAPIKey("the clients' own"),
		anthropicoption.WithMaxRetries(0), anthropicoption.WithResponseInto(resp))
}

func asked(question string) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{Model: "claude-sonnet-5", MaxTokens: 100,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(question))}}
}

func message(ctx context.Context, question string) answer {
	var resp *http.Response
	sdk := anthropicSDK(&resp)
	m, err := sdk.Messages.New(ctx, asked(question))
	a := answer{header: headers(resp), err: err}
	if err == nil && len(m.Content) > 0 {
		a.text = m.Content[0].Text
	}
	return a
}

func messageStream(ctx context.Context, question string) answer {
	var resp *http.Response
	sdk := anthropicSDK(&resp)
	stream := sdk.Messages.NewStreaming(ctx, asked(question))
	var text strings.Builder
	for stream.Next() {
		text.WriteString(stream.Current().Delta.Text)
	}
	return answer{text.String(), headers(resp), stream.Err()}
}

func openaiSDK(resp **http.Response) openai.Client {
	return openai.NewClient(openaioption.WithBaseURL(front+"/v1"), openaioption.WithAPIKey("the clients' own"),
		openaioption.WithMaxRetries(0), openaioption.WithResponseInto(resp))
}

func said(question string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: "gpt-5.1", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(question)}}
}

func chat(ctx context.Context, question string) answer {
	var resp *http.Response
	sdk := openaiSDK(&resp)
	c, err := sdk.Chat.Completions.New(ctx, said(question))
	a := answer{header: headers(resp), err: err}
	if err == nil && len(c.Choices) > 0 {
		a.text = c.Choices[0].Message.Content
	}
	return a
}

func chatStream(ctx context.Context, question string) answer {
	var resp *http.Response
	sdk := openaiSDK(&resp)
	stream := sdk.Chat.Completions.NewStreaming(ctx, said(question))
	var text strings.Builder
	for stream.Next() {
		for _, c := range stream.Current().Choices {
			text.WriteString(c.Delta.Content)
		}
	}
	return answer{text.String(), headers(resp), stream.Err()}
}

func headers(resp *http.Response) http.Header {
	if resp == nil {
		return http.Header{}
	}
	return resp.Header
}

// by is nil when a is a good answer of the provider at that rung.
func (a answer) by(provider, rung string) error {
	if a.err != nil {
		return a.err
	}
	if !strings.Contains(a.text, "["+provider+" ") || a.header.Get("x-llm-rung") != rung {
		return fmt.Errorf("answer = %q of rung %q, target %q; want one of %s at rung %s", a.text, a.header.Get("x-llm-rung"), a.header.Get("x-llm-target"), provider, rung)
	}
	return nil
}
