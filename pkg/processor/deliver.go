package processor

import (
	"bytes"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"understudy/pkg/chain"
	"understudy/pkg/classify"
	"understudy/pkg/config"
	"understudy/pkg/degrade"
)

// keep holds received bytes until they may be sent on.
func (a *attempt) keep(p []byte) {
	if len(p) == 0 {
		return
	}
	w := &a.answer
	w.held = append(w.held, p)
	a.count(int64(len(p)))
}

// count keeps the process's figures of held bytes.
func (a *attempt) count(n int64) {
	a.answer.heldBytes += n
	a.p.held.Add(n)
	a.p.inflight.Add(n)
}

func (a *attempt) dropHeld() {
	a.count(-a.answer.heldBytes)
	a.answer.held, a.answer.next = nil, 0
}

// commit lets the headers leave: from here on this answer is the client's. extra, when not nil, holds what the
// headers say beside who served.
func (a *attempt) commit(extra *mutation) {
	m := extra
	if m == nil {
		m = &mutation{}
	}
	a.label(m)
	a.reframe(m)
	a.send(responseHeaders(m))
	a.state, a.status, a.moments.committed = committed, a.answer.status, time.Now()
	a.answer.homing = a.homing()
	a.clock.released()
	if !a.copy.wanted { // no degraded mode can need the request any more
		a.forgetRequest()
	}
}

// forgetRequest lets go of what only another attempt would ask for: an answer may last for minutes.
func (a *attempt) forgetRequest() {
	a.body.Forget()
	a.head.header = nil
	if a.obstacles() == "" { // which the log line tells
		a.judged = nil
	}
}

// label says who served, after how many attempts and why not the primary.
func (a *attempt) label(m *mutation) {
	m.set("x-llm-target", a.try.Target.Name)
	m.set("x-llm-rung", strconv.Itoa(a.try.Rung))
	m.set("x-llm-attempts", strconv.Itoa(max(1, a.head.exchange.Attempt)))
	if a.try.Rung > 0 {
		a.because(m, a.try.Index)
	}
	if a.try.Downshift && !fails(a.answer.resp.Verdict()) {
		a.mode = "downshift"
		m.set("x-llm-degraded", a.mode)
	}
}

// forward sends on what may leave.
func (a *attempt) forward() {
	if a.state != committed {
		return
	}
	w := &a.answer
	if w.homing {
		a.noteHome()
	}
	safe := w.resp.Safe()
	if w.ended {
		safe = w.fed
	}
	a.release(safe-w.sent, w.ended && !w.trailers && !w.bodyless)
	if w.trailers {
		a.send(responseTrailers())
	}
}

// take removes at most n of the first held bytes. The list's memory is used again once it is empty.
func (w *answer) take(n int64) []byte {
	first := w.held[w.next]
	if int64(len(first)) > n {
		w.held[w.next] = first[n:]
		return first[:n]
	}
	w.held[w.next] = nil
	if w.next++; w.next == len(w.held) {
		w.held, w.next = w.held[:0], 0
	}
	return first
}

// release sends the first n held bytes, and with them the end of the body where end says so.
func (a *attempt) release(n int64, end bool) {
	w := &a.answer
	for n > 0 {
		chunk := w.take(min(n, maxChunk))
		size := int64(len(chunk))
		n -= size
		w.sent += size
		a.count(-size)
		chunk = a.reframed(chunk)
		if a.copy.wanted {
			a.collect(chunk)
		}
		if len(chunk) > 0 || end && n == 0 {
			a.sendBody(chunk, end && n == 0)
		}
		if end && n == 0 {
			return
		}
	}
	if end {
		a.sendBody(nil, true)
	}
}

// failOver gives the exchange back to the front, which tries the next slot.
func (a *attempt) failOver(v classify.Verdict) {
	a.report(v)
	a.p.memo.Add(a.head.exchange.ID, a.pastOf(v))
	a.replace(a.shown(v), a.next())
}

