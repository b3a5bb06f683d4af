package audit

import (
	"slices"
	"strings"

	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	headermutationv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	earlyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
)

// Headers by which a client could do what is not its to do.
func forged() []string {
	return []string{"x-llm-cluster", "x-llm-failover", "x-llm-exchange", "x-llm-start", "x-llm-tenant"}
}

func retryHeaders() []string {
	return []string{"x-envoy-retry-on", "x-envoy-max-retries", "x-envoy-upstream-rq-timeout-ms", "x-envoy-attempt-count"}
}

// checkTrust looks at what a client's headers can do where it comes in.
func (a *auditor) checkTrust(m *manager) {
	gone := m.fromClient()
	strip := lines("early_header_mutation_extensions", a.want.FrontManager.EarlyHeaderMutationExtensions...)
	if left := slices.DeleteFunc(forged(), gone.has); len(left) > 0 {
		a.conflict(m.where(), "a client's "+strings.Join(left, ", ")+" is let in",
			"where the service is gone a client chooses its cluster, and else the exchange or tenant that it belongs to", strip)
	}
	left := slices.DeleteFunc(retryHeaders(), gone.has)
	switch remote := m.hcm.GetUseRemoteAddress().GetValue(); {
	case !remote && len(left) > 0:
		a.conflict(m.where(), "use_remote_address is off, and a client's "+strings.Join(left, ", ")+" is let in",
			"a client sets the retries and the timeout of its exchanges: many paid calls, or no failover", "use_remote_address: true\n"+strip)
	case !remote:
		a.advice(m.where(), "use_remote_address is off", "x-forwarded-for is the client's to choose, for logs and for filters that trust addresses", "use_remote_address: true")
	}
	if m.hcm.GetInternalAddressConfig() != nil {
		a.internal(m, len(left) > 0)
	}
}

func (a *auditor) internal(m *manager, open bool) {
	tell := a.advice
	if open {
		tell = a.conflict
	}
	tell(m.where(), "internal_address_config is set", "clients at such addresses may set Envoy's own headers: ten paid calls for one good answer",
		"internal_address_config: null")
}

// removals is what some header mutations take away.
type removals []*mutationv3.HeaderMutation

func (rs removals) has(name string) bool {
	return slices.ContainsFunc(rs, func(r *mutationv3.HeaderMutation) bool {
		return strings.EqualFold(r.GetRemove(), name) || r.GetRemoveOnMatch() != nil && fits(r.GetRemoveOnMatch().GetKeyMatcher(), name)
	})
}

// fromClient is what m takes from requests before it routes them, or before the service's filter sees them.
func (m *manager) fromClient() removals {
	var all removals
	for _, e := range m.hcm.EarlyHeaderMutationExtensions {
		all = append(all, unpacked[earlyv3.HeaderMutation](e.GetTypedConfig()).GetMutations()...)
	}
	return append(all, mutations(m.hcm.HttpFilters).GetRequestMutations()...)
}

// mutations is what the header_mutation filters of a chain do.
func mutations(filters []*hcmv3.HttpFilter) *headermutationv3.Mutations {
	all := &headermutationv3.Mutations{}
	for _, f := range filters {
		own := unpacked[headermutationv3.HeaderMutation](f.GetTypedConfig()).GetMutations()
		all.RequestMutations = append(all.RequestMutations, own.GetRequestMutations()...)
		all.ResponseMutations = append(all.ResponseMutations, own.GetResponseMutations()...)
	}
	return all
}
