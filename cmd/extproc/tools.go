package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime/debug"

	"understudy/pkg/config"
	"understudy/pkg/envoyconf"
)

// load reads a config file and tells its faults.
func load(file string, io std) (*config.Config, error) {
	cfg, err := config.Load(file)
	var faults config.Faults
	if errors.As(err, &faults) {
		fmt.Fprintln(io.err, faults)
		return nil, errShown
	}
	return cfg, err
}

func check(_ context.Context, args []string, io std) error {
	f := flag.NewFlagSet("check", flag.ContinueOnError)
	file, err := configFlag(f, args)
	if err != nil {
		return err
	}
	cfg, err := load(file, io)
	if err != nil {
		return err
	}
	fmt.Fprintf(io.out, "%s: fine: %d chains, %d targets, %d providers\n", file, len(cfg.Chains), len(cfg.Targets), len(cfg.Providers))
	return nil
}

func envoy(_ context.Context, args []string, io std) error {
	f := flag.NewFlagSet("envoy", flag.ContinueOnError)
	kind := f.String("hop", "internal", "how the front reaches the hop")
	file, err := configFlag(f, args)
	if err != nil {
		return err
	}
	hop, err := envoyconf.ParseHop(*kind)
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	cfg, err := load(file, io)
	if err != nil {
		return err
	}
	boot, err := envoyconf.Bootstrap(cfg, hop)
	if err != nil {
		return err
	}
	out, err := envoyconf.YAML(boot)
	if err != nil {
		return err
	}
	_, err = io.out.Write(out)
	return err
}

func version(_ context.Context, args []string, io std) error {
	if len(args) > 0 {
		return errUsage
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return errors.New("this binary carries no build information")
	}
	commit, api := "unknown", "unknown"
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			commit = s.Value
		}
	}
	for _, m := range info.Deps {
		if m.Path == "github.com/envoyproxy/go-control-plane/envoy" {
			api = m.Version
		}
	}
	fmt.Fprintf(io.out, "understudy %s\ncommit %s\ngo %s\nenvoy api %s\n", info.Main.Version, commit, info.GoVersion, api)
	return nil
}