// next asks the front for another attempt, where there is a front that counts them: without one the answer is final.
func (a *attempt) next() *mutation {
	m := &mutation{}
	if a.head.exchange.Attempt > 0 {
		m.set("x-llm-failover", "next")
	}
	return m
}

// shown is what a client sees should Envoy not retry: an error in the dialect.
func (a *attempt) shown(v classify.Verdict) degrade.Answer {
	return degrade.Error(a.api, honest(v.Status), v.Class.String(), "the target failed ("+v.Class.String()+") and the next one is not tried")
}

// honest is a status that says failure. 507 is what Envoy says where this service is missing.
func honest(status int) int {
	if !isError(status) || status == http.StatusInsufficientStorage {
		return http.StatusServiceUnavailable
	}
	return status
}

// replace answers instead of the target.
func (a *attempt) replace(ans degrade.Answer, m *mutation) {
	a.finish()
	a.reply(ans, m)
}

// pastOf is this attempt as later ones may want to know it.
func (a *attempt) pastOf(v classify.Verdict) chain.Past {
	w := &a.answer
	past := chain.Past{Attempt: a.head.exchange.Attempt, Sent: a.moments.sent, Slot: a.try.Index, Rung: a.try.Rung,
		Target: a.try.Target.Name, Verdict: v, CostUSD: a.cost.bill.Amount.USD()}
	switch {
	case v.Phase == classify.PhaseTransport || v.Class == classify.Timeout || !fails(v):
	case isError(w.status):
		past.Answer = a.failure()
	case v.Class != classify.Truncated && v.Class != classify.Malformed:
		ans := degrade.Whole(a.api, v, w.resp.FailedEvent())
		past.Answer = chain.Answer{Status: ans.Status, ContentType: "application/json", Body: ans.Body}
	}
	return past
}

// heldBody is what has come of the answer's body and not been sent on.
func (a *attempt) heldBody() []byte { return bytes.Join(a.answer.held[a.answer.next:], nil) }

// isError says whether an answer's status tells clients of a failure: they would follow a redirect.
func isError(status int) bool { return status >= 400 && status <= 599 }

// returns says whether v is an answer for the caller, good or bad, rather than a failure of the chain.
func (a *attempt) returns(v classify.Verdict) bool {
	switch v.Class {
	case classify.Invalid, classify.ContextLength:
		return a.try.Rung == 0
	case classify.RateLimited:
		return a.chain.On.RateLimited == "return"
	}
	return !fails(v)
}

// last gives the final answer of an exchange whose attempt came to v, with no target after it.
func (a *attempt) last(v classify.Verdict) {
	if a.returns(v) {
		a.pass(v, a.capped(v))
		return
	}
	past := a.pastOf(v)
	a.past = append(slices.Clone(a.past), past)
	if v.Class != classify.ContextLength {
		modes, down := a.instead(v)
		switch {
		case a.climb(modes):
			a.report(v)
			return
		case down && !a.run:
			a.failOver(v)
			return
		}
	}
	hint := a.hint()
	tell, ok := chain.Telling(a.past)
	if ok && tell.Slot == past.Slot && isError(a.answer.status) && a.state == holding && a.refused == "" {
		a.pass(v, hint)
		return
	}
	a.report(v)
	a.show(tell, ok, hint)
}

// pass lets a target's own failing answer through as it came.
func (a *attempt) pass(v classify.Verdict, m *mutation) {
	if a.foreign() && isError(a.answer.status) && a.state == holding {
		if ans := a.failure(); !bytes.Equal(ans.Body, a.heldBody()) {
			a.tell(ans, v, m)
			return
		}
	}
	a.commit(m)
	if a.answer.ended {
		a.served(v)
	}
}

