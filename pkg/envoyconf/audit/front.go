package audit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"understudy/pkg/config"
)

// checkFronts looks at what leads to the hop.
func (a *auditor) checkFronts() {
	for _, m := range a.fronts {
		var routes []*route
		for _, r := range m.routes {
			if r.toHop {
				routes = append(routes, r)
				a.checkLimits(r)
				a.checkFrontRoute(r)
			}
		}
		a.checkManager(m)
		a.checkCovered(m.where(), routes, "its requests pass by the hop: no breaker, no failover",
			lines("routes", a.want.protected()))
	}
	for _, m := range a.entries() {
		a.checkTrust(m)
	}
}

func (a *auditor) checkFrontRoute(r *route) {
	acted := slices.ContainsFunc(r.takes, a.acts)
	switch {
	case a.level == NextRequest:
	case acted:
		if astray := without(destinations(r.GetRoute()), r.in.ways); len(astray) > 0 {
			a.conflict(r.where(), "weighted_clusters sends some to "+sorted(astray), "those requests pass by the hop: no breaker, no failover",
				"route: {cluster: "+r.in.ways[0]+"}")
		}
		a.checkRetries(r)
		a.checkExchange(r)
		a.checkBody(r, "what is larger cannot be sent a second time: its first failure is the client's")
		if broad(r.Match) {
			a.checkUnsafe(r, "it takes more than the chains' paths, and retry_on has ")
		}
	case r.behind && !broad(r.Match): // nothing gets so far
	default:
		a.checkUnsafe(r, "no chain acts there, and retry_on has ")
	}
}

// checkRetries looks at what makes the front try the next target.
func (a *auditor) checkRetries(r *route) {
	p := r.retryPolicy()
	if p == nil {
		a.conflict(r.where(), "there is no retry_policy", "the first failure is the client's: nothing fails over", "route:\n  "+indent(a.want.retry()))
		return
	}
	a.checkRetryOn(r, p)
	if n, need := max(p.GetNumRetries().GetValue(), 1), uint32(config.Retries(a.c)); n < need {
		a.conflict(r.where(), fmt.Sprintf("num_retries is %d%s", n, unset(p.NumRetries == nil)),
			"the end of the longest chain is never reached", fmt.Sprintf("retry_policy: {num_retries: %d}", need))
	}
	if len(p.GetRetriableRequestHeaders()) > 0 {
		a.conflict(r.where(), "retriable_request_headers are set", "requests without them do not fail over", "retry_policy: {retriable_request_headers: []}")
	}
	if p.GetRateLimitedRetryBackOff() != nil {
		a.conflict(r.where(), "rate_limited_retry_back_off is set", "the next target is asked only when the last one's Retry-After is over",
			"retry_policy: {rate_limited_retry_back_off: null}")
	}
	a.checkTries(r, p)
	a.checkPause(r, p)
	if p.GetRetryPriority() != nil || len(p.GetRetryHostPredicate()) > 0 {
		a.advice(r.where(), "retry_priority or retry_host_predicate is set",
			"the service chooses the target: another hop is none, and a single one is asked for again in vain",
			"retry_policy: {retry_host_predicate: [], retry_priority: null}")
	}
	if !removed(r, "x-llm-failover") {
		a.advice(r.where(), "response_headers_to_remove lacks x-llm-failover",
			"when the retries are spent the client, or an Envoy before this one, is told to try the next target", "response_headers_to_remove: [x-llm-failover]")
	}
}

