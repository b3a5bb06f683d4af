package processor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"understudy/pkg/classify"
	"understudy/pkg/degrade"
	"understudy/pkg/once"
)

const (
	// claimTime bounds one word with the store about an idempotency key.
	claimTime = 2 * time.Second
	// claimMargin is how long a claim outlives its exchange's deadline: what comes after the last answer.
	claimMargin = 30 * time.Second
	// waitMost is the longest that Envoy can be told to wait: its max_message_timeout. A longer one it would ignore.
	waitMost = time.Hour
	// endTime bounds the end of a claim, in the background.
	endTime = 10 * time.Second
)

// identity is what an attempt knows of the idempotency key that its exchange runs under.
type identity struct {
	claim   *once.Claim // nil: the key is nobody's business
	listens bool        // another exchange runs under the key, and is waited for
	passed  bool        // the key has been looked at
}

// claims looks at the request's idempotency key, where its chain promises one execution for each, and says whether the
// attempt is to go on. What a marked drill request came to is not to be repeated to anybody, nor is a client to wait for it.
func (a *attempt) claims() bool {
	id := &a.identity
	if a.p.once == nil || a.chain.Idempotency <= 0 || a.head.idempotencyKey == "" || a.run || a.drill.marked || id.passed || a.unknownTenant() {
		return true
	}
	ctx, cancel := context.WithTimeout(a.ctx, claimTime)
	defer cancel()
	c, err := a.p.once.Claim(ctx, once.Request{
		Tenant: a.head.tenant, Chain: a.chain.Name, Key: a.head.idempotencyKey, Digest: a.question(),
		Exchange: a.head.exchange.ID, Life: time.Until(a.clock.total) + claimMargin,
	})
	switch {
	case errors.Is(err, once.ErrTooLarge):
		a.refuseKey(http.StatusConflict, "the answer under this Idempotency-Key was too large to keep")
	case errors.Is(err, once.ErrBusy):
		a.refuseKey(http.StatusServiceUnavailable, "too many requests wait under this Idempotency-Key")
	case err != nil: // without the store the request goes on without the guarantee
		a.p.log.Warn("idempotency is not kept", "exchange", a.head.exchange.ID, "chain", a.chain.Name, "error", err.Error())
		id.claim, id.passed = c, true
		return true
	case c.Outcome == once.Mine:
		id.claim, id.passed = c, true
		return true
	case c.Outcome == once.Conflict:
		a.refuseKey(http.StatusUnprocessableEntity, "this Idempotency-Key was used for another request")
	case c.Outcome == once.Finished:
		a.repeat(c.Answer)
	default:
		a.listen(c)
	}
	return false
}

// question is the same for the same request only: what is asked, and the headers that say how it is to be read.
func (a *attempt) question() string {
	h := sha256.New()
	for _, part := range []string{a.head.target, a.head.header.Get("anthropic-version"), strings.Join(betas(a.head.header), ",")} {
		fmt.Fprintf(h, "%q ", part)
	}
	h.Write(a.body.Plain())
	return hex.EncodeToString(h.Sum(nil))
}

func betas(h http.Header) []string {
	return slices.Concat(h.Values("anthropic-beta"), h.Values("openai-beta"))
}

// listen waits for the exchange that runs under the key. Envoy is told to wait as long.
func (a *attempt) listen(c *once.Claim) {
	a.identity.listens = true
	ctx := a.ctx
	go func() {
		answer, err := c.Wait(ctx)
		a.interrupt(func() { a.hear(answer, err) })
	}()
	a.state = waiting
	left := max(time.Until(a.clock.total), time.Second)
	a.send(&extproc.ProcessingResponse{OverrideMessageTimeout: durationpb.New(min(left+claimMargin, waitMost))})
}

// hear acts on what the exchange that was waited for came to.
func (a *attempt) hear(answer once.Answer, err error) {
	a.identity.listens = false
	if a.state != waiting || a.ctx.Err() != nil { // a client that has left has no turn
		return
	}
	a.state = uploading
	switch {
	case err == nil:
		a.repeat(answer)
	case errors.Is(err, once.ErrTooLarge):
		a.refuseKey(http.StatusConflict, "the answer under this Idempotency-Key was too large to keep")
	case errors.Is(err, once.ErrBusy):
		a.refuseKey(http.StatusServiceUnavailable, "too many requests wait under this Idempotency-Key")
	default: // the other one ended without an answer: this one's turn
		a.cost.since = time.Time{} // Envoy has been told to wait longer
		a.begin()
	}
}

