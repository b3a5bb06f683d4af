package processor

import (
	"context"
	"net/http"
	"slices"
	"time"

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

// modes is the chain's ladder from index from up to the mode until; "" is its end.
func (a *attempt) modes(from int, until string) []string {
	all := a.chain.Degrade[from:]
	if i := slices.Index(all, until); i >= 0 {
		return all[:i]
	}
	return all
}

// instead is the part of the ladder that may answer instead of a failure v.
func (a *attempt) instead(v classify.Verdict) []string {
	from := 0
	switch {
	case v.Class == classify.RateLimited && a.chain.On.RateLimited == "queue":
		from = slices.Index(a.chain.Degrade, "queue")
	case a.try.Downshift: // what comes before has had its turn
		from = slices.Index(a.chain.Degrade, "downshift")
	}
	return a.modes(max(0, from), "")
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
		a.refused = "; " + err.Error()
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
	outcome := outcomeDegraded
	if a.mode = mode; mode == "" {
		outcome = outcomeFailed
	}
	a.explain(m)
	a.replace(ans, m)
	a.p.account(a, a.lastFailure(), outcome)
}

// ask is the request as the degraded modes want to know it.
func (a *attempt) ask() *degrade.Ask {
	return &degrade.Ask{
		Chain: a.chain, API: a.api, Path: provider.Kept(a.head.target), Endpoint: a.body.Asked(), Headers: a.head.kept(),
		Body: a.body.Plain(), Broken: a.body.Broken, Model: a.body.Model, Stream: a.body.Stream, Array: a.body.Array,
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
	return "understudy-" + a.head.exchange.ID
}

// retains says that the request is kept after it has gone to its target, as a degraded mode may need it.
func (a *attempt) retains() bool {
	return !a.chain.Observe && (a.degrades() || a.choice() && a.body.Size() <= keptWhole)
}

// degrades says that the chain has modes that need the request.
func (a *attempt) degrades() bool {
	return !a.run && (slices.Contains(a.chain.Degrade, "cache") || slices.Contains(a.chain.Degrade, "queue"))
}

// copies says that the answer which begins may be one for the cache.
func (a *attempt) copies() bool {
	w := &a.answer
	return a.degrades() && slices.Contains(a.chain.Degrade, "cache") && !a.try.Downshift && w.status == http.StatusOK &&
		w.contentEncoding == "" && !a.head.noStore && !a.body.Broken && !a.unknownTenant()
}

// collect copies a piece of the answer, as far as there is room: the cache is no reason to refuse anybody.
func (a *attempt) collect(p []byte) {
	n := int64(len(p))
	if a.copy.bytes+n > maxCopy || !a.reserve(n) {
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
	if a.copy.wanted && v.Class == classify.OK && v.Complete && a.copy.bytes > 0 {
		a.p.ladder.Keep(a.ask(), degrade.Good{ContentType: a.answer.contentType, Pieces: a.copy.pieces, Target: a.try.Target.Name})
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
