// Command bench measures what Understudy costs, beside Envoy alone, beside the least that any ext_proc service in its
// place would cost (the floor), and beside peers: all in one run on one machine, with one scripted provider and one
// client load. It keeps the raw data and writes the results page from them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// command is what bench can be asked for. The first two are the processes that a run starts of its own.
type command struct {
	name string
	run  func(ctx context.Context, args []string, out, log io.Writer) error
}

func commands() []command {
	return []command{
		{"provider", serveProvider},
		{"floor", serveFloor},
		{"run", measure},
		{"report", report},
		{"sizing", writeSizing},
		{"soak", runSoak},
	}
}

func run(ctx context.Context, args []string, out, log io.Writer) error {
	if len(args) > 0 {
		for _, c := range commands() {
			if c.name == args[0] {
				return c.run(ctx, args[1:], out, log)
			}
		}
	}
	return errors.New("usage: bench provider|floor|run|report|sizing|soak [flags]")
}

// parse reads args into f; nothing may be left.
func parse(f *flag.FlagSet, args []string) error {
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%s: what is %q?", f.Name(), f.Arg(0))
	}
	return nil
}