// spent is the answer of an exchange for which no attempt is left to make.
func (a *attempt) spent() {
	if a.climb(a.chain.Degrade) {
		return
	}
	tell, ok := chain.Telling(a.past)
	a.show(tell, ok, a.hint())
}

// lastFailure is what the log says of an exchange without an answer: the last that went wrong, as far as known.
func (a *attempt) lastFailure() classify.Verdict {
	if len(a.past) == 0 {
		return classify.Verdict{}
	}
	return a.past[len(a.past)-1].Verdict
}

// show answers with the most telling failure, or says that all targets failed.
func (a *attempt) show(tell chain.Past, ok bool, m *mutation) {
	a.explain(m)
	if !ok || a.refused != "" {
		ans := degrade.Error(a.api, http.StatusServiceUnavailable, "unavailable",
			clauses("all targets of this chain failed or are not available", a.obstacles(), a.refused))
		a.replace(ans, m)
		a.concludeOwn(ans)
	} else {
		m.set("x-llm-target", tell.Target)
		ans := degrade.Answer{Status: tell.Answer.Status, Body: tell.Answer.Body,
			Headers: map[string]string{"content-type": tell.Answer.ContentType}}
		if tell.Answer.ContentEncoding != "" {
			ans.Headers["content-encoding"] = tell.Answer.ContentEncoding
		}
		a.replace(ans, m)
		a.concludeOwn(ans)
	}
	a.p.account(a, a.lastFailure(), a.unless(OutcomeFailed))
}

// clauses makes a sentence of those that say something.
func clauses(all ...string) string {
	return strings.Join(slices.DeleteFunc(all, func(s string) bool { return s == "" }), "; ")
}

// explain says after how many attempts, and why, the chain has no answer.
func (a *attempt) explain(m *mutation) {
	m.set("x-llm-attempts", strconv.Itoa(max(1, a.head.exchange.Attempt)))
	switch {
	case a.try != nil:
		a.because(m, a.try.Index+1)
	case a.head.exchange.Attempt > 0:
		a.because(m, a.head.exchange.Attempt)
	default:
		a.because(m, math.MaxInt)
	}
}

// because says why the slots before index i did not answer, where that is known.
func (a *attempt) because(m *mutation, i int) {
	x := a.exchange()
	a.why = a.plan.Reason(x, i, a.past)
	if a.why == "" && x.Attempt > 1 { // the stream of the attempt before may have ended since this one began
		a.why = a.plan.Reason(x, i, a.p.memo.Of(x.ID))
	}
	if a.why != "" {
		m.set("x-llm-fallback-reason", a.why)
	}
}

// hint tells the client of a spent chain whether waiting helps, so that its retries do not multiply ours.
func (a *attempt) hint() *mutation {
	m := &mutation{}
	m.remove("retry-after", "retry-after-ms", "x-ms-retry-after-ms")
	h := a.plan.RetryHint(a.reopens(), a.book.Config.MaxRetryAfter)
	// A retry that has failed, too, is the last: each one more would be another attempt.
	failedAgain := a.head.clientRetries > 0 && len(a.past) > 0
	switch {
	case failedAgain || a.insists():
		m.set("x-should-retry", "false")
	case a.othersServe():
		m.remove("x-should-retry")
	case h.Stop:
		m.set("x-should-retry", "false")
	default:
		m.remove("x-should-retry")
		m.set("retry-after", strconv.Itoa(int(h.After/time.Second)))
	}
	return m
}

// othersServe says that one target alone was tried, as no front asks for more, and that one of the chain can serve now.
func (a *attempt) othersServe() bool {
	return a.head.exchange.Attempt <= 0 && a.try != nil && !a.plan.Returns().After(time.Now())
}

// insists says that the client's library has retried as often as it may.
func (a *attempt) insists() bool {
	n := a.chain.Retry.Client
	return n > 0 && a.head.clientRetries >= n
}

