package audit

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	grpclogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	bufferv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/buffer/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
)

// checkHops looks at what carries an attempt.
func (a *auditor) checkHops() {
	for _, h := range a.hops {
		a.checkOnce(h)
		a.checkManager(h.manager)
		a.checkHopRoutes(h)
		a.checkOldBuffer(h)
		a.checkFilter(h)
		a.checkReplies(h)
		a.checkLog(h)
		a.checkBorder(h)
		a.checkListener(h)
	}
}

// chosen says whether a route goes where the service says.
func chosen(r *route) bool { return r.GetRoute().GetClusterHeader() == "x-llm-cluster" }

// checkHopRoutes looks at the routes that the service has a say on; others are somebody else's.
func (a *auditor) checkHopRoutes(h *hop) {
	var ours []*route
	for _, r := range h.routes {
		if on, _ := h.on(r); !chosen(r) && !on && len(r.takes) == 0 {
			continue
		}
		ours = append(ours, r)
		if chosen(r) || len(r.takes) > 0 {
			a.checkBody(r, "what is larger gets a 413 of Envoy's")
		}
		if r.GetRoute() != nil {
			a.checkLimits(r)
			a.checkNoRetries(r)
		}
	}
	if !slices.ContainsFunc(ours, chosen) {
		a.conflict(h.where(), "no route has cluster_header: x-llm-cluster", "what the service chooses is not followed: every attempt goes to the same provider",
			lines("routes", a.want.chosen()))
	}
	a.checkCovered(h.where(), ours, "its requests get a 404 before the service sees them",
		lines("routes", a.want.HopManager.GetRouteConfig().GetVirtualHosts()[0].Routes[1:3]...))
}

// checkObservers looks at a filter that only listens: what it hears, and how.
func (a *auditor) checkObservers() {
	for _, h := range a.hops {
		where := fmt.Sprintf("filter %q of %s", h.name, h.where())
		a.checkOnce(h)
		a.checkForwarding(where, h.filter)
		if !slices.ContainsFunc(h.routes, func(r *route) bool { on, _ := h.on(r); return on }) {
			a.conflict(where, "it is disabled, and no route switches it on", "the service hears nothing", "disabled: false")
		}
	}
	for _, name := range a.toService() {
		a.checkServiceCluster(name)
	}
}

// checkOnce looks for pieces that were pasted twice: Envoy takes two filters of one name, and a route switches both on.
func (a *auditor) checkOnce(h *hop) {
	if h.copies > 1 {
		a.conflict(h.where(), fmt.Sprintf("the service's filter is there %d times", h.copies),
			"each request is an exchange more than once: for breakers, budgets and figures", "remove all but one")
	}
}

// checkNoRetries: on the hop, one attempt is one call.
func (a *auditor) checkNoRetries(r *route) {
	if bad := without(terms(r.retryPolicy()), harmless()); len(bad) > 0 {
		a.conflict(r.where(), "a retry_policy behind the service has "+strings.Join(bad, ","),
			"one attempt becomes several paid calls that no breaker or budget sees", "route: {retry_policy: null}")
	}
}

// checkOldBuffer: before 1.37, Envoy answers 413 to what exceeds the listener's buffer, unless a buffer filter comes
// before the service's.
func (a *auditor) checkOldBuffer(h *hop) {
	if !before(a.dump.Version, 37) || uint64(h.listener.GetPerConnectionBufferLimitBytes().GetValue()) >= uint64(a.c.Server.MaxBody) {
		return
	}
	for _, f := range h.hcm.HttpFilters {
		if unpacked[bufferv3.Buffer](f.GetTypedConfig()) != nil {
			return
		}
	}
	a.conflict(h.where(), "there is no buffer filter, and Envoy is "+a.dump.Version,
		"before 1.37, a request body larger than the connection's buffer gets a 413", lines("http_filters", a.want.HopManager.HttpFilters[0]))
}

// before says whether version is of 1.minor's predecessors; an unknown one is not.
func before(version string, minor int) bool {
	parts := strings.Split(version, ".")
	if len(parts) < 2 || parts[0] != "1" {
		return false
	}
	n, err := strconv.Atoi(parts[1])
	return err == nil && n < minor
}

// failovers are the mappers of local replies that ask for the next attempt.
func failovers(c *hcmv3.LocalReplyConfig) []*hcmv3.ResponseMapper {
	return slices.DeleteFunc(slices.Clone(c.GetMappers()), func(m *hcmv3.ResponseMapper) bool {
		return !sets(m.HeadersToAdd, "x-llm-failover")
	})
}

// lostFlags are the response flags of Envoy's own replies for an upstream that it could not reach, or lost.
func lostFlags() []string { return []string{"UF", "UC", "UR", "UPE", "UH", "NC", "UT", "SI"} }

