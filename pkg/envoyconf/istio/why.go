package istio

// What is written above each resource and patch: the fact that forces it.
const (
	filterWhy = "EnvoyFilter, as no resource of Istio's can say what follows. Only pods with these labels are changed: take the label\n" +
		"away to opt a workload out, the resource to opt a namespace out."
	sharedFilterWhy = "The hop that all fronts share."

	frontWhy = "A client must not say what only we may say: every x-llm-* outside the contract (in fail-open it could pick a\n" +
		"cluster) and x-envoy-* (it could buy itself ten paid calls). Paths are normalised, or /v1/models/../messages would pass\n" +
		"for a path that no chain protects. No stream idle timeout (five minutes by default): our own deadlines rule."

	retriesWhy = "The attempt count is how the service knows which slot of the chain is asked for; x-llm-failover is between the two\n" +
		"of us. VirtualService has no field for either, nor for a header whose value is retried (retriable_headers), for\n" +
		"room for a request's body, or for an internal listener as the destination."
	gatewayHostWhy = "A host of its own on this port of the gateway: no VirtualService must name it too."
	routesWhy      = "Before Istio's own route for the host, each before the one above it. Route timeouts are off (our deadlines rule), and\n" +
		"paths that no chain protects have no retry policy: with one, a POST whose upstream died was sent nine times."

	internalHopWhy = "One attempt, in the same Envoy. No BOOTSTRAP patch is needed: Istio's own bootstrap has the internal_listener\n" +
		"extension. Answers of Envoy itself (connection refused, no DNS, no healthy upstream) say x-llm-failover: next here, or\n" +
		"the front could not move on."
	hopClusterWhy = "The default of three concurrent retries switches failover off in exactly the outage it is for: 57 of 60 were lost.\n" +
		"DestinationRule has maxRetries, but only for hosts that Istio knows, and an internal listener is none."
	sharedHopWhy = "The pods of the shared hop by DNS, so that a connection pins none, with the mesh's certificates: the hop believes\n" +
		"x-envoy-attempt-count and x-llm-*, so only fronts may reach it. Limits are lifted: the default of three concurrent\n" +
		"retries switches failover off in exactly the outage it is for."
	sharedListenerWhy = "One attempt. What says who may call is the client's certificate, as this listener believes x-envoy-attempt-count\n" +
		"and x-llm-*; AuthorizationPolicy does not reach listeners that an EnvoyFilter adds."

	serviceClusterWhy = "The service's replicas by DNS of its headless Service: one HTTP/2 connection to a cluster IP would pin one replica. The\n" +
		"stream window is small and the connection's vast: with the defaults forty slow readers stalled everybody."
	outsideWhy = "A provider or its status feed. The certificate's name is checked, which Envoy does not by itself; headers of ours are\n" +
		"taken off as the last thing that happens to a request, and the first that happens to an answer."

	gatewayWhy = "Istio listens for this host. With a Gateway of your own, and TLS on it, leave this away; its servers' port is what\n" +
		"the patches below match."
	entranceWhy = "The name that applications call: nobody stands behind it, their sidecars answer for it. The port is this host's\n" +
		"alone, so that the patches below touch no other traffic. The port's name tells Istio that it is HTTP."
	hopServiceWhy = "Headless, so that fronts know every pod of the hop. Istio must not know it: a sidecar would give its own certificate\n" +
		"to an application that calls the hop past its front. The front's cluster finds the pods by DNS."
	ingressWhy = "The service listens on loopback or a socket, and only its sidecar reaches it: no server.insecure is needed."
	strictWhy  = "The gRPC port hands out provider credentials: never in plaintext. Metrics may be read from outside the mesh."
	callersWhy = "Nobody but the Envoys with the hop may ask for them. Other ports are as open as they were."
)
