package main

import (
	"fmt"

	"istio.io/istio/pilot/pkg/config/memory"
	"istio.io/istio/pilot/pkg/model"
	memregistry "istio.io/istio/pilot/pkg/serviceregistry/memory"
	"istio.io/istio/pkg/config"
	"istio.io/istio/pkg/config/mesh/meshwatcher"
	"istio.io/istio/pkg/config/schema/collections"
	"istio.io/istio/pkg/config/schema/gvk"
	"istio.io/istio/pkg/kube"
	"istio.io/istio/pkg/kube/krt"
)

// newNode is a proxy as it makes itself known to istiod.
func newNode(kind model.NodeType, namespace string, labels map[string]string) *model.Proxy {
	return &model.Proxy{
		Type:            kind,
		ID:              "pod." + namespace,
		ConfigNamespace: namespace,
		Labels:          labels,
		Metadata:        &model.NodeMetadata{Namespace: namespace, Labels: labels, IstioVersion: "1.30.0"},
		MergedGateway:   &model.MergedGateway{}, // a gateway's Service has the ports that its Envoy listens on,
	}
}

// matching are the EnvoyFilters that a proxy gets, by namespace, selector and priority, as istiod finds them.
func matching(resources []config.Config, node *model.Proxy) (*model.MergedEnvoyFilterWrapper, error) {
	store := memory.NewController(memory.Make(collections.Pilot))
	for _, c := range resources {
		if c.GroupVersionKind != gvk.EnvoyFilter {
			continue
		}
		if _, err := store.Create(c); err != nil {
			return nil, fmt.Errorf("EnvoyFilter %s: %w", c.Name, err)
		}
	}
	stop := make(chan struct{})
	defer close(stop)
	watcher := meshwatcher.NewTestWatcher(nil) // Istio's default mesh config
	env := &model.Environment{ServiceDiscovery: memregistry.NewServiceDiscovery(), ConfigStore: store, Watcher: watcher}
	env.VirtualServiceController = model.NewVirtualServiceController(store, model.VSControllerOptions{KrtDebugger: krt.GlobalDebugHandler}, watcher)
	go store.Run(stop)
	go env.VirtualServiceController.Run(stop)
	if !kube.WaitForCacheSync("istiopatch", stop, store.HasSynced, env.VirtualServiceController.HasSynced) {
		return nil, fmt.Errorf("istio's config store did not start")
	}
	env.Init()
	push := model.NewPushContext()
	push.InitContext(env, nil, nil)
	return push.EnvoyFilters(node), nil
}
