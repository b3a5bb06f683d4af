package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
)

// Envoy's defaults that a route has where nothing is said.
const (
	defaultRouteTimeout = 15 * time.Second
	defaultBackOff      = 25 * time.Millisecond
	defaultBuffer       = 1 << 20 // bytes of a connection; a request body has no more where no limit of its own is set
)

// checkManager looks at what holds for all streams of a front or hop.
func (a *auditor) checkManager(m *manager) {
	where, common := m.where(), m.hcm.GetCommonHttpProtocolOptions()
	if d := common.GetMaxConnectionDuration().AsDuration(); d > 0 {
		a.conflict(where, fmt.Sprintf("max_connection_duration is %s", d),
			"a stream that is open then is cut after the drain time", "common_http_protocol_options: {max_connection_duration: 0s}")
	}
	if d := m.hcm.GetRequestTimeout().AsDuration(); d > 0 {
		a.advice(where, fmt.Sprintf("request_timeout is %s", d),
			"a client that sends a long prompt slowly gets a 408 of Envoy's", "request_timeout: 0s")
	}
	if limit := m.listener.GetPerConnectionBufferLimitBytes().GetValue(); limit > defaultBuffer {
		a.advice(where, fmt.Sprintf("per_connection_buffer_limit_bytes is %d", limit),
			"it bounds answers too: each slow reader may hold as much of Envoy's memory",
			fmt.Sprintf("per_connection_buffer_limit_bytes: %d", a.want.Front.GetPerConnectionBufferLimitBytes().GetValue()))
	}
}

// checkLimits looks at what may end or double an exchange on its way along r.
func (a *auditor) checkLimits(r *route) {
	tell := a.conflict
	if len(r.takes) == 0 && r.GetRoute().GetClusterHeader() == "" {
		tell = a.advice // no chain's path: passed through
	}
	act := r.GetRoute()
	if d := timeout(act); a.cuts(d) {
		tell(r.where(), fmt.Sprintf("timeout is %s%s", d, unset(act.Timeout == nil)),
			fmt.Sprintf("an exchange is cut then; those of the chains may take %s", a.longest), "route: {timeout: 0s}")
	}
	if d := act.GetIdleTimeout(); d != nil && a.cuts(d.AsDuration()) {
		tell(r.where(), fmt.Sprintf("idle_timeout is %s", d.AsDuration()), a.silence(), "route: {idle_timeout: 0s}")
	} else if d := idleTimeout(r.in.hcm); act.GetIdleTimeout() == nil && a.cuts(d) {
		tell(r.in.where(), fmt.Sprintf("stream_idle_timeout is %s%s", d, unset(r.in.hcm.StreamIdleTimeout == nil)),
			a.silence(), "stream_idle_timeout: 0s")
	}
	a.checkStreamDuration(r, tell)
	if mirrors(r) {
		tell(r.where(), "request_mirror_policies are set", "every request is sent, and paid, once more", "route: {request_mirror_policies: []}")
	}
	if act.GetHedgePolicy() != nil || r.host.GetHedgePolicy() != nil {
		tell(r.where(), "a hedge_policy is set", "one attempt becomes several paid calls, and the first answer wins over the chain's order",
			"route: {hedge_policy: null}")
	}
}

func (a *auditor) silence() string {
	return fmt.Sprintf("an answer that is held back or slow to begin looks idle, and is cut; the chains wait up to %s", a.longest)
}

func (a *auditor) checkStreamDuration(r *route, tell func(where, is, costs, set string)) {
	costs := fmt.Sprintf("an exchange is cut then; those of the chains may take %s", a.longest)
	own, all := r.GetRoute().GetMaxStreamDuration().GetMaxStreamDuration(), r.in.hcm.GetCommonHttpProtocolOptions().GetMaxStreamDuration()
	switch {
	case own != nil && a.cuts(own.AsDuration()):
		tell(r.where(), fmt.Sprintf("max_stream_duration is %s", own.AsDuration()), costs, "route: {max_stream_duration: {max_stream_duration: 0s}}")
	case own == nil && a.cuts(all.AsDuration()):
		tell(r.in.where(), fmt.Sprintf("max_stream_duration is %s", all.AsDuration()), costs, "common_http_protocol_options: {max_stream_duration: 0s}")
	}
}

// timeout is a route's, or Envoy's for it.
func timeout(a *routev3.RouteAction) time.Duration {
	if a.GetTimeout() == nil {
		return defaultRouteTimeout
	}
	return a.Timeout.AsDuration()
}

func unset(missing bool) string {
	if missing {
		return ", Envoy's default"
	}
	return ""
}

func mirrors(r *route) bool {
	own := r.GetRoute().GetRequestMirrorPolicies()
	if len(own) == 0 {
		own = r.host.GetRequestMirrorPolicies()
	}
	if len(own) == 0 {
		own = r.conf.GetRequestMirrorPolicies()
	}
	return len(own) > 0
}

// bodyRoom is how many bytes of a request body r lets Envoy keep.
func bodyRoom(r *route) uint64 {
	if limit := cmp.Or(r.RequestBodyBufferLimit.GetValue(), r.host.RequestBodyBufferLimit.GetValue()); limit > 0 {
		return limit
	}
	//lint:ignore SA1019 before 1.37 it is how others write the same
	if limit := cmp.Or(r.PerRequestBufferLimitBytes, r.host.PerRequestBufferLimitBytes); limit != nil {
		return uint64(limit.Value)
	}
	if limit := r.in.listener.PerConnectionBufferLimitBytes; limit != nil {
		return uint64(limit.Value)
	}
	return defaultBuffer
}

// checkBody looks at the room for a request body on a protected route.
func (a *auditor) checkBody(r *route, costs string) {
	if room, need := bodyRoom(r), uint64(a.c.Server.MaxBody); room < need {
		a.conflict(r.where(), fmt.Sprintf("a request body has room for %d bytes, server.max_body is %d", room, need), costs,
			fmt.Sprintf("request_body_buffer_limit: %d", a.want.chosen().GetRequestBodyBufferLimit().GetValue()))
	}
}

// checkCovered looks for protected paths that no route of ms takes where it should.
func (a *auditor) checkCovered(where string, routes []*route, costs, set string) {
	for _, p := range a.c.Protected() {
		if !slices.ContainsFunc(routes, func(r *route) bool { return slices.Contains(r.takes, p) }) {
			a.conflict(where, "no route takes "+p+" there", costs, set)
		}
	}
}

// terms are the words of retry_on.
func terms(p *routev3.RetryPolicy) []string {
	var words []string
	for w := range strings.SplitSeq(p.GetRetryOn(), ",") {
		if w = strings.TrimSpace(w); w != "" {
			words = append(words, w)
		}
	}
	return words
}

// without are the words that are not among others.
func without(words, others []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return slices.Contains(others, w) })
}
