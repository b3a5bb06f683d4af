// istiopatch does to a proxy's configuration what Istio's control plane does with EnvoyFilters, by Istio's own code, and
// prints an Envoy bootstrap.
//
//	istiopatch -type sidecar|router -namespace NS -labels k=v,… -proxy PROXY.yaml MANIFESTS.yaml…
//
// PROXY.yaml has what istiod would send before any EnvoyFilter, in listeners, routes and clusters, and Istio's bootstrap,
// which no EnvoyFilter here touches. istiod serves routes by RDS; here they are put where they are referred to, so that
// an Envoy without a control plane can run them.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"istio.io/istio/pilot/pkg/model"
	"istio.io/istio/pkg/log"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "istiopatch:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	f := flag.NewFlagSet("istiopatch", flag.ContinueOnError)
	kind := f.String("type", string(model.SidecarProxy), "sidecar or router")
	namespace := f.String("namespace", "default", "of the proxy's pod")
	pod := f.String("labels", "", "of the proxy's pod, as k=v,…")
	file := f.String("proxy", "", "what istiod would send before any EnvoyFilter; none: only check the manifests")
	if err := f.Parse(args); err != nil {
		return err
	}
	quiet := log.DefaultOptions()
	quiet.SetDefaultOutputLevel(log.OverrideScopeName, log.WarnLevel)
	quiet.OutputPaths = []string{"stderr"}
	if err := log.Configure(quiet); err != nil {
		return err
	}
	resources, err := readManifests(f.Args())
	if err != nil || *file == "" {
		return err
	}
	p, err := readProxy(*file)
	if err != nil {
		return err
	}
	node := newNode(model.NodeType(*kind), *namespace, labels(*pod))
	filters, err := matching(resources, node)
	if err != nil {
		return err
	}
	p.patch(node, filters)
	out, err := p.bootstrapped()
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(out)
	return err
}

func labels(s string) map[string]string {
	all := map[string]string{}
	for _, pair := range strings.Split(s, ",") {
		if k, v, ok := strings.Cut(pair, "="); ok {
			all[k] = v
		}
	}
	return all
}
