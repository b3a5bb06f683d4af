package main

import (
	"context"
	"flag"
	"fmt"

	"understudy/pkg/config"
	"understudy/pkg/envoyconf/attach"
)

// attachTo prints what an Envoy needs that somebody already runs.
func attachTo(_ context.Context, args []string, io std) error {
	f := flag.NewFlagSet("envoy attach", flag.ContinueOnError)
	kind := f.String("for", "", "what configures that Envoy")
	name := f.String("level", "", "how much of the service it takes on")
	namespace := f.String("namespace", "", "of the resources, where there are any")
	file, err := configFlag(f, args)
	if err != nil {
		return err
	}
	level, err := attach.ParseLevel(*name)
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	write, err := attachment(*kind, level, *namespace)
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	cfg, err := load(file, io)
	if err != nil {
		return err
	}
	out, err := write(cfg)
	if err != nil {
		return err
	}
	_, err = io.out.Write(out)
	return err
}

// attachment is what writes the pieces for a kind of Envoy.
func attachment(kind string, level attach.Level, namespace string) (func(*config.Config) ([]byte, error), error) {
	switch kind {
	case "static":
		if namespace != "" {
			return nil, fmt.Errorf("--namespace: static files have none")
		}
		return func(c *config.Config) ([]byte, error) { return attach.Static(c, level) }, nil
	}
	return nil, fmt.Errorf("--for %q: write static", kind)
}
