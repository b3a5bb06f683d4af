package envoyconf

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"understudy/pkg/config"
	"understudy/pkg/provider"
)

// The service polls status feeds through Envoy, so that its own network needs no way out: it asks the front under
// /.understudy/, and the hop takes what it has signed to a feed's cluster.

// inside matches the paths of the service's own calls that have no path at a provider.
func inside() *routev3.RouteMatch {
	return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/.understudy/"}}
}

func (b *builder) hasFeeds() bool { return len(b.feeds()) > 0 }

// feeds are the providers with a status feed, by name.
func (b *builder) feeds() []*config.Provider {
	var ps []*config.Provider
	for _, p := range b.providers() {
		if p.StatusFeed != nil {
			ps = append(ps, p)
		}
	}
	return ps
}

// feedClusters reach the hosts of the feeds.
func (b *builder) feedClusters() []*clusterv3.Cluster {
	taken := map[string]string{}
	for _, p := range b.providers() {
		taken[p.Cluster] = p.Name
	}
	var cs []*clusterv3.Cluster
	for _, p := range b.feeds() {
		if other, ok := taken[p.FeedCluster()]; ok {
			b.fault("providers.%s.cluster: %s is taken by the status feed of %s: choose another", other, p.FeedCluster(), p.Name)
		}
		cs = append(cs, b.feedCluster(p))
	}
	return cs
}

func (b *builder) feedCluster(p *config.Provider) *clusterv3.Cluster {
	return b.outside(origin{
		name: p.FeedCluster(), url: p.StatusFeed.URL, key: "providers." + p.Name + ".status_feed." + p.StatusFeed.Kind,
		ca: b.c.Envoy.CAFile, filters: []*hcmv3.HttpFilter{b.border(withoutCredentials()...), b.codec()},
	})
}

// withoutCredentials: a status page is public, and its host is a third party.
func withoutCredentials() []*mutationv3.HeaderMutation {
	var ms []*mutationv3.HeaderMutation
	for _, name := range provider.Credentials() {
		ms = append(ms, remove(name))
	}
	return ms
}
