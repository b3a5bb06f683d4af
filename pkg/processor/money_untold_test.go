package processor

import (
	"strings"
	"testing"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"understudy/pkg/chain/budget"
)

// retried opens the first attempt of an exchange that is a client library's n-th retry.
func (b *bench) retried(exchange, n string) (*call, []*extproc.ProcessingRequest) {
	messages := readRecorded(b.t, "stream")
	h := messages[0].GetRequestHeaders().Headers
	setHeader(h, "x-envoy-attempt-count", "1")
	setHeader(h, "x-llm-exchange", exchange)
	setHeader(h, "x-stainless-retry-count", n)
	c := b.open()
	c.tell(messages[:2]...)
	return c, messages[2:]
}

// fails has an attempt's target be rate-limited for a second.
func (c *call) fails(rest []*extproc.ProcessingRequest) string {
	headers := rest[0]
	setHeader(headers.GetResponseHeaders().Headers, ":status", "429")
	setHeader(headers.GetResponseHeaders().Headers, "retry-after", "1")
	setHeader(headers.GetResponseHeaders().Headers, "content-type", "application/json")
	c.tell(headers)
	c.body(`{"type":"error","error":{"type":"rate_limit_error","message":"Slow down"}}`, true)
	return c.heard()
}

func TestAClientsRetryOfADeadChain(t *testing.T) {
	for _, row := range []struct {
		name, settings, retry string
		want                  []string
	}{
		{"the retry that fails, too, is told to come again", "", "1", []string{"request body x-llm-cluster=llm-a", "headers x-should-retry=false"}},
		{"the n-th retry of a chain that is spent is tried", "retry: {client: 2}", "2", []string{"immediate 503", "x-should-retry=false"}},
		{"a retry before the n-th is refused", "retry: {client: 2}", "1", []string{"request body x-llm-cluster=llm-a"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			in(t, row.settings, func(b *bench) {
				c, rest := b.attempt("stream", "x1", 1)
				c.fails(rest)
				c.hangUp()
				c, rest = b.attempt("stream", "x1", 2)
				c.fails(rest)
				c.hangUp()

				time.Sleep(1100 * time.Millisecond)
				c, rest = b.retried("x2", row.retry)
				got := c.heard()
				if strings.Contains(got, "request body") {
					got += c.fails(rest)
				}
				contains(t, "the retry", got, row.want...)
				c.hangUp()
			})
		})
	}
}

const pricedYAML = `
providers:
  a: {api: openai, endpoint: "http://127.0.0.1:1", auth: {bearer: "env:PROCESSOR_TEST_KEY"}}
targets:
  a/gpt: {provider: a, model: gpt-5.1, price: {input: 10, output: 1}}
chains:
  chat:
    match: [{path: /v1/chat/completions}]
    targets: [a/gpt]
`

// A provider bills the prompt of an answer that was cut, and a chain without a budget counts it.
func TestThePromptOfACutAnswerIsBilledWithoutABudget(t *testing.T) {
	inYAML(t, pricedYAML, func(b *bench) {
		money := &Money{}
		b.p.Spend(money)
		messages := readRecorded(b.t, "stream")
		h := messages[0].GetRequestHeaders().Headers
		setHeader(h, ":path", "/v1/chat/completions")
		messages[1].GetRequestBody().Body = []byte(`{"model":"m","stream":true,"messages":[{"role":"user","content":"` + strings.Repeat("word ", 800) + `"}]}`)
		setHeader(h, "content-length", "")
		c := b.open()
		c.tell(messages[:3]...)
		c.body("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello\"}}]}\n\n", false)
		c.body("", true)
		c.hangUp()
		time.Sleep(endWait)
		spent := 0.0
		money.Spend.Each(func(_, _ string, sum budget.Sum) { spent += sum.Total.USD() })
		if spent < 0.0100 || spent > 0.0103 {
			t.Errorf("the attempt cost $ %f, want $ 0.0102 for a prompt of some 1,020 tokens", spent)
		}
	})
}