// capped leaves a returned answer as it is, unless it asks for a longer wait than clients are to be told.
func (a *attempt) capped(v classify.Verdict) *mutation {
	m := &mutation{}
	if v.RetryAfterMS > a.book.Config.MaxRetryAfter.Milliseconds() {
		m.remove("retry-after", "retry-after-ms", "x-ms-retry-after-ms")
		m.set("x-should-retry", "false")
	}
	return m
}

// cut ends a committed answer that died with v: in its dialect where a stream can say so, else by an aborted
// transfer; never by a clean end.
func (a *attempt) cut(v classify.Verdict) {
	w := &a.answer
	a.release(w.resp.Safe()-w.sent, false)
	if w.resp.Streaming() && !w.resp.Encoded() {
		a.sendBody(a.streamEnd(v), !w.trailers)
		if w.trailers {
			a.send(responseTrailers())
		}
	} else {
		a.send(immediate(a.shown(v), &mutation{}, "understudy_cut"))
	}
	a.finish()
	a.report(v)
	a.abandonKey()
	a.p.account(a, v, OutcomeFailed)
}

// streamEnd is the honest end of a stream, in the form that it has.
func (a *attempt) streamEnd(v classify.Verdict) []byte {
	w := &a.answer
	if a.api == classify.Gemini && !strings.HasPrefix(w.contentType, "text/event-stream") {
		return degrade.ArrayEnd(v, w.resp.FailedEvent(), w.sent > 0)
	}
	return degrade.StreamEnd(a.api, v, w.resp.FailedEvent(), w.resp.Events())
}

// tick acts on a deadline.
func (a *attempt) tick(now time.Time) {
	switch why := a.clock.ring(now); {
	case why == none:
	case why == minRate && !a.clock.slow(a.answer.resp.Content()):
		a.clock.window(now, a.answer.resp.Content())
	case a.observing():
		a.overdue()
	case why == waited && a.try != nil:
		try := a.try
		a.try, a.state = nil, uploading
		a.take(try)
	case why == waited:
		a.begin()
	case why == holdTime:
		a.holdOver()
	default:
		a.late(why)
	}
}

func (a *attempt) holdOver() {
	if a.chain.Commit == config.CommitComplete {
		a.failed(a.abort(classify.Timeout, string(holdTime)))
		return
	}
	a.commit(nil)
	a.forward()
}

func (a *attempt) late(why cause) {
	if a.state == waiting && a.identity.listens { // the other one runs on: neither a target nor a degraded mode may run it again
		a.refuseKey(http.StatusServiceUnavailable, "the request that runs under this Idempotency-Key has not ended yet")
		return
	}
	if a.state == waiting {
		a.unwait()
		a.spent()
		return
	}
	class := classify.Timeout
	if why == total && a.clock.stalled > a.clock.idle {
		class = classify.Canceled // the client read too slowly, which is no failure of the target
	}
	v := a.abort(class, string(why))
	switch {
	case a.state == committed:
		a.cut(v)
	case why == total:
		a.report(v)
		a.last(v)
	default:
		a.failed(v)
	}
}

// drain ends the attempt because this process ends: the front tries elsewhere, or the stream ends honestly.
func (a *attempt) drain() {
	switch {
	case a.state == finished, a.state == passing, a.observing():
	case a.state == committed:
		a.cut(a.abort(classify.Canceled, "draining"))
	case a.state == sent, a.state == holding:
		v := a.abort(classify.Canceled, "draining")
		a.leave()
		a.report(v)
	default:
		a.leave()
	}
}

// unwait ends the wait for a rate limit: nothing is tried.
func (a *attempt) unwait() {
	if a.state == waiting && a.try != nil {
		a.try.Release()
		a.try = nil
	}
}

func (a *attempt) leave() {
	a.unwait()
	a.finish()
	a.refuseWith(a.next(), http.StatusServiceUnavailable, "unavailable", "the failover service is restarting")
}

func (a *attempt) due() time.Time { return a.clock.due() }
