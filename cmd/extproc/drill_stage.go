package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"understudy/internal/scripted"
	"understudy/pkg/config"
	"understudy/pkg/drill/rehearse"
)

// alone drills a stack of its own: scripted providers in the place of every provider of the file, the service in this
// process, and an Envoy. It needs no credential and calls nobody.
func (a *drillAsked) alone(ctx context.Context, io std) (_ *rehearse.Report, err error) {
	program, err := lookEnvoy(a.envoy)
	if err != nil {
		return nil, err
	}
	s := &stage{}
	defer func() {
		if err != nil {
			fmt.Fprint(io.err, s.lastWords())
		}
		err = errors.Join(err, s.stop())
	}()
	staged, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	s.fail = fail
	err = s.improvise(staged, program, a.options.Config, a.scale)
	var report *rehearse.Report
	if err == nil {
		o := a.options
		o.Gateway, o.Admin, o.Calls, o.Asks = s.front, s.admin, s.http, s.http
		report, err = rehearse.Run(staged, o)
	}
	if cause := context.Cause(staged); cause != nil && ctx.Err() == nil {
		err = cause // part of the stack has ended, and broke the rest
	}
	if err != nil {
		return nil, err
	}
	admin, _ := os.ReadFile(s.path("envoy.admin")) // without it the version is not told
	report.Envoy = envoyVersion(ctx, config.Address{Network: "tcp", Addr: strings.TrimSpace(string(admin))})
	report.Notes = improvised(a.options.Config, a.scale)
	return report, nil
}

// improvise starts everything, for cfg, which it changes: from here on it is that of the scratch stack.
func (s *stage) improvise(ctx context.Context, program string, cfg *config.Config, scale float64) error {
	if err := s.open("understudy-drill-"); err != nil {
		return err
	}
	if err := s.resettle(cfg); err != nil {
		return err
	}
	for _, p := range cfg.Providers {
		if err := s.standIn(p); err != nil {
			return err
		}
	}
	hurry(cfg, scale)
	s.cfg = cfg
	if err := s.serve(); err != nil {
		return err
	}
	return s.startEnvoy(ctx, program)
}

// resettle gives cfg places of its own, and takes from it what is of others: certificates, tenants, webhooks, collectors.
func (s *stage) resettle(cfg *config.Config) error {
	front, err := freeAddress()
	if err != nil {
		return err
	}
	faults, err := freeAddress()
	if err != nil {
		return err
	}
	socket := config.Address{Network: "unix", Addr: s.path("service.sock")}
	cfg.Server.GRPC, cfg.Server.TLS = socket, nil
	cfg.Server.Admin, cfg.Server.AdminTLS = config.Address{Network: "tcp", Addr: "127.0.0.1:0"}, nil
	cfg.Server.AdminToken, cfg.Server.SocketMode, cfg.Server.Drain = config.Secret{}, 0o600, time.Second
	cfg.Envoy = config.Envoy{
		Listen: front, Admin: config.Address{Network: "tcp", Addr: "127.0.0.1:0"}, CAFile: cfg.Envoy.CAFile,
		Gateway: &url.URL{Scheme: "http", Host: front.Addr}, Services: []config.Address{socket},
	}
	cfg.Store = config.Store{Dir: s.path("store"), Replicas: 1, MaxCache: cfg.Store.MaxCache, MaxJobs: cfg.Store.MaxJobs}
	cfg.Drill = config.Drill{Listen: faults, Services: []config.Address{faults}}
	cfg.Tenant, cfg.Tracing = config.Tenant{}, config.Tracing{}
	for _, ch := range cfg.Chains {
		ch.Queue.Notify, ch.Budget.Tenant = nil, false
		if ch.Budget.USD > 0 { // a drill's own requests could use up a small one
			ch.Budget.USD, ch.Budget.Soft = unspent, 0
		}
	}
	return nil
}

// unspent is a budget that no drill comes near, in USD.
const unspent = 1e6

// freeAddress was free a moment ago. Envoy and the service must each know the other's before either listens.
func freeAddress() (config.Address, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return config.Address{}, err
	}
	return config.Address{Network: "tcp", Addr: l.Addr().String()}, l.Close()
}

// standIn lets a scripted provider play p, on p's own platform.
func (s *stage) standIn(p *config.Provider) error {
	server, err := scripted.Serve(scripted.New(p.Name, scripted.Options{Platform: platformOf(p)}), "127.0.0.1:0", nil)
	if err != nil {
		return err
	}
	s.later(server.Close)
	p.Endpoint = &url.URL{Scheme: "http", Host: server.Addr()}
	p.Auth, p.CA, p.StatusFeed = config.Auth{None: true}, "", nil
	return nil
}

func platformOf(p *config.Provider) scripted.Platform {
	switch {
	case p.Platform == config.Bedrock:
		return scripted.Bedrock{Surface: string(p.Surface), Auth: scripted.Anyone{}}
	case p.Platform == config.Vertex:
		return scripted.Vertex{API: string(p.API), Project: p.Project, Region: p.Region, Auth: scripted.Anyone{}}
	case p.Platform == config.Azure:
		return scripted.Azure{APIVersion: p.APIVersion, Auth: scripted.Anyone{}}
	case p.Platform == config.Foundry:
		return scripted.Foundry{Auth: scripted.Anyone{}}
	case p.API == config.Gemini:
		return scripted.Native{API: string(p.API), Auth: scripted.Anyone{}}
	}
	return nil
}

// shortest is the least that a scaled time becomes: less would be decided by how busy the machine is.
const shortest = 500 * time.Millisecond

// hurry makes the times shorter that a drill has to wait for.
func hurry(cfg *config.Config, scale float64) {
	shorten := func(times ...*time.Duration) {
		for _, d := range times {
			*d = min(*d, max(shortest, time.Duration(float64(*d)*scale)))
		}
	}
	for _, ch := range cfg.Chains {
		d := &ch.Deadlines
		shorten(&d.FirstContent, &d.Answer, &d.Idle, &d.Total, &ch.Hold.Time, &ch.MinRate.Window)
	}
	for _, t := range cfg.Targets {
		shorten(&t.Breaker.OpenFor, &t.Breaker.MaxOpenFor, &t.Breaker.Ramp.Interval)
	}
}

// improvised says in what a scratch stack is not what the file says.
func improvised(cfg *config.Config, scale float64) []string {
	notes := []string{
		"This was a scratch stack: scripted providers played " + strings.Join(slices.Sorted(maps.Keys(cfg.Providers)), ", ") + ". Nothing was called outside of it.",
		"Not covered here: credentials, TLS, the models that the real accounts have, tenants, webhooks, status feeds, tracing, the limits of budgets, what stands before the front, and envoy.when_service_down.",
	}
	if scale < 1 {
		notes = append(notes, fmt.Sprintf("Deadlines, holds, open periods and ramps were %g of the file's, and at least %s: what is promised here in seconds is scaled likewise.", scale, shortest))
	}
	return notes
}
