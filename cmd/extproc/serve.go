package main

import (
	"context"
	"errors"
	"flag"
	"runtime"
	"time"

	"understudy/pkg/config"
	"understudy/pkg/provider/credential"
)

// settle bounds what follows the drain: honest ends on their way out, and last words of the access log.
const settle = 3 * time.Second

func serve(ctx context.Context, args []string, io std) error {
	file, err := configFlag(flag.NewFlagSet("serve", flag.ContinueOnError), args)
	if err != nil {
		return err
	}
	cfg, err := load(file, io)
	if err != nil {
		return err
	}
	runtime.MemProfileRate = 0 // nobody can ask for the profile, and it takes 1.5 MB
	log, end := newJournal(io.err)
	defer end()
	a, err := newApp(cfg, log)
	if err != nil {
		return err
	}
	a.start()
	log.Info("serving", "grpc", cfg.Server.GRPC.String(), "admin", cfg.Server.Admin.String(), "config", cfg.Hash)
	select {
	case <-ctx.Done():
	case err = <-a.failed:
	}
	log.Info("stopping", "drain", cfg.Server.Drain)
	return errors.Join(err, a.stop(cfg.Server.Drain))
}

// watch reloads the config whenever the file, or a secret that it names, holds something else, and on SIGHUP.
func (a *app) watch(ctx context.Context, cfg *config.Config) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	w := config.NewWatcher(cfg)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			a.retire(ctx)
			if !w.Changed() {
				continue
			}
		case <-a.hup:
		}
		a.reload(ctx, cfg.File)
		w.Follow(a.processor.Book().Config)
	}
}

// reload uses what the file says now, or changes nothing.
func (a *app) reload(ctx context.Context, file string) {
	next, err := config.Load(file)
	if err == nil {
		err = a.unchangeable(next)
	}
	if err == nil {
		err = a.prepare(ctx, next)
	}
	if ctx.Err() != nil {
		return // the process ends: nobody waits for what Envoys say
	}
	if err != nil {
		a.reloadOK.Set(0)
		a.lookout.reloaded(err)
		a.log.Error("the changed config is not used", "file", file, "error", err.Error())
		return
	}
	creds := credential.New(next, a.creds, a.log)
	creds.Start(ctx)
	a.creds = creds
	a.processor.Use(next, creds)
	a.reloadOK.Set(1)
	a.lookout.reloaded(nil)
	a.log.Info("config reloaded", "file", file, "config", next.Hash)
}