// refuseKey answers a request that its idempotency key keeps from running.
func (a *attempt) refuseKey(status int, message string) {
	m := &mutation{}
	if status < 500 { // SDKs retry a 409, too
		m.set("x-should-retry", "false")
	} else {
		m.set("retry-after", "1")
	}
	a.refuseWith(m, status, "idempotency", message)
	a.p.account(a, classify.Verdict{Class: classify.Invalid}, OutcomeFailed)
}

// repeat answers with what another exchange under the key got.
func (a *attempt) repeat(ans once.Answer) {
	headers := map[string]string{"content-type": ans.ContentType, "x-llm-replayed": "true"}
	for name, value := range ans.Headers {
		headers[name] = value
	}
	m, outcome := &mutation{}, OutcomeServed
	if ans.Status >= 400 { // retries of those who waited would multiply, too
		m, outcome = a.hint(), OutcomeFailed
	}
	a.replay = true
	a.finish()
	a.reply(degrade.Answer{Status: ans.Status, Body: ans.Body, Headers: headers}, m)
	a.p.account(a, classify.Verdict{}, outcome)
}

// conclude ends the exchange's claim with the answer that the client gets; good says that it may be given again later.
// It is the end of the exchange, whatever the client has read of it.
func (a *attempt) conclude(ans once.Answer, good bool) {
	c := a.identity.claim
	if c == nil {
		return
	}
	a.identity.claim = nil
	window, size := a.chain.Idempotency, int64(len(ans.Body))
	a.p.inflight.Add(size) // until a slow store has it
	a.p.later(a.ctx, func(ctx context.Context) {
		defer a.p.inflight.Add(-size)
		ctx, cancel := context.WithTimeout(ctx, endTime)
		defer cancel()
		err := error(nil)
		if good {
			err = c.Finish(ctx, ans, window)
		} else {
			err = c.Fail(ctx, ans)
		}
		if err != nil && !errors.Is(err, once.ErrLost) {
			a.p.log.Warn("an answer is not kept for its idempotency key", "chain", a.chain.Name, "error", err.Error())
		}
	})
}

// concludeServed ends the claim with a target's answer.
func (a *attempt) concludeServed(v classify.Verdict, whole bool) {
	good := v.Class == classify.OK || v.Class == classify.Refusal || v.Class == classify.Filtered
	ans := once.Answer{Status: a.answer.status, ContentType: a.answer.contentType, Headers: a.told(), TooLarge: !whole}
	if whole {
		ans.Body = bytes.Join(a.copy.pieces, nil)
	}
	a.conclude(ans, good)
}

// concludeOwn ends the claim with an answer of ours. It is kept where it promises that the request will be run.
func (a *attempt) concludeOwn(ans degrade.Answer) {
	kind := ans.Headers["content-type"]
	if kind == "" {
		kind = "application/json"
	}
	queued := ans.Status == http.StatusAccepted
	a.conclude(once.Answer{Status: ans.Status, ContentType: kind, Headers: ans.Headers, Body: ans.Body}, queued)
}

// abandonKey frees the key of an exchange that ends without an answer. What another attempt may still answer is not
// ended: its claim is the exchange's too.
func (a *attempt) abandonKey() {
	c := a.identity.claim
	if c == nil {
		return
	}
	a.identity.claim = nil
	a.p.later(a.ctx, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, endTime)
		defer cancel()
		_ = c.Abandon(ctx) // else it ends with its life
	})
}

// told are the headers of an answer that are given again with it.
func (a *attempt) told() map[string]string {
	headers := map[string]string{"x-llm-target": a.try.Target.Name}
	if a.mode != "" {
		headers["x-llm-degraded"] = a.mode
	}
	if a.answer.contentEncoding != "" {
		headers["content-encoding"] = a.answer.contentEncoding
	}
	return headers
}
