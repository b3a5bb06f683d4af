package processor

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"strconv"
	"time"

	"understudy/pkg/chain"
	"understudy/pkg/classify"
	"understudy/pkg/degrade"
	"understudy/pkg/provider"
)

const (
	// jobsPrefix is the path under which queued requests are asked for.
	jobsPrefix = "/jobs/"
	// ladderTime bounds what the degraded modes may take together: Envoy waits 15 s for an answer of ours.
	ladderTime = 8 * time.Second
	// maxCopy is the largest answer that is copied for the cache.
	maxCopy = 4 << 20
)

// keepsake is a copy of an answer on its way, for the cache.
type keepsake struct {
	wanted bool
	pieces [][]byte
	bytes  int64
}

// instead is the part of the ladder that may answer instead of a failure v; down says that a downshift rung has its turn
// behind it.
func (a *attempt) instead(v classify.Verdict) (modes []string, down bool) {
	all := a.chain.Degrade
	queue, downshift := slices.Index(all, "queue"), slices.Index(all, "downshift")
	switch {
	case a.try.Downshift: // what comes before has had its turn
		return all[downshift:], false
	case !a.queues(v):
		return all, false
	case queue < downshift && a.try.Downshifts(v):
		return all[queue:downshift], true
	}
	return all[queue:], false
}

// queues says that v leads to the queue, whatever targets are left.
func (a *attempt) queues(v classify.Verdict) bool {
	return v.Class == classify.RateLimited && a.chain.On.RateLimited == "queue"
}

// before is the part of the ladder before the downshift, unless a rate limit has led past it.
func (a *attempt) before() []string {
	if slices.ContainsFunc(a.past, func(was chain.Past) bool { return a.queues(was.Verdict) }) {
		return nil
	}
	return a.chain.Degrade[:slices.Index(a.chain.Degrade, "downshift")]
}

// climb answers with the first of the modes that can.
func (a *attempt) climb(modes []string) bool {
	if a.run || len(modes) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(a.ctx, ladderTime)
	defer cancel()
	ans, mode, err := a.p.ladder.Answer(ctx, a.ask(), modes)
	if err != nil {
		a.refused = err.Error()
		a.p.log.Warn("a degraded mode failed", "exchange", a.head.exchange.ID, "chain", a.chain.Name, "error", err.Error())
	}
	if ans.Status == 0 {
		return false
	}
	a.degraded(ans, mode)
	return true
}

// degraded answers with ans; without a mode it is a refusal of the queue's.
func (a *attempt) degraded(ans degrade.Answer, mode string) {
	m := &mutation{}
	if ans.Status >= 400 {
		m = a.hint()
	}
	outcome := OutcomeDegraded
	a.degrade = ans.Headers["x-llm-degraded"]
	if a.mode = mode; mode == "" {
		outcome = OutcomeFailed
	}
	a.explain(m)
	a.replace(ans, m)
	a.concludeOwn(ans)
	a.p.account(a, a.lastFailure(), a.unless(outcome))
}

// unless is outcome, unless the client has left while the degraded modes were asked.
func (a *attempt) unless(outcome string) string {
	if a.ctx.Err() != nil {
		return OutcomeCanceled
	}
	return outcome
}

// switchedOff answers for a chain that is off: no target failed, and no retry of the client's will find one. A job gets
// no answer, as what the switch says would be its result for good: it waits.
func (a *attempt) switchedOff() {
	if a.run {
		a.finish()
		a.refuse(http.StatusServiceUnavailable, "unavailable", "this chain is switched off")
		return
	}
	ans, m := degrade.Off(a.ask()), &mutation{}
	m.set("x-llm-attempts", strconv.Itoa(max(1, a.head.exchange.Attempt)))
	if ans.Status >= 400 {
		m.set("x-should-retry", "false")
	}
	a.mode = "off"
	a.replace(ans, m)
	a.p.account(a, classify.Verdict{}, OutcomeDegraded)
}

