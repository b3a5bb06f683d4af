//go:build compose

package compose

import (
	"fmt"
	"strings"

	"understudy/internal/stage"
)

// clients are the official SDKs, in every way that the stack's two chains are called.
var clients = map[string]stage.Call{
	"anthropic":           {API: "anthropic", URL: front, Model: "claude-sonnet-5"},
	"anthropic, streamed": {API: "anthropic", URL: front, Model: "claude-sonnet-5", Stream: true},
	"openai":              {API: "openai", URL: front, Model: "gpt-5.1"},
	"openai, streamed":    {API: "openai", URL: front, Model: "gpt-5.1", Stream: true},
}

// by is nil when a is a good answer of the provider at that rung.
func by(a stage.Answer, provider, rung string) error {
	if a.Err != nil {
		return a.Err
	}
	if !strings.Contains(a.Text, "["+provider+" ") || a.Header.Get("x-llm-rung") != rung {
		return fmt.Errorf("answer = %q of rung %q, target %q; want one of %s at rung %s", a.Text, a.Header.Get("x-llm-rung"), a.Header.Get("x-llm-target"), provider, rung)
	}
	return nil
}
