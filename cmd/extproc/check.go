package main

import (
	"context"
	"flag"
	"fmt"

	"understudy/pkg/config"
	"understudy/pkg/envoyconf/audit"
)

// check validates a config file and, where it is given one, the running Envoy that serves it.
func check(ctx context.Context, args []string, io std) error {
	f := flag.NewFlagSet("check", flag.ContinueOnError)
	admin := f.String("envoy", "", "the admin interface of a running Envoy")
	file, err := configFlag(f, args)
	if err != nil {
		return err
	}
	cfg, err := load(file, io)
	if err != nil {
		return err
	}
	fmt.Fprintf(io.out, "%s: fine: %d chains, %d targets, %d providers\n", file, len(cfg.Chains), len(cfg.Targets), len(cfg.Providers))
	if *admin == "" {
		return nil
	}
	return checkEnvoy(ctx, cfg, *admin, io)
}

// checkEnvoy prints what in a running Envoy is not as the config needs it. A conflict is an error, advice is none.
func checkEnvoy(ctx context.Context, cfg *config.Config, admin string, io std) error {
	dump, err := audit.Fetch(ctx, admin)
	if err != nil {
		return err
	}
	report, err := audit.Run(dump, cfg)
	if err != nil {
		return err
	}
	fmt.Fprintf(io.out, "%s: Envoy %s, level %s\n", admin, dump.Version, report.Level)
	for _, n := range report.Notes {
		fmt.Fprintln(io.out, " ", n)
	}
	for _, f := range report.Findings {
		fmt.Fprintf(io.out, "\n%s", f)
	}
	conflicts := report.Conflicts()
	fmt.Fprintf(io.out, "\n%d conflicts, %d pieces of advice\n", conflicts, len(report.Findings)-conflicts)
	if conflicts > 0 {
		return errShown
	}
	return nil
}