// checkReplies looks at Envoy's own replies on the hop, which the front must take for failures.
func (a *auditor) checkReplies(h *hop) {
	if a.level != SameRequest {
		return
	}
	mappers := failovers(h.hcm.GetLocalReplyConfig())
	set := line("local_reply_config", a.want.HopManager.LocalReplyConfig)
	lack := slices.DeleteFunc(lostFlags(), func(flag string) bool {
		return slices.ContainsFunc(mappers, func(m *hcmv3.ResponseMapper) bool { return hasFlag(m.Filter, flag) })
	})
	if len(lack) > 0 {
		a.conflict(h.where(), "local_reply_config adds no x-llm-failover: next for "+strings.Join(lack, ", "),
			"a provider that Envoy cannot reach, or that dies before its answer, ends the exchange", set)
	}
	code := uint32(max(h.filter.GetStatusOnError().GetCode(), 0))
	if code == 0 {
		code = 500
	}
	if !slices.ContainsFunc(mappers, func(m *hcmv3.ResponseMapper) bool { return hasStatus(m.Filter, code) }) {
		a.conflict(h.where(), fmt.Sprintf("local_reply_config adds no x-llm-failover: next for %d, the filter's status_on_error", code),
			"an attempt that meets a dying replica of the service ends the exchange", set)
	}
}

// hasFlag says whether f can let a reply with the flag through.
func hasFlag(f *accesslogv3.AccessLogFilter, flag string) bool {
	return anyOf(f, func(f *accesslogv3.AccessLogFilter) bool {
		flags := f.GetResponseFlagFilter()
		return flags != nil && (len(flags.Flags) == 0 || slices.Contains(flags.Flags, flag))
	})
}

func hasStatus(f *accesslogv3.AccessLogFilter, code uint32) bool {
	return anyOf(f, func(f *accesslogv3.AccessLogFilter) bool {
		c := f.GetStatusCodeFilter().GetComparison()
		return c.GetOp() == accesslogv3.ComparisonFilter_EQ && c.GetValue().GetDefaultValue() == code
	})
}

// anyOf says whether some part of f is as asked.
func anyOf(f *accesslogv3.AccessLogFilter, ok func(*accesslogv3.AccessLogFilter) bool) bool {
	inner := append(slices.Clone(f.GetAndFilter().GetFilters()), f.GetOrFilter().GetFilters()...)
	return ok(f) || slices.ContainsFunc(inner, func(f *accesslogv3.AccessLogFilter) bool { return anyOf(f, ok) })
}

// checkLog looks for the access log by which the service learns how an answer ended.
func (a *auditor) checkLog(h *hop) {
	n := 0
	for _, l := range h.hcm.AccessLog {
		cluster := unpacked[grpclogv3.HttpGrpcAccessLogConfig](l.GetTypedConfig()).GetCommonConfig().GetGrpcService().GetEnvoyGrpc().GetClusterName()
		if strings.Contains(cluster, ours) || slices.ContainsFunc(a.dump.addresses(cluster), a.isService) ||
			cluster != "" && cluster == h.filter.GetGrpcService().GetEnvoyGrpc().GetClusterName() {
			n++
		}
	}
	set := lines("access_log", a.want.HopManager.AccessLog...)
	switch want := len(a.want.HopManager.AccessLog); {
	case n == 0:
		a.advice(h.where(), "there is no gRPC access log to the service",
			"a provider that dies in the middle of an answer looks like a client that hung up, and trips no breaker", set)
	case n < want:
		a.advice(h.where(), fmt.Sprintf("%d of the service's %d replicas get the gRPC access log", n, want),
			"the others cannot tell a provider that dies in the middle of an answer from a client that hung up", set)
	}
}

// checkListener looks at what an internal listener needs of the bootstrap.
func (a *auditor) checkListener(h *hop) {
	if h.listener.GetInternalListener() != nil && !a.dump.internal {
		a.conflict(h.where(), "the bootstrap has no internal_listener extension", "nothing can connect to an internal listener",
			lines("bootstrap_extensions", a.want.Extensions...))
	}
}

// checkBorder looks at what of Envoy's and the service's own a provider may say.
func (a *auditor) checkBorder(h *hop) {
	for _, name := range slices.Sorted(maps.Keys(a.c.Providers)) {
		p := a.c.Providers[name]
		c := a.dump.cluster(p.Cluster)
		if c == nil {
			continue // told elsewhere
		}
		own := mutations(httpOptions(c).GetHttpFilters())
		said := slices.DeleteFunc([]string{"x-envoy-ratelimited", "x-should-retry", "x-llm-failover"}, func(name string) bool {
			return removals(own.ResponseMutations).has(name) || h.drops(name)
		})
		set := lines("http_filters", httpOptions(a.want.cluster(p.Cluster)).GetHttpFilters()...)
		if len(said) > 0 {
			a.conflict("cluster "+p.Cluster, "a provider's "+strings.Join(said, ", ")+" is let in",
				"a provider switches retries on or off (x-envoy-ratelimited: true alone ends an exchange)", set)
		}
		if !removals(own.RequestMutations).has("x-llm-exchange") && !h.keeps("x-llm-exchange") {
			a.advice("cluster "+p.Cluster, "requests take x-llm-* along", "the provider sees what is ours", set)
		}
	}
}

// drops says whether every route to what was chosen takes the header from answers.
func (h *hop) drops(name string) bool {
	return !slices.ContainsFunc(h.routes, func(r *route) bool { return r.GetRoute() != nil && !removed(r, name) })
}

// keeps says whether every route takes the header from requests.
func (h *hop) keeps(name string) bool {
	return !slices.ContainsFunc(h.routes, func(r *route) bool {
		return r.GetRoute() != nil && !slices.Contains(slices.Concat(r.RequestHeadersToRemove, r.host.RequestHeadersToRemove, r.conf.RequestHeadersToRemove), name)
	})
}
