package processor

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"understudy/pkg/chain"
	"understudy/pkg/config"
	"understudy/pkg/degrade"
	"understudy/pkg/provider"
)

func (a *attempt) requestHeaders(h *extproc.HttpHeaders) {
	a.head = readHead(h.Headers)
	if a.unheard {
		a.overhear()
	}
	a.join()
	path := a.head.path()
	cfg := a.book.Config
	standard := ""
	a.api, standard = provider.Endpoint(path)
	a.head.conversations = conversations(cfg, h.Headers)
	switch {
	case a.head.internal != "":
		a.internal(h.EndOfStream)
	case cfg.Jobs.Expose && strings.HasPrefix(path, jobsPrefix):
		a.job(strings.TrimPrefix(path, jobsPrefix))
	case a.head.method == http.MethodPost && standard != "" && a.protected(path):
		a.upload(h.EndOfStream)
	case a.stored():
	default:
		if p, ok := cfg.Passthru(path); ok {
			a.passthrough(p)
			return
		}
		a.refuse(http.StatusNotFound, "not_found", "no chain and no passthrough of this gateway serves "+a.head.method+" on this path")
	}
}

func (a *attempt) protected(path string) bool {
	_, ok := a.book.Config.Chain(path, "", a.head.chain)
	return ok
}

// upload asks for the body, unless it is already known to be too much.
func (a *attempt) upload(noBody bool) {
	limit := a.book.Config.Server.MaxBody
	switch {
	case noBody:
		a.state, a.noBody = uploading, true
		a.requestBody(nil)
	case a.head.length > limit:
		a.tooLarge()
	case a.head.length > 0 && !a.reserve(a.head.length):
		a.overloaded()
	default:
		a.state = uploading
		a.send(goOn())
	}
}

func (a *attempt) tooLarge() {
	a.refuse(http.StatusRequestEntityTooLarge, "request_too_large",
		"the request body is larger than "+strconv.FormatInt(a.book.Config.Server.MaxBody, 10)+" bytes")
}

func (a *attempt) overloaded() {
	m := &mutation{}
	m.set("retry-after", "1")
	a.refuseWith(m, http.StatusServiceUnavailable, "overloaded", "too many request bodies are in flight; retry later")
}

// refuse answers a request that goes to no target.
func (a *attempt) refuse(status int, code, message string) {
	a.refuseWith(&mutation{}, status, code, message)
}

func (a *attempt) refuseWith(m *mutation, status int, code, message string) {
	a.reply(degrade.Error(a.api, status, code, message), m)
}

// reply is an answer of ours, final unless m says otherwise. No deadline is left that could give another.
func (a *attempt) reply(ans degrade.Answer, m *mutation) {
	a.state = finished
	a.clock.stop()
	a.status = ans.Status
	a.send(immediate(ans, m, "understudy"))
}

func (a *attempt) passthrough(p *config.Provider) {
	rw, err := provider.ForPassthrough(p, a.head.target)
	a.sendPast(p, rw, err)
}

// sendPast sends a request to p whose body passes by unseen.
func (a *attempt) sendPast(p *config.Provider, rw provider.Rewrite, err error) {
	a.state = finished
	if err == nil {
		err = a.prove(p, &rw, nil)
	}
	if err != nil {
		a.refuse(http.StatusServiceUnavailable, "not_ready", "the gateway has no credential for this provider")
		return
	}
	a.send(requestHeaders(a.common(p, rw)))
}

// common is the message that sends a request, rewritten, to provider p's cluster.
func (a *attempt) common(p *config.Provider, rw provider.Rewrite) *extproc.CommonResponse {
	m := &mutation{}
	m.remove(rw.Remove...)
	m.remove(a.head.ours...)
	m.set("x-llm-cluster", p.Cluster)
	m.set(":authority", rw.Authority)
	m.set(":path", rw.Path)
	for _, h := range rw.Set {
		m.set(h.Name, h.Value)
	}
	c := m.common()
	if rw.Body != nil {
		// Envoy checks content-length against a replaced body.
		m.set("content-length", strconv.Itoa(len(rw.Body)))
		c.BodyMutation = &extproc.BodyMutation{Mutation: &extproc.BodyMutation_Body{Body: rw.Body}}
	}
	return c
}

func (a *attempt) requestBody(body []byte) {
	if a.state != uploading {
		a.send(requestBody(&extproc.CommonResponse{})) // passed through on a chain's path: it goes on as it came
		return
	}
	if a.probed != nil {
		a.probe(body)
		return
	}
	cfg := a.book.Config
	if int64(len(body)) > cfg.Server.MaxBody {
		a.tooLarge()
		return
	}
	if more := int64(len(body)) - a.reserved; more > 0 && !a.reserve(more) {
		a.overloaded()
		return
	}
	var err error
	if a.body, err = provider.Read(a.incoming(body), cfg.Server.MaxBody); err != nil {
		if errors.Is(err, provider.ErrTooLarge) {
			a.tooLarge()
		} else {
			a.refuse(http.StatusBadRequest, "invalid_encoding", err.Error())
		}
		return
	}
	if more := a.body.Size() - a.reserved; more > 0 && !a.reserve(more) { // it came compressed
		a.overloaded()
		return
	}
	if !a.run && !a.drill.marked {
		var ok bool
		if a.chain, ok = cfg.Chain(a.head.path(), a.body.Model, a.head.chain); !ok {
			a.refuse(http.StatusNotFound, "not_found", "no chain of this gateway serves this model on this path")
			return
		}
	}
	a.plan = a.book.Plan(a.chain)
	a.enlist()
	a.home = a.findHome()
	if a.head.clientRetries > 0 && a.head.exchange.Attempt <= 1 && !a.drill.marked {
		a.p.metrics.clientRetries.WithLabelValues(a.chain.Name).Inc()
	}
	a.begin()
}

