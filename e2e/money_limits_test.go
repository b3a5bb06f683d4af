//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRateLimitsAndUsageAreToldAndKept(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "access.log")
	seen := chain{name: "seen", api: "anthropic", on: []string{"a", "b"}, breaker: sturdy, prices: map[string]filePrice{"a": dearOutput, "b": dearOutput}}
	s := startStack(t, plan{
		chains: []chain{seen, {name: "shaped", api: "openai", on: []string{"a", "b"}}},
		edit: func(f *file) {
			organized(f)
			p := f.Providers["a-openai"]
			p.Shape = map[string]any{"max_wait": "3s"}
			f.Providers["a-openai"] = p
		},
		bootstrap: func(boot map[string]any) { logged(boot, log) },
	})
	t.Run("a request meets a rate limit that was told before", func(t *testing.T) { shapes(t, s) })
	t.Run("the access log does not tell what was used", func(t *testing.T) { tellsUsage(t, s, log) })
}

// shapes: the provider says that nothing is left for 2 s, which is waited out; and for a minute, which is not.
func shapes(t *testing.T, s *Stack) {
	of := func(script string) answer {
		return s.raw(within(t, patience), t, call{path: chats, chain: "shaped", script: script, id: t.Name()})
	}
	for i, want := range []string{"shaped/a", "shaped/a", "shaped/b"} {
		a := of("a=ok limits=0/1/2s, ok limits=0/1/1m; b=ok")
		if a.status != 200 || a.header.Get("x-llm-target") != want {
			t.Fatalf("request %d got %.300s, want an answer of %s", i, a.whole(), want)
		}
	}
	s.calls(t, t.Name(), "a:2 b:1")
	all := s.providers["a"].Requests(t.Name())
	if held := all[1].At.Sub(all[0].Ended); held < 1500*time.Millisecond {
		t.Errorf("the second request came %s after the answer, want it held back for the 2 s that were told", held)
	}
}

// line is a line of the access log.
type line struct {
	Target, Class string
	Total         float64
	Cost          float64
	All           map[string]any
}

func tellsUsage(t *testing.T, s *Stack, log string) {
	for _, c := range []call{
		{script: "a=529; b=ok usage=100/50/20/10"},
		{script: "a=ok usage=100/50/20/10", stream: true},
	} {
		c.path, c.chain = messages, "seen"
		c.header = map[string]string{"x-org": "acme-corp", "idempotency-key": "the-work-of-somebody"}
		if a := s.raw(within(t, patience), t, c); a.status != 200 {
			t.Fatalf("the client got %.300s, want an answer", a.whole())
		}
	}
	s.survives(t)
	s.envoy.stop(5 * time.Second) // it writes its log now
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for entry := range strings.Lines(string(text)) {
		var l line
		if err := json.Unmarshal([]byte(entry), &l); err != nil {
			t.Fatalf("the log has a line %s: %v", entry, err)
		}
		if strings.HasPrefix(l.Target, "seen/") {
			got = append(got, fmt.Sprintf("%s %s %v tokens $ %v", l.Target, l.Class, l.Total, l.Cost))
			if l.All["output_tokens"] == nil || l.All["rung"] == nil {
				t.Errorf("the log has %v, want output_tokens and rung, too", l.All)
			}
		}
	}
	want := []string{"seen/a overloaded 0 tokens $ 0", "seen/b ok 180 tokens $ 0.05", "seen/a ok 180 tokens $ 0.05"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the log says %q, want %q\n%s", got, want, text)
	}
	for _, secret := range []string{"acme", "the-work-of-somebody", key("a-anthropic")} {
		if strings.Contains(string(text), secret) {
			t.Errorf("the log tells %q:\n%s", secret, text)
		}
	}
}

// logged adds a file access log to the hop, which is where the service speaks.
func logged(boot map[string]any, path string) {
	of := func(name string) string { return "%DYNAMIC_METADATA(understudy" + name + ")%" }
	file := map[string]any{"name": "file", "typed_config": map[string]any{
		"@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog", "path": path,
		"log_format": map[string]any{"json_format": map[string]any{
			"target": of(":target"), "class": of(":class"), "total": of(":total_tokens"), "cost": of(":cost_usd"), "all": of(""),
		}},
	}}
	for _, l := range boot["static_resources"].(map[string]any)["listeners"].([]any) {
		for _, chain := range l.(map[string]any)["filter_chains"].([]any) {
			for _, filter := range chain.(map[string]any)["filters"].([]any) {
				manager := filter.(map[string]any)["typed_config"].(map[string]any)
				if list, ok := manager["access_log"].([]any); ok && strings.Contains(fmt.Sprint(manager["http_filters"]), "ExternalProcessor") {
					manager["access_log"] = append(list, file)
				}
			}
		}
	}
}
