package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"

	"understudy/pkg/config"
	"understudy/pkg/envoyconf"
	"understudy/pkg/envoyconf/xds"
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

func envoy(_ context.Context, args []string, io std) error {
	f := flag.NewFlagSet("envoy", flag.ContinueOnError)
	kind := f.String("hop", "internal", "how the front reaches the hop")
	sds := f.String("sds", "", "write the files of envoy.tls.sds to this folder instead")
	ask := f.Bool("xds", false, "the little with which Envoy asks the service for the rest")
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
	if *sds != "" {
		return writeSDS(cfg, *sds)
	}
	boot, err := bootstrap(cfg, hop, *ask)
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

func bootstrap(cfg *config.Config, hop envoyconf.Hop, ask bool) (*bootstrapv3.Bootstrap, error) {
	switch {
	case !ask:
		return envoyconf.Bootstrap(cfg, hop)
	case !cfg.Envoy.XDS:
		return nil, errors.New("envoy.xds is not set: the service would not answer this Envoy")
	}
	return xds.Bootstrap(cfg, hop)
}

// writeSDS writes what Envoy finds in the folder envoy.tls.sds. They hold paths, and nothing secret.
func writeSDS(cfg *config.Config, dir string) error {
	files, err := envoyconf.SDS(cfg)
	if err == nil && len(files) == 0 {
		err = errors.New("envoy.tls.sds is not set: Envoy would not look for these files")
	}
	for name, data := range files {
		err = errors.Join(err, moveInto(filepath.Join(dir, name), data))
	}
	return err
}

// moveInto puts a file in the place of another. Envoy follows what is moved there, not what is written over.
func moveInto(path string, data []byte) error {
	next := path + ".new"
	if err := os.WriteFile(next, data, 0o644); err != nil {
		return err
	}
	return os.Rename(next, path)
}

func version(_ context.Context, args []string, io std) error {
	if len(args) > 0 {
		return errUsage
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return errors.New("this binary carries no build information")
	}
	api := "unknown"
	for _, m := range info.Deps {
		if m.Path == "github.com/envoyproxy/go-control-plane/envoy" {
			api = m.Version
		}
	}
	fmt.Fprintf(io.out, "understudy %s\ncommit %s\ngo %s\nenvoy api %s\n", info.Main.Version, cmp.Or(commit(info), "unknown"), info.GoVersion, api)
	return nil
}

// commit is what the binary was built from, "" where that was not known.
func commit(info *debug.BuildInfo) string {
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}
