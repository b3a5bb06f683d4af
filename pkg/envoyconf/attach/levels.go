package attach

import (
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"

	"understudy/pkg/config"
	"understudy/pkg/envoyconf"
)

const (
	whyService = `How Envoy reaches the service. Its windows and its keep-alive keep one slow or frozen stream from holding up others.`
	whySecrets = `Credentials that Envoy adds by itself while the service is down (envoy.when_service_down: open).`
	whyStrip   = `No client may say what only Envoy and the service may: a cluster (x-llm-cluster), an attempt, a retry policy
(x-envoy-max-retries). Where an Envoy of yours in front of this one has to send x-envoy-*, remove the last of these
changes there, and only if nobody else can reach this listener.`
	whyManager = `Paths are normalised before they are matched, or /v1/models/../messages would pass for a path that no chain
protects.`
)

// observe is the filter alone.
func observe(p *envoyconf.Pieces) ([]Piece, error) {
	filter, err := overhearing(p.HopManager)
	if err != nil {
		return nil, err
	}
	on, err := switchOn(&routev3.Route{})
	if err != nil {
		return nil, err
	}
	return []Piece{
		{"static_resources.clusters", add, whyService, of(ours(p.Clusters)...)},
		{"http_connection_manager.http_filters", beforeRouter, `It copies requests and answers to the service, waits for nothing and heeds nothing (observability_mode): without the
service all goes on as before. It is off except on the routes of the last document.`, of(filter)},
		{"route", set, `On each of your routes that leads to a provider: this switches the filter on there.`, of(on)},
	}, nil
}

// nextRequest is the filter and the hop's routes, without the hop.
func nextRequest(c *config.Config, p *envoyconf.Pieces) ([]Piece, error) {
	routes, err := ownRoutes(p)
	if err != nil {
		return nil, err
	}
	host, err := chosenHost(c, p)
	if err != nil {
		return nil, err
	}
	mappers, err := ownReplies(p.HopManager.LocalReplyConfig.Mappers)
	if err != nil {
		return nil, err
	}
	filters, err := ownFilters(p.HopManager)
	if err != nil {
		return nil, err
	}
	manager := &hcmv3.HttpConnectionManager{
		NormalizePath: p.FrontManager.NormalizePath, MergeSlashes: p.FrontManager.MergeSlashes,
		SchemeHeaderTransformation: p.HopManager.SchemeHeaderTransformation,
	}
	return []Piece{
		{"static_resources.clusters", add, whyService + `
And how it reaches the providers: each one's name is checked, and nothing of yours or ours leaves with a request.`, of(withoutHop(p.Clusters)...)},
		{"static_resources.secrets", add, whySecrets, of(p.Secrets...)},
		{"http_connection_manager", set, whyManager + `
A provider behind TLS is told the scheme of its own connection.`, of(manager)},
		{"http_connection_manager.early_header_mutation_extensions", putFirst, whyStrip, of(p.FrontManager.EarlyHeaderMutationExtensions...)},
		{"http_connection_manager.http_filters", beforeRouter, `The service sees a request last, after what you check and change, and its answer first. All are off except on the
routes below. whole-body makes room for a large request; understudy-once names the exchange and the tenant.`, of(filters...)},
		{"http_connection_manager.local_reply_config.mappers", putFirst, `What Envoy itself answers on the routes below is made readable for SDKs; without the service it is a 503.`, of(mappers...)},
		{"http_connection_manager.access_log", add, `It tells the service whether a provider or the client ended an answer. It is about its own exchanges only.`, of(p.HopManager.AccessLog...)},
		{"route_config.virtual_hosts", add, `Once the service has chosen a provider, the request is addressed to that one's host, and goes to the cluster that the
service names. If one of these hosts is a domain of a virtual host of yours, put the route first into that one. A host
with a port is there without it too, for a route_config with ignore_port_in_host_matching: leave that one out of others.`, of(host)},
		{"virtual_host.routes", putFirst, `Where requests begin: on these paths the filters above are on. No retries: a failed call must not be paid twice.`, of(routes...)},
	}, nil
}

// sameRequest is the front, in the user's own listener, and the hop.
func sameRequest(p *envoyconf.Pieces) ([]Piece, error) {
	mappers, err := ownReplies(p.FrontManager.LocalReplyConfig.Mappers)
	if err != nil {
		return nil, err
	}
	listener, err := hopListener(p)
	if err != nil {
		return nil, err
	}
	manager := &hcmv3.HttpConnectionManager{NormalizePath: p.FrontManager.NormalizePath, MergeSlashes: p.FrontManager.MergeSlashes}
	return []Piece{
		{"bootstrap_extensions", add, `It lets listeners be inside Envoy. Like all of a bootstrap it needs a restart.`, of(p.Extensions...)},
		{"static_resources.clusters", add, `"hop" is the listener below. Its circuit breakers are lifted: Envoy's default of three concurrent retries switches
failover off in exactly the outage it is for. Do not add outlier detection.
` + whyService + `
And how the hop reaches the providers: each one's name is checked, and nothing of yours or ours leaves with a request.`, of(p.Clusters...)},
		{"static_resources.secrets", add, whySecrets, of(p.Secrets...)},
		{"static_resources.listeners", add, `The hop: each attempt passes it once. It has the service's filter, its access log, and the replies that let Envoy
move on when a provider or the service cannot be reached. Nothing outside this Envoy can connect to it.`, of(listener)},
		{"http_connection_manager", set, whyManager, of(manager)},
		{"http_connection_manager.early_header_mutation_extensions", putFirst, whyStrip, of(p.FrontManager.EarlyHeaderMutationExtensions...)},
		{"http_connection_manager.local_reply_config.mappers", putFirst, `What Envoy itself answers on the routes below is made readable for SDKs.`, of(mappers...)},
		{"virtual_host", set, `Attempts are counted in a header, by which the service knows whose turn it is.`, of(&routev3.VirtualHost{IncludeRequestAttemptCount: true})},
		{"virtual_host.routes", putFirst, `The paths that chains protect are retried while an answer says so; all else of the service's goes to the hop once.
Timeouts and retries of your own do not apply here: the service's deadlines do.`, of(frontRoutes(p)...)},
	}, nil
}

// ours are the clusters of the service.
func ours(all []*clusterv3.Cluster) []*clusterv3.Cluster {
	return slices.DeleteFunc(slices.Clone(all), func(c *clusterv3.Cluster) bool {
		return c.Name != service && !strings.HasPrefix(c.Name, service+"#")
	})
}

func withoutHop(all []*clusterv3.Cluster) []*clusterv3.Cluster {
	return slices.DeleteFunc(slices.Clone(all), func(c *clusterv3.Cluster) bool { return c.Name == hop })
}

func clone[M proto.Message](m M) M { return proto.Clone(m).(M) }
