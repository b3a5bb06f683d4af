package main

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"

	"understudy/pkg/config"
	"understudy/pkg/envoyconf/attach"
	"understudy/pkg/envoyconf/gateway"
	"understudy/pkg/envoyconf/istio"
)

// attachTo prints what an Envoy needs that somebody already runs.
func attachTo(_ context.Context, args []string, io std) error {
	f := flag.NewFlagSet("envoy attach", flag.ContinueOnError)
	var a attachment
	level := f.String("level", "", "how much of the service it takes on")
	callers := f.String("callers", "", "who may call the service in Istio: NAMESPACE/SERVICEACCOUNT, separated by commas")
	f.StringVar(&a.to, "for", "", "what configures that Envoy")
	f.StringVar(&a.istio.Namespace, "namespace", "", "of the resources, and in Istio of the Envoys that clients meet")
	f.StringVar((*string)(&a.istio.Shape), "shape", "", "where front and hop are in Istio: sidecar, gateway or egress")
	f.StringVar(&a.istio.Host, "host", "", "that clients call in Istio")
	f.Func("port", "of that host in Istio", func(s string) error {
		n, err := strconv.ParseUint(s, 10, 16)
		a.istio.Port = uint32(n)
		return err
	})
	file, err := configFlag(f, args)
	if err == nil {
		a.istio.Level, err = attach.ParseLevel(*level)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if *callers != "" {
		a.istio.Callers = strings.Split(*callers, ",")
	}
	if err := a.check(); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	cfg, err := load(file, io)
	if err != nil {
		return err
	}
	out, err := a.write(cfg)
	if err != nil {
		return err
	}
	_, err = io.out.Write(out)
	return err
}

// attachment is what is asked for.
type attachment struct {
	to    string        // static, gateway or istio
	istio istio.Options // its level and namespace are of all
}

func (a attachment) check() error {
	mesh := a.istio.Shape != "" || a.istio.Host != "" || a.istio.Port != 0 || a.istio.Callers != nil
	switch a.to {
	case "istio":
		return nil
	case "static", "gateway":
		if mesh {
			return fmt.Errorf("--shape, --host, --port and --callers are for istio")
		}
		if a.to == "static" && a.istio.Namespace != "" {
			return fmt.Errorf("--namespace: static files have none")
		}
		return nil
	}
	return fmt.Errorf("--for %q: write static, gateway or istio", a.to)
}

func (a attachment) write(c *config.Config) ([]byte, error) {
	switch a.to {
	case "gateway":
		return gateway.Manifests(c, gateway.Options{Level: a.istio.Level, Namespace: a.istio.Namespace})
	case "istio":
		return istio.Manifests(c, a.istio)
	}
	return attach.Static(c, a.istio.Level)
}
