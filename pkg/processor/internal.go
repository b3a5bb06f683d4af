package processor

import (
	"net/http"
	"time"

	"understudy/pkg/config"
	"understudy/pkg/provider"
	"understudy/pkg/token"
)

// internal takes a call of our own, which names its target by a signed token: no chain, no breaker, no hold.
func (a *attempt) internal(noBody bool) {
	purpose, name, err := token.Check(a.p.Key(), a.head.internal, time.Now())
	cfg := a.book.Config
	chain, tenant := token.OfJob(name)
	switch {
	case err != nil:
		a.refuse(http.StatusForbidden, "forbidden", "x-llm-internal is not for clients")
	case purpose == token.Job && a.head.method == http.MethodPost && runs(cfg.ChainNamed(chain), a.head.path()):
		a.run, a.chain, a.head.tenant = true, cfg.ChainNamed(chain), tenant
		a.upload(noBody)
	case purpose == token.Drill && a.head.method == http.MethodPost:
		a.rehearse(name, noBody)
	case a.head.exchange.Attempt > 1:
		// A call of ours is made once. That Envoy is here again shows that this service failed the first try (Envoy's own
		// replies to a call without metadata are not retried), which says nothing of the provider: no mark.
		a.refuse(http.StatusServiceUnavailable, "unavailable", "the first try of this call got no answer")
	case purpose == token.Probe && cfg.Targets[name] != nil && !noBody:
		a.probed = cfg.Targets[name]
		a.state = uploading
		a.send(goOn())
	case purpose == token.Feed && cfg.Providers[name] != nil && cfg.Providers[name].StatusFeed != nil && noBody:
		a.feed(cfg.Providers[name])
	default:
		a.refuse(http.StatusNotFound, "not_found", "this configuration does not know what x-llm-internal names")
	}
}

// runs says whether a chain, nil for one that is gone, takes jobs of a path. Where it observes, its answers do not say
// what they are, and a job would be paid for again and again.
func runs(c *config.Chain, path string) bool { return c != nil && !c.Observe && c.API.Has(path) }

// probe sends a probe's request to its target; the prober has shaped it for the model that it asks.
func (a *attempt) probe(body []byte) {
	q, err := provider.Read(a.incoming(body), a.book.Config.Server.MaxBody)
	if err != nil {
		a.refuse(http.StatusBadRequest, "invalid", "this is no probe")
		return
	}
	t := *a.probed
	t.Model = t.Probe.Model
	rw, err := provider.ForTarget(&t, a.probed, q)
	if err == nil {
		err = a.prove(t.Provider, &rw, q.Plain())
	}
	if err != nil {
		a.refuse(http.StatusServiceUnavailable, "not_ready", "the gateway has no credential for this provider")
		return
	}
	a.state = passing
	a.send(requestBody(a.common(t.Provider, rw)))
}

// letPass lets through an answer that is not ours to judge: Envoy's own to a request that got no target, or a probe's,
// which is marked as one if the request went to its target.
func (a *attempt) letPass() {
	m := &mutation{}
	if a.probed != nil && a.state == passing {
		m.set(token.Mark, "1")
		m.remove("x-llm-failover")
	}
	a.state = passing
	a.send(responseHeaders(m))
}

// feed sends a poll to a provider's status feed, with no credential.
func (a *attempt) feed(p *config.Provider) {
	a.state = finished
	m := &mutation{}
	m.remove(provider.Credentials()...)
	m.remove(a.head.ours...)
	m.set("x-llm-cluster", p.FeedCluster())
	m.set(":authority", p.StatusFeed.URL.Host)
	m.set(":path", p.StatusFeed.URL.EscapedPath())
	a.send(requestHeaders(m.common()))
}
