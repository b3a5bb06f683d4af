// Command extproc is Understudy: an Envoy external processor that gives LLM traffic failover.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if code := run(ctx, os.Args[1:], std{os.Stdin, os.Stdout, os.Stderr}); code != 0 {
		os.Exit(code)
	}
}

// std is where a command reads and writes: results to out, errors and logs to err.
type std struct {
	in       io.Reader
	out, err io.Writer
}

// Exit codes of the contract.
const (
	exitFine  = 0
	exitWrong = 1 // the thing asked about is wrong
	exitUsage = 2
)

var errUsage = errors.New("wrong usage")

// errShown is an error that has been told already.
var errShown = errors.New("")

type command struct {
	name, usage, does string
	run               func(ctx context.Context, args []string, io std) error
}

func commands() []command {
	return []command{
		{"serve", "serve -c FILE", "run the service (the default command)", serve},
		{"check", "check -c FILE [--envoy ADMIN_URL]", "validate a config file, and a running Envoy against it", check},
		{"envoy", "envoy -c FILE [--hop internal|tcp|uds] [--xds] [--sds DIR]", "print a complete Envoy bootstrap for a config file, or what asks the service for the rest", envoy},
		{"envoy attach", "envoy attach --for static|gateway|istio [--level same-request|next-request|observe] -c FILE", "print what to add to an Envoy that runs already (in a mesh also: --namespace, --callers, --shape, --host, --port)", attachTo},
		{"classify", "classify [--api anthropic|openai|gemini] [--asked-tier T] [--chunk N] FILE…", "say what recorded answers really were", classifyFiles},
		{"explain", "explain [--id EXCHANGE] FILE…|-", "tell the story of one exchange by the lines that the service has logged", explain},
		{"demo", "demo [--envoy PATH]", "the whole story on one machine, without accounts", demo},
		{"demo provider", "demo provider --listen ADDR --control ADDR --schedule ACTS [--name NAME]", "a scripted provider that fails by schedule, or as told", demoProvider},
		{"demo traffic", "demo traffic --gateway URL [--every DURATION] [--admin ADDR]", "calls of both dialects without end", demoTraffic},
		{"drill", "drill -c FILE [--gateway URL] [--admin URL] [--report FILE] [--junit FILE] [--chain NAME]… [--share 0.1 --for 60s] [--self]", "rehearse what a config promises, on a running stack or on one of its own", drillRun},
		{"health", "health [--admin URL]", "ask a running process whether it is ready", healthOf},
		{"version", "version", "print versions", version},
	}
}

func run(ctx context.Context, args []string, io std) int {
	name := "serve"
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		name, args = args[0], args[1:]
	}
	if len(args) > 0 && slices.ContainsFunc(commands(), func(c command) bool { return c.name == name+" "+args[0] }) {
		name, args = name+" "+args[0], args[1:]
	}
	for _, c := range commands() {
		if c.name == name {
			return exitCode(c.run(ctx, args, io), c, io)
		}
	}
	help(io.err)
	return exitUsage
}

func exitCode(err error, c command, io std) int {
	switch {
	case err == nil:
		return exitFine
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(io.out, "usage: extproc %s\n\n%s\n", c.usage, c.does)
		return exitFine
	case errors.Is(err, errUsage):
		fmt.Fprintf(io.err, "extproc %s: %v\nusage: extproc %s\n", c.name, err, c.usage)
		return exitUsage
	case errors.Is(err, errShown):
		return exitWrong
	}
	fmt.Fprintf(io.err, "extproc %s: %v\n", c.name, err)
	return exitWrong
}

func help(w io.Writer) {
	fmt.Fprintln(w, "usage: extproc COMMAND\n\ncommands:")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-78s %s\n", c.usage, c.does)
	}
}

// parse reads args into f, whose own output it keeps quiet.
func parse(f *flag.FlagSet, args []string) error {
	f.SetOutput(io.Discard)
	if err := f.Parse(args); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	return nil
}

// configFlag parses args of which only -c and those already in f are allowed.
func configFlag(f *flag.FlagSet, args []string) (string, error) {
	file := f.String("c", "", "the config file")
	if err := parse(f, args); err != nil {
		return "", err
	}
	if *file == "" || f.NArg() > 0 {
		return "", fmt.Errorf("%w: one config file is needed: -c FILE", errUsage)
	}
	return *file, nil
}
