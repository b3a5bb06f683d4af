package processor

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"understudy/pkg/provider/credential"
)

const signedYAML = `
providers:
  bedrock: {api: anthropic, platform: bedrock, region: us-east-1, auth: {aws: default}}
  anthropic: {api: anthropic, endpoint: "http://127.0.0.1:1", auth: {header: x-api-key, secret: "env:PROCESSOR_TEST_KEY"}}
targets:
  bedrock/opus: {provider: bedrock, model: "arn:aws:bedrock:us-east-1:1:inference-profile/ü.opus", model_family: opus}
  anthropic/opus: {provider: anthropic, model: opus}
chains:
  alone: {match: [{path: /v1/messages}], targets: [bedrock/opus]}
  several: {match: [{path: /several/v1/messages}], targets: [bedrock/opus, anthropic/opus]}
`

func signed(t *testing.T, f func(b *bench)) {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "a secret of AWS")
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	inYAML(t, signedYAML, func(b *bench) {
		cfg := b.p.Book().Config
		creds := credential.New(cfg, nil, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(b.t.Context())
		creds.Start(ctx)
		synctest.Wait()
		b.p.Use(cfg, creds)
		f(b)
		cancel()
		creds.Stop()
	})
}

const refusal = `{"message":"Signature expired"}`

// refused is a call that AWS answers as it does when a clock is an hour behind its own.
func refused(c *seen) {
	c.answers(403, []string{"content-type", "application/json", "x-amzn-errortype", "InvalidSignatureException",
		"date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)}, refusal)
}

// hour is the hour of the signature's time.
func (s *seen) hour(t *testing.T) string {
	t.Helper()
	at := valuesOf(s.told[len(s.told)-1].GetRequestBody().GetResponse().GetHeaderMutation())["x-amz-date"]
	when, err := time.Parse("20060102T150405Z", at)
	if err != nil {
		t.Errorf("x-amz-date = %q: %v", at, err)
	}
	return when.Sub(time.Now().Truncate(time.Second)).Truncate(time.Hour).String()
}

func TestAWrongClockIsCorrectedAndTheCallMadeAgain(t *testing.T) {
	signed(t, func(b *bench) {
		c := b.ask(1, "POST", "/v1/messages?beta=true", streamed)
		if where, _ := c.sent(); !strings.HasPrefix(where, "llm-bedrock /model/arn:aws:bedrock:us-east-1:1:inference-profile%2F%C3%BC.opus/invoke-with-response-stream") || c.hour(t) != "0s" {
			t.Errorf("attempt 1 goes to %q at %s", where, c.hour(t))
		}
		refused(c)
		if status, set, body, _ := c.got(); set["x-llm-failover"] != "next" || status != 403 || strings.Contains(body, "secret") {
			t.Errorf("after a wrong clock Envoy hears %d %v %s, want another attempt", status, set, body)
		}
		c.hangUp()
		c = b.ask(2, "POST", "/v1/messages", streamed)
		if where, _ := c.sent(); !strings.HasPrefix(where, "llm-bedrock ") || c.hour(t) != "1h0m0s" {
			t.Errorf("attempt 2 goes to %q at %s, want Bedrock by its own clock", where, c.hour(t))
		}
		refused(c)
		if _, set, _, _ := c.got(); set["x-llm-failover"] != "" {
			t.Errorf("a second refusal has Envoy hear %v, want the last word", set)
		}
		c.hangUp()
	})
}

func TestAWrongClockIsCorrectedWithoutAFront(t *testing.T) {
	signed(t, func(b *bench) {
		for _, want := range []string{"0s", "1h0m0s"} {
			c := b.ask(0, "POST", "/v1/messages", streamed)
			if c.sent(); c.hour(t) != want {
				t.Errorf("a call is signed at %s, want %s", c.hour(t), want)
			}
			refused(c)
			if _, set, _, _ := c.got(); set["x-llm-failover"] != "" {
				t.Errorf("without a front Envoy hears %v, want the last word", set)
			}
			c.hangUp()
		}
	})
}

func TestAWrongClockAmongSeveralTargetsCostsNoAnswer(t *testing.T) {
	signed(t, func(b *bench) {
		c := b.ask(1, "POST", "/several/v1/messages", streamed)
		refused(c)
		c.hangUp()
		c = b.ask(2, "POST", "/several/v1/messages", streamed)
		where, removed := c.sent()
		if !strings.HasPrefix(where, "llm-anthropic ") {
			t.Errorf("attempt 2 goes to %q, want the next target", where)
		}
		for _, name := range []string{"x-amz-date", "x-amz-security-token", "x-amz-content-sha256", "authorization"} {
			if !slices.Contains(removed, name) {
				t.Errorf("attempt 2 is sent without %v, want %s among them", removed, name)
			}
		}
		c.hangUp()
	})
}
