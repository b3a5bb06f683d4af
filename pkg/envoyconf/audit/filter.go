package audit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// defaultMessageTimeout is Envoy's for an answer of the service.
const defaultMessageTimeout = 200 * time.Millisecond

// checkFilter looks at how the service is asked.
func (a *auditor) checkFilter(h *hop) {
	f, want, where := h.filter, a.want.filter(), fmt.Sprintf("filter %q of %s", h.name, h.where())
	a.checkMode(where, f.GetProcessingMode())
	for _, r := range h.routes {
		if len(r.takes) > 0 && !chosen(r) {
			a.checkPerRoute(h, r)
		}
	}
	if f.GetObservabilityMode() {
		a.conflict(where, "observability_mode is on", "Envoy waits for no answer of the service: it changes nothing", "observability_mode: false")
	}
	if f.GetDisableImmediateResponse() {
		a.conflict(where, "disable_immediate_response is on", "skips, deadlines and degraded answers cannot be sent", "disable_immediate_response: false")
	}
	if f.GetRouteCacheAction() == extprocv3.ExternalProcessor_RETAIN {
		a.conflict(where, "route_cache_action is RETAIN", "the route is not chosen anew: every attempt goes to the path's default provider", "route_cache_action: DEFAULT")
	}
	if f.GetFailureModeAllow() != want.GetFailureModeAllow() {
		a.conflict(where, fmt.Sprintf("failure_mode_allow is %t, and envoy.when_service_down is %s", f.GetFailureModeAllow(), a.whenDown()),
			cost(f.GetFailureModeAllow(), "without the service requests go to a provider unprotected, with the client's own credentials",
				"without the service requests get a 503"), fmt.Sprintf("failure_mode_allow: %t", want.GetFailureModeAllow()))
	}
	if m := f.GetMutationRules(); !m.GetAllowAllRouting().GetValue() || m.GetDisallowAll().GetValue() {
		a.conflict(where, "mutation_rules do not allow_all_routing", "the service cannot set host and path: every fallback is asked as the primary would be",
			line("mutation_rules", want.MutationRules))
	}
	if !slices.Contains(f.GetMetadataOptions().GetReceivingNamespaces().GetUntyped(), ours) {
		a.conflict(where, "metadata_options.receiving_namespaces lacks "+ours,
			"Envoy's own replies are not known as an exchange's, and are not retried; the access log tells nothing", line("metadata_options", want.MetadataOptions))
	}
	a.checkTimes(where, f)
	a.checkForwarding(where, f)
	a.checkGRPC(where, f)
}

func (a *auditor) whenDown() string {
	return cost(a.c.Envoy.FailOpen, "open", "closed")
}

func cost(is bool, then, otherwise string) string {
	if is {
		return then
	}
	return otherwise
}

// checkMode looks at what the service is shown of an exchange.
func (a *auditor) checkMode(where string, m *extprocv3.ProcessingMode) {
	want := a.want.filter().GetProcessingMode()
	var odd []string
	for _, part := range []struct{ name, is, want string }{
		{"request_header_mode", header(m.GetRequestHeaderMode(), true), header(want.GetRequestHeaderMode(), true)},
		{"request_body_mode", m.GetRequestBodyMode().String(), want.GetRequestBodyMode().String()},
		{"response_header_mode", header(m.GetResponseHeaderMode(), true), header(want.GetResponseHeaderMode(), true)},
		{"response_body_mode", m.GetResponseBodyMode().String(), want.GetResponseBodyMode().String()},
		{"response_trailer_mode", header(m.GetResponseTrailerMode(), false), header(want.GetResponseTrailerMode(), false)},
	} {
		if part.is != part.want {
			odd = append(odd, part.name+" is "+part.is)
		}
	}
	if len(odd) > 0 {
		a.conflict(where, "processing_mode: "+strings.Join(odd, ", "),
			"the service does not see, or cannot hold back, all of an exchange", line("processing_mode", want))
	}
}

// header is a mode with Envoy's default in the place of DEFAULT: headers are sent, trailers are not.
func header(m extprocv3.ProcessingMode_HeaderSendMode, sent bool) string {
	if m == extprocv3.ProcessingMode_DEFAULT {
		return cost(sent, "SEND", "SKIP")
	}
	return m.String()
}

// checkPerRoute looks at what a protected route changes of the filter.
func (a *auditor) checkPerRoute(h *hop, r *route) {
	on, changes := h.on(r)
	if !on {
		a.conflict(r.where(), "the service's filter is off there", "its requests have no breaker and no failover",
			"typed_per_filter_config:\n  "+h.name+": {\"@type\": type.googleapis.com/envoy.config.route.v3.FilterConfig, config: {}}")
	}
	if m := changes.GetProcessingMode(); m != nil {
		a.checkMode(r.where(), m)
	}
}

