package rehearse

import (
	"strings"
	"testing"

	"understudy/pkg/config"
)

func TestADrillCallsAChainAsItsClientsDo(t *testing.T) {
	cfg := parse(t, `
chains:
  sonnet: {match: [{path: /v1/messages, model: "claude-sonnet-*"}], targets: [a/x]}
  rest: {match: [{path: /v1/messages}, {path: /team/v1/messages}], targets: [a/x]}
  named: {select: header, targets: [o/x]}
  google: {match: [{path: /v1beta/models}], targets: [g/x]}
  hidden: {match: [{path: /v1/chat/completions, model: "gpt"}], targets: [o/x]}
  wider: {match: [{path: /v1/chat/completions}], targets: [o/x]}
  vectors: {match: [{path: /v1/embeddings}], targets: [o/x]}
`)
	for name, want := range map[string]string{
		"sonnet":  "POST /v1/messages; POST /v1/messages, streamed",
		"rest":    "POST /v1/messages; POST /v1/messages, streamed",
		"named":   "POST /v1/chat/completions; POST /v1/chat/completions, streamed; POST /v1/responses; POST /v1/responses, streamed",
		"google":  "POST /v1beta/models/pro:generateContent; POST /v1beta/models/pro:streamGenerateContent, streamed",
		"hidden":  "POST /v1/chat/completions; POST /v1/chat/completions, streamed",
		"wider":   "POST /v1/chat/completions; POST /v1/chat/completions, streamed",
		"vectors": "",
	} {
		ch := cfg.ChainNamed(name)
		var all []string
		for _, c := range calls(cfg, ch) {
			all = append(all, c.String())
			picked := ""
			if c.pick {
				picked = name
			}
			if got, ok := cfg.Chain(c.path, c.model, picked); !ok || got != ch {
				t.Errorf("%s of model %q reaches %v, want %s", c, c.model, got, name)
			}
			if ch.API == config.OpenAI && !strings.Contains(string(c.body()), `"model":"`) {
				t.Errorf("body of %s = %s, want a model", c, c.body())
			}
		}
		if got := strings.Join(all, "; "); got != want {
			t.Errorf("calls(%s) = %q, want %q", name, got, want)
		}
	}
}