func (a *auditor) checkRetryOn(r *route, p *routev3.RetryPolicy) {
	have, want := terms(p), terms(a.want.protected().GetRoute().GetRetryPolicy())
	set := "retry_policy: {retry_on: \"" + strings.Join(want, ",") + "\"}"
	if lack := without(want, have); len(lack) > 0 {
		a.conflict(r.where(), "retry_on lacks "+strings.Join(lack, ","), "what fails that way is not tried at the next target", set)
	}
	if more := without(have, append(want, harmless()...)); len(more) > 0 {
		a.conflict(r.where(), "retry_on has "+strings.Join(more, ","),
			"the service's final answers are retried too: a chain that is spent is walked, and paid, again", set)
	}
	if !retriesFailover(p) {
		a.conflict(r.where(), "retriable_headers lacks x-llm-failover: next", "the service's word to try the next target is not heard",
			lines("retriable_headers", a.want.protected().GetRoute().GetRetryPolicy().GetRetriableHeaders()...))
	}
}

// checkTries looks at limits on one attempt.
func (a *auditor) checkTries(r *route, p *routev3.RetryPolicy) {
	for _, t := range []struct {
		name string
		d    time.Duration
	}{
		{"per_try_timeout", p.GetPerTryTimeout().AsDuration()},
		{"per_try_idle_timeout", p.GetPerTryIdleTimeout().AsDuration()},
	} {
		if a.cuts(t.d) {
			a.conflict(r.where(), fmt.Sprintf("%s is %s", t.name, t.d),
				"an attempt is given up while its answer may still come, or is held back, and the call is paid", "retry_policy: {"+t.name+": 0s}")
		}
	}
}

// slowPause is the back-off from which on a chain of skipped targets is felt.
const slowPause = 100 * time.Millisecond

func (a *auditor) checkPause(r *route, p *routev3.RetryPolicy) {
	base, most := defaultBackOff, time.Duration(0)
	if b := p.GetRetryBackOff(); b != nil {
		base, most = b.GetBaseInterval().AsDuration(), b.GetMaxInterval().AsDuration()
	}
	if most == 0 {
		most = 10 * base
	}
	if most > slowPause {
		a.advice(r.where(), fmt.Sprintf("retry_back_off goes up to %s", most), "each step down the chain, a skipped target included, may take as long",
			line("retry_back_off", a.want.protected().GetRoute().GetRetryPolicy().GetRetryBackOff()))
	}
}

// harmless are reasons of retries by which no provider is asked twice.
func harmless() []string {
	return []string{"retriable-headers", "connect-failure", "refused-stream", "reset-before-request", "http3-post-connect-failure"}
}

func (a *auditor) checkUnsafe(r *route, is string) {
	if bad := without(terms(r.retryPolicy()), harmless()); len(bad) > 0 {
		a.conflict(r.where(), is+strings.Join(bad, ","),
			"a POST that no chain protects is sent, and paid, several times when its provider dies", "a route of its own without a retry_policy: see `extproc envoy`")
	}
}

// checkExchange looks at what an attempt is told by the front.
func (a *auditor) checkExchange(r *route) {
	if !r.host.GetIncludeRequestAttemptCount() {
		a.conflict("virtual host "+r.host.Name+" of "+r.in.where(), "include_request_attempt_count is off",
			"every attempt looks like the first: the chain's first target is asked again and again", "include_request_attempt_count: true")
	}
	for _, h := range a.want.protected().RequestHeadersToAdd {
		if name := h.GetHeader().GetKey(); !added(r, name) {
			a.conflict(r.where(), "request_headers_to_add lacks "+name, "what the attempts of an exchange share, or whose it is, is lost between them",
				lines("request_headers_to_add", h))
		}
	}
}

func added(r *route, name string) bool {
	return sets(r.RequestHeadersToAdd, name) || sets(r.host.RequestHeadersToAdd, name) || sets(r.conf.RequestHeadersToAdd, name)
}

// removed says whether an answer loses the header on its way along r.
func removed(r *route, name string) bool {
	return slices.ContainsFunc([][]string{r.ResponseHeadersToRemove, r.host.ResponseHeadersToRemove, r.conf.ResponseHeadersToRemove},
		func(names []string) bool {
			return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
		})
}

func indent(yaml string) string { return strings.ReplaceAll(strings.TrimSpace(yaml), "\n", "\n  ") }