// incoming is the request as the client sent it.
func (a *attempt) incoming(body []byte) provider.Incoming {
	return provider.Incoming{Path: a.head.target, Header: a.head.header, Body: body}
}

// begin finds the attempt's slot and sends the request there, or says what happens instead.
func (a *attempt) begin() {
	x := a.exchange()
	if a.cost.since.IsZero() {
		a.cost.since = time.Now()
	}
	if x.Attempt > 1 {
		a.past = a.p.remember(x)
	}
	a.clock.start(x.Start.Add(a.chain.Deadlines.Total))
	if a.p.isOff(a.chain) && !a.unheard {
		a.switchedOff()
		return
	}
	if a.observing() {
		a.observe(x)
		return
	}
	if !a.claims() { // what has no time left ends its key, too
		return
	}
	if x.Attempt <= 1 && a.insists() && a.plan.Troubled() {
		a.spent()
		return
	}
	if !time.Now().Before(a.clock.total) {
		a.spent()
		return
	}
	try, err := a.plan.Begin(x, a.past)
	switch {
	case errors.Is(err, chain.ErrSkip):
		a.skip(err)
	case err != nil:
		a.p.log.Debug("no target", "exchange", x.ID, "chain", a.chain.Name, "reason", err)
		a.spent()
	case try.Wait > 0:
		a.state = waiting
		a.clock.wait(time.Now().Add(try.Wait))
	case try.Downshift && a.climb(a.before()):
		try.Release()
	default:
		a.take(try)
	}
}

// exchange is what the chain needs to know of the request.
func (a *attempt) exchange() chain.Exchange {
	x := a.head.exchange
	x.Own, x.Drill, x.Retry = a.run, a.drill.marked, a.head.clientRetries > 0
	x.NoDownshift = a.run || !degrade.Accepts(a.head.degrade, "downshift")
	x.Flex = config.Discounted(a.body.Tier())
	x.Fits = a.fits
	if key := a.conversation(); key != "" {
		x.Prefer = a.p.hints.Get(key)
	}
	return x
}

// remember is what this replica knows of the attempts before x.
func (p *Processor) remember(x chain.Exchange) []chain.Past {
	past := p.memo.Of(x.ID)
	if n := len(past); n > 0 && past[n-1].Slot == x.Attempt-2 {
		return past
	}
	// That Envoy is here again proves that the attempt before, if it has no verdict yet, did not end by a hang-up,
	// and that nothing of it has left.
	p.ends.tell(endKey{x.ID, x.Attempt - 1}, end{by: byProvider})
	return p.memo.Of(x.ID)
}

func (a *attempt) skip(why error) {
	a.p.log.Debug("slot skipped", "exchange", a.head.exchange.ID, "chain", a.chain.Name, "reason", why)
	a.refuseWith(a.next(), http.StatusServiceUnavailable, "unavailable", "this target is not available; the next one is tried")
}

// upstream sends the request to the target of a.try.
func (a *attempt) upstream() {
	q := a.body
	if a.try.Standard {
		q = provider.Standard(q)
	}
	target := a.target()
	rw, err := provider.ForTarget(target, a.chain.Rungs[0].Target, q)
	if err == nil {
		err = a.prove(target.Provider, &rw, q.Plain())
	}
	if err != nil {
		a.try.Release()
		a.giveBack()
		a.try = nil
		if a.head.exchange.Attempt <= 0 { // nobody asks for the next slot
			a.spent()
			return
		}
		a.skip(err)
		return
	}
	a.call.reads, a.call.tier = rw.Answer, provider.AskedTier(a.try.Target, q)
	if a.head.idempotencyKey == "" && a.head.exchange.ID != "" {
		rw.Set = append(rw.Set, provider.Header{Name: "idempotency-key", Value: a.key()})
	}
	a.sendOff(a.common(target.Provider, rw))
}

// sendOff sends the request on its way to the target of a.try.
func (a *attempt) sendOff(c *extproc.CommonResponse) {
	reply := requestBody(c)
	if a.noBody {
		reply = requestHeaders(c)
	}
	identityOf(a.p.replica, a.head.exchange.ID, a.head.exchange.Attempt, a.try.Target.Name).in(reply)
	a.send(reply)
	a.state = sent
	a.sizeUp()
	if !a.retains() {
		if !a.observing() { // which goes to no other target
			a.judge()
		}
		a.body.Drop()
	}
	a.moments.sent = time.Now()
	a.clock.sendOff(a.moments.sent, a.chain, a.body.Stream)
}
