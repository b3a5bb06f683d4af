package envoyconf

import (
	"slices"

	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	headermutationv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	earlyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// aside is the prefix of headers that hold a value between two changes in Envoy.
const aside = "x-understudy-"

// stripClient removes what only we may say: every x-llm-* but the two that are a client's to set, and the one by
// which the service knows its own calls (it is signed, and the service refuses any other). These stand aside
// meanwhile. Of a header on several lines the first counts.
func (b *builder) stripClient() *corev3.TypedExtensionConfig {
	const chain, degrade, internal = aside + "chain", aside + "degrade", aside + "internal"
	return b.extension("strip", &earlyv3.HeaderMutation{Mutations: []*mutationv3.HeaderMutation{
		removePrefix(aside),
		set(chain, "%REQ(X-LLM-CHAIN)%"), set(degrade, "%REQ(X-LLM-DEGRADE)%"), set(internal, "%REQ(X-LLM-INTERNAL)%"),
		removePrefix("x-llm-"),
		set("x-llm-chain", "%REQ("+chain+")%"), set("x-llm-degrade", "%REQ("+degrade+")%"),
		set("x-llm-internal", "%REQ("+internal+")%"),
		removePrefix(aside),
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
//
// before is done first to a request.
func (b *builder) border(before ...*mutationv3.HeaderMutation) *hcmv3.HttpFilter {
	return b.filter("border", &headermutationv3.HeaderMutation{Mutations: &headermutationv3.Mutations{
		RequestMutations: slices.Concat(before, b.untraced(), []*mutationv3.HeaderMutation{
			removePrefix("x-llm-"), removePrefix("x-envoy-"), removePrefix("x-forwarded-"), remove("x-request-id"),
			removePrefix(aside),
		}),
		ResponseMutations: []*mutationv3.HeaderMutation{
			removePrefix("x-llm-"), removePrefix("x-envoy-"), remove("x-should-retry"),
		},
	}})
}

func named(names ...string) *matcherv3.ListStringMatcher {
	l := &matcherv3.ListStringMatcher{}
	for _, name := range names {
		l.Patterns = append(l.Patterns, &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name},
		})
	}
	return l
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
