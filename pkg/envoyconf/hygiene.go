package envoyconf

import (
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	headermutationv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	earlyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// credentials are the headers in which clients authenticate to one of the dialects, or name their own account
// there; pkg/provider removes the same.
func credentials() []string {
	return []string{
		"authorization", "x-api-key", "api-key", "x-goog-api-key", "proxy-authorization", "cookie",
		"openai-organization", "openai-project", "anthropic-organization-id", "anthropic-workspace-id",
	}
}

// stripClient removes what only we may say: every x-llm-* but the two that are a client's to set, which stand
// aside meanwhile. Of a header on several lines the first counts.
func (b *builder) stripClient() *corev3.TypedExtensionConfig {
	const chain, degrade = "x-understudy-chain", "x-understudy-degrade"
	return b.extension("strip", &earlyv3.HeaderMutation{Mutations: []*mutationv3.HeaderMutation{
		remove(chain), remove(degrade),
		set(chain, "%REQ(X-LLM-CHAIN)%"), set(degrade, "%REQ(X-LLM-DEGRADE)%"),
		removePrefix("x-llm-"),
		set("x-llm-chain", "%REQ("+chain+")%"), set("x-llm-degrade", "%REQ("+degrade+")%"),
		remove(chain), remove(degrade),
		removePrefix("x-envoy-"),
	}})
}

// stripHop removes what only the service may say on the hop, where a TCP or UDS hop can be reached from aside.
func (b *builder) stripHop() *corev3.TypedExtensionConfig {
	return b.extension("strip", &earlyv3.HeaderMutation{Mutations: []*mutationv3.HeaderMutation{
		remove("x-llm-cluster"), remove("x-llm-failover"),
	}})
}

// border stands between a provider and everything of ours. It runs in the cluster, after routing and after every
// other header change, so it sees what really leaves and what really came.
func (b *builder) border() *hcmv3.HttpFilter {
	ours := []*mutationv3.HeaderMutation{removePrefix("x-llm-"), removePrefix("x-envoy-")}
	return b.filter("border", &headermutationv3.HeaderMutation{Mutations: &headermutationv3.Mutations{
		RequestMutations:  append(ours, removePrefix("x-forwarded-"), remove("x-request-id")),
		ResponseMutations: append(ours, remove("x-should-retry")),
	}})
}

func remove(name string) *mutationv3.HeaderMutation {
	return &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_Remove{Remove: name}}
}

func removePrefix(prefix string) *mutationv3.HeaderMutation {
	return &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_RemoveOnMatch_{
		RemoveOnMatch: &mutationv3.HeaderMutation_RemoveOnMatch{KeyMatcher: &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: prefix},
		}},
	}}
}

// set gives a header a value; an empty one leaves it away.
func set(name, value string) *mutationv3.HeaderMutation {
	return &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_Append{Append: overwrite(name, value)}}
}
