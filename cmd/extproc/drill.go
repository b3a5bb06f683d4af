package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"understudy/pkg/config"
	"understudy/pkg/drill"
	"understudy/pkg/drill/rehearse"
)

// drillAsked is what the command line of a drill says.
type drillAsked struct {
	file          string
	self          bool
	envoy         string
	scale         float64
	report, junit string
	options       rehearse.Options
}

// drillRun rehearses the chains of a config file on a running stack, or on one of its own.
func drillRun(ctx context.Context, args []string, io std) error {
	asked, err := readDrill(args)
	if err != nil {
		return err
	}
	cfg, err := load(asked.file, io)
	if err != nil {
		return err
	}
	ctx, release := unhurt(ctx)
	defer release()
	asked.options.Config = cfg
	asked.options.Told = func(r *rehearse.Result) { fmt.Fprintln(io.out, r.Line()) }
	var report *rehearse.Report
	if asked.self {
		report, err = asked.alone(ctx, io)
	} else {
		report, err = asked.running(ctx)
	}
	if err != nil {
		return err
	}
	return asked.tell(report, io)
}

// unhurt is a context that ends with the terminal, too. A reader of the output that leaves ends nothing: by neither may a
// plan stay on that clients meet, or an Envoy and its files stay behind.
func unhurt(ctx context.Context) (context.Context, func()) {
	signal.Ignore(syscall.SIGPIPE)
	release := func() { signal.Reset(syscall.SIGPIPE) }
	if signal.Ignored(syscall.SIGHUP) { // as nohup wants it
		return ctx, release
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	return ctx, func() { stop(); release() }
}

func readDrill(args []string) (*drillAsked, error) {
	a := &drillAsked{options: rehearse.Options{Header: http.Header{}}}
	f := flag.NewFlagSet("drill", flag.ContinueOnError)
	f.StringVar(&a.options.Gateway, "gateway", "", "where clients call")
	f.StringVar(&a.options.Admin, "admin", "", "the admin listener of a replica")
	f.StringVar(&a.report, "report", "", "write a page")
	f.StringVar(&a.junit, "junit", "", "write JUnit XML")
	f.Func("chain", "only this chain; may be repeated", func(name string) error {
		a.options.Chains = append(a.options.Chains, name)
		return nil
	})
	f.Func("header", "NAME: VALUE of every request; may be repeated", func(line string) error {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return errors.New("write NAME: VALUE")
		}
		a.options.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
		return nil
	})
	f.Float64Var(&a.options.Share, "share", 0, "of the traffic that meets a failing primary")
	f.DurationVar(&a.options.For, "for", time.Minute, "how long at most")
	f.BoolVar(&a.self, "self", false, "on a stack of its own")
	f.StringVar(&a.envoy, "envoy", "", "with --self: path of the Envoy to use")
	f.Float64Var(&a.scale, "deadline-scale", 1, "with --self: deadlines and open periods are so many times the file's")
	var err error
	if a.file, err = configFlag(f, args); err != nil {
		return nil, err
	}
	return a, a.check(f)
}

// check refuses what would mean nothing, or last too long.
func (a *drillAsked) check(f *flag.FlagSet) error {
	var wrong error
	f.Visit(func(g *flag.Flag) {
		switch g.Name {
		case "gateway", "admin":
			if a.self {
				wrong = fmt.Errorf("%w: --self has a stack of its own: leave out --%s", errUsage, g.Name)
			}
		case "envoy", "deadline-scale":
			if !a.self {
				wrong = fmt.Errorf("%w: --%s goes with --self", errUsage, g.Name)
			}
		}
	})
	switch {
	case wrong != nil:
		return wrong
	case !(a.options.Share >= 0 && a.options.Share <= 1):
		return fmt.Errorf("%w: --share is a part of the traffic, 0 to 1", errUsage)
	case a.options.For <= 0 || a.options.For > drill.Longest:
		return fmt.Errorf("%w: --for is at most %s", errUsage, drill.Longest)
	case !(a.scale > 0 && a.scale <= 1):
		return fmt.Errorf("%w: --deadline-scale is more than 0 and at most 1", errUsage)
	}
	return nil
}

// running drills a stack that runs already.
func (a *drillAsked) running(ctx context.Context) (*rehearse.Report, error) {
	o, cfg := &a.options, a.options.Config
	if o.Gateway == "" {
		o.Gateway = cfg.Envoy.Gateway.String()
	}
	o.Calls = caller()
	defer o.Calls.CloseIdleConnections()
	if o.Admin == "" {
		var close func()
		o.Admin, o.Asks, close = adminOf(cfg.Server)
		defer close()
	}
	if secret := cfg.Server.AdminToken; secret.Ref() != "" {
		var err error
		if o.Token, err = secret.Value(); err != nil {
			return nil, fmt.Errorf("server.admin_token: %w", err)
		}
	}
	report, err := rehearse.Run(ctx, *o)
	if err == nil {
		report.Envoy = envoyVersion(ctx, cfg.Envoy.Admin)
	}
	return report, err
}

// caller calls a gateway. It follows no redirection: where one leads, nobody may see a drill's token, and no chain answers.
func caller() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// adminOf is where the config's own admin listener is asked, and by which client.
func adminOf(s config.Server) (url string, asks *http.Client, close func()) {
	transport := &http.Transport{}
	url = "http://" + s.Admin.Addr
	switch {
	case s.Admin.Network == "unix":
		url = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, s.Admin.Network, s.Admin.Addr)
		}
	case s.AdminTLS != nil:
		url = "https://" + s.Admin.Addr
	}
	return url, &http.Client{Transport: transport}, transport.CloseIdleConnections
}

// envoyVersion is what an Envoy says of itself, "" if its admin interface cannot be asked from here.
func envoyVersion(ctx context.Context, admin config.Address) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin.Addr+"/server_info", nil)
	if err != nil || admin.Network != "tcp" {
		return ""
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	var info struct{ Version string }
	if json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&info) != nil {
		return ""
	}
	return info.Version
}

// tell writes the report where it was asked for, and its verdict.
func (a *drillAsked) tell(r *rehearse.Report, io std) error {
	r.Service = ownVersion()
	errs := []error{save(a.report, r.HTML), save(a.junit, r.JUnit)}
	fmt.Fprintf(io.out, "\n%s: %s\n", r.File, r.Verdict())
	for _, note := range r.Notes {
		fmt.Fprintf(io.out, "  %s\n", note)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if !r.Passed() {
		return errShown
	}
	return nil
}

// ownVersion is the version and the commit of this program, as far as it was built with them.
func ownVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	version := "understudy " + info.Main.Version
	if c := commit(info); c != "" {
		version += ", commit " + c
	}
	return version
}

// save writes a file, unless none is named.
func save(file string, write func(io.Writer) error) error {
	if file == "" {
		return nil
	}
	var out bytes.Buffer
	if err := write(&out); err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}