// ask is the request as the degraded modes want to know it.
func (a *attempt) ask() *degrade.Ask {
	return &degrade.Ask{
		Chain: a.chain, API: a.api, Path: provider.Kept(a.head.target), Endpoint: a.body.Asked(), Headers: a.head.kept(),
		Body: a.body.Plain(), Broken: a.body.Broken, Model: a.body.Model, Stream: a.body.Stream, Array: a.body.Array, Usage: a.body.Usage,
		Accepts: a.head.degrade, Tenant: a.head.tenant, Private: a.unknownTenant(), NoStore: a.head.noStore,
		Key: a.key(), Exchange: a.head.exchange.ID, Start: a.head.exchange.Start, Returns: a.plan.Returns(),
	}
}

// unknownTenant says that requests belong to tenants, and this one's is not known: it shares nothing with others.
func (a *attempt) unknownTenant() bool {
	t := a.book.Config.Tenant
	return (t.Header != "" || len(t.Metadata) > 0) && a.head.tenant == ""
}

// key names the exchange's work everywhere.
func (a *attempt) key() string {
	if a.head.idempotencyKey != "" {
		return a.head.idempotencyKey
	}
	return "understudy-" + cmp.Or(a.head.exchange.ID, rand.Text()) // without a front nobody may have named it
}

// shortKey is the key for the log, which no client can fill with one.
func (a *attempt) shortKey() string {
	key := a.key()
	return key[:min(len(key), 200)]
}

// retains says that the request is kept after it has gone to its target, as a degraded mode may need it.
func (a *attempt) retains() bool {
	return !a.observing() && (a.degrades() || a.choice() && a.body.Size() <= keptWhole)
}

// degrades says that the chain has modes that need the request.
func (a *attempt) degrades() bool {
	return !a.run && (slices.Contains(a.chain.Degrade, "cache") || slices.Contains(a.chain.Degrade, "queue"))
}

// copies says that the answer which begins may be one for the cache, or is for others under the same idempotency key.
func (a *attempt) copies() bool {
	return a.drill.fault == "" && (a.identity.claim != nil || a.cacheable())
}

func (a *attempt) cacheable() bool {
	w := &a.answer
	return a.degrades() && slices.Contains(a.chain.Degrade, "cache") && !a.try.Downshift && w.status == http.StatusOK &&
		w.contentEncoding == "" && !a.head.noStore && !a.body.Broken && !a.unknownTenant()
}

// collect copies a piece of the answer, as far as there is room: the cache is no reason to refuse anybody. What it keeps,
// the request too, gives way while half of the room is left.
func (a *attempt) collect(p []byte) {
	n := int64(len(p))
	if a.copy.bytes+n > maxCopy || a.p.inflight.Load() > a.book.Config.Server.MaxInflightBody/2 || !a.reserve(n) {
		a.forget()
		return
	}
	a.copy.pieces = append(a.copy.pieces, p)
	a.copy.bytes += n
}

// forget gives up the copy.
func (a *attempt) forget() {
	a.copy = keepsake{}
	if a.state == committed {
		a.body.Drop()
	}
}

// preserve gives the cache an answer that is good and whole.
func (a *attempt) preserve(v classify.Verdict) {
	if a.copy.wanted && v.Complete && v.Class == classify.OK && a.copy.bytes > 0 && a.cacheable() {
		a.p.ladder.Keep(a.ask(), degrade.Good{ContentType: a.answer.contentType, Pieces: a.copy.pieces, Target: a.try.Target.Name})
	}
	if a.identity.claim != nil {
		a.concludeServed(v, a.copy.wanted)
	}
	a.copy = keepsake{}
	a.body.Drop()
}

// job answers with what is known of a queued request.
func (a *attempt) job(id string) {
	if a.head.method != http.MethodGet {
		a.refuse(http.StatusMethodNotAllowed, "method_not_allowed", "a job is asked for with GET")
		return
	}
	if a.unknownTenant() {
		a.refuse(http.StatusNotFound, "not_found", "there is no such job")
		return
	}
	ctx, cancel := context.WithTimeout(a.ctx, ladderTime)
	defer cancel()
	a.reply(a.p.ladder.Job(ctx, id, a.head.tenant), &mutation{})
}