// checkTimes compares how long Envoy waits for the service with what else ends a wait.
func (a *auditor) checkTimes(where string, f *extprocv3.ExternalProcessor) {
	wait, want := defaultMessageTimeout, a.want.filter()
	if f.MessageTimeout != nil {
		wait = f.MessageTimeout.AsDuration()
	}
	set := line("message_timeout", want.MessageTimeout)
	if ping := a.keepalive(f); ping > 0 && wait <= ping {
		a.conflict(where, fmt.Sprintf("message_timeout is %s%s, the keep-alive to the service takes %s", wait, unset(f.MessageTimeout == nil), ping),
			"a frozen replica's attempts end in a 504, which is not retried, before they can move to another", set)
	} else if need := a.waits(); wait < need {
		a.conflict(where, fmt.Sprintf("message_timeout is %s%s, and the service may wait %s before it answers", wait, unset(f.MessageTimeout == nil), need),
			"what waits for a rate limit ends in a 504, which is not retried", set)
	}
	most := f.GetMaxMessageTimeout().AsDuration()
	for _, ch := range a.c.Chains {
		if ch.Idempotency > 0 && most < ch.Deadlines.Total {
			a.conflict(where, fmt.Sprintf("max_message_timeout is %s", most), "a request that waits for another with its Idempotency-Key ends in a 504",
				line("max_message_timeout", want.MaxMessageTimeout))
		}
	}
}

// waits is how long the service may keep one message: for a short Retry-After, for its turn at a shaped account, or
// while it looks for a degraded answer.
func (a *auditor) waits() time.Duration {
	const (
		margin = time.Second
		ladder = 8 * time.Second
	)
	longest := time.Duration(0)
	for _, ch := range a.c.Chains {
		if ch.On.RateLimited == "wait" {
			longest = max(longest, ch.On.MaxWait)
		}
		if len(ch.Degrade) > 0 {
			longest = max(longest, ladder)
		}
	}
	for _, p := range a.c.Providers {
		if p.Shape.On {
			longest = max(longest, p.Shape.MaxWait)
		}
	}
	return longest + margin
}

// checkForwarding looks at which headers and attributes the service is told.
func (a *auditor) checkForwarding(where string, f *extprocv3.ExternalProcessor) {
	want := a.want.filter()
	if f.GetForwardRules().GetAllowedHeaders() != nil {
		a.conflict(where, "forward_rules.allowed_headers is set", "the service sees only those: not which attempt it is, nor what the provider said",
			line("forward_rules", want.ForwardRules))
		return
	}
	var seen []string
	for _, name := range want.GetForwardRules().GetDisallowedHeaders().GetPatterns() {
		hidden := slices.ContainsFunc(f.GetForwardRules().GetDisallowedHeaders().GetPatterns(), func(p *matcherv3.StringMatcher) bool { return fits(p, name.GetExact()) })
		if !hidden {
			seen = append(seen, name.GetExact())
		}
	}
	if len(seen) > 0 {
		a.advice(where, "forward_rules.disallowed_headers lacks "+strings.Join(seen, ", "), "clients' credentials are sent to the service, which has no use for them",
			line("forward_rules", want.ForwardRules))
	}
	if lack := without(want.ResponseAttributes, f.ResponseAttributes); len(lack) > 0 {
		a.advice(where, "response_attributes lacks "+sorted(lack), "a failure of the connection looks like an answer of the provider's",
			"response_attributes: ["+strings.Join(want.ResponseAttributes, ", ")+"]")
	}
}

// checkGRPC looks at the stream to the service.
func (a *auditor) checkGRPC(where string, f *extprocv3.ExternalProcessor) {
	g, want := f.GetGrpcService(), a.want.filter().GetGrpcService()
	if g.GetEnvoyGrpc() == nil {
		a.conflict(where, "the service is not reached by envoy_grpc", "no stream to a dying replica is tried again", line("grpc_service", want))
		return
	}
	if d := g.GetTimeout().AsDuration(); a.cuts(d) {
		a.conflict(where, fmt.Sprintf("grpc_service.timeout is %s", d), fmt.Sprintf("it ends the stream, and so the exchange, which may take %s", a.longest),
			"grpc_service: {timeout: 0s}")
	}
	if n := g.GetEnvoyGrpc().GetMaxReceiveMessageLength().GetValue(); n > 0 && int64(n) < a.c.Server.MaxBody {
		a.conflict(where, fmt.Sprintf("max_receive_message_length is %d, server.max_body is %d", n, a.c.Server.MaxBody), "a rewritten request body is refused",
			fmt.Sprintf("grpc_service: {envoy_grpc: {max_receive_message_length: %d}}", want.GetEnvoyGrpc().GetMaxReceiveMessageLength().GetValue()))
	}
	retry := g.GetRetryPolicy()
	set := "grpc_service:\n  " + indent(line("retry_policy", want.RetryPolicy))
	switch {
	case retry.GetRetryOn() == "":
		a.conflict(where, "grpc_service.retry_policy is missing", "each replica of the service that restarts fails its attempts", set)
	case len(a.dump.addresses(g.GetEnvoyGrpc().GetClusterName())) > 1 && len(retry.GetRetryHostPredicate()) == 0:
		a.advice(where, "grpc_service.retry_policy has no retry_host_predicate",
			"all its tries can go to the one replica that is down", set)
	}
}

// keepalive is how long a frozen replica of the service goes unnoticed; 0 is for ever.
func (a *auditor) keepalive(f *extprocv3.ExternalProcessor) time.Duration {
	k := http2(a.dump.cluster(f.GetGrpcService().GetEnvoyGrpc().GetClusterName())).GetConnectionKeepalive()
	return k.GetInterval().AsDuration() + k.GetTimeout().AsDuration()
}
