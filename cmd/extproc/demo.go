package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// demoPatience bounds the whole demo, which takes a few seconds where all is well.
const demoPatience = time.Minute

// demo plays failovers through a real Envoy, with providers that fail on cue, and checks that each came true.
func demo(ctx context.Context, args []string, io std) error {
	f := flag.NewFlagSet("demo", flag.ContinueOnError)
	given := f.String("envoy", "", "path of the Envoy to use")
	if err := parse(f, args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%w: only --envoy PATH is taken", errUsage)
	}
	program, err := lookEnvoy(*given)
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // a reader that leaves must not leave Envoy and the files behind
	defer signal.Reset(syscall.SIGPIPE)
	bounded, cancel := context.WithTimeoutCause(ctx, demoPatience, fmt.Errorf("it is not over after %s", demoPatience))
	defer cancel()
	s := &stage{}
	err = s.perform(bounded, program, io.out)
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	} else if err != nil {
		fmt.Fprint(io.err, s.lastWords())
	}
	return errors.Join(err, s.stop())
}

// perform starts everything and tells the story. What ends either early is told rather than what broke by it.
func (s *stage) perform(ctx context.Context, program string, out io.Writer) error {
	ctx, s.fail = context.WithCancelCause(ctx)
	err := s.start(ctx, program)
	if err == nil {
		err = (&story{stage: s, out: listened{out, s.fail}}).tell(ctx)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// listened ends the demo when nobody reads on.
type listened struct {
	io.Writer
	fail func(error)
}

func (l listened) Write(p []byte) (int, error) {
	n, err := l.Writer.Write(p)
	if err != nil {
		l.fail(err)
	}
	return n, err
}

// lookEnvoy finds the Envoy to run: the one given, else $ENVOY, else that of the PATH.
func lookEnvoy(given string) (string, error) {
	for _, path := range []string{given, os.Getenv("ENVOY")} {
		if path == "" {
			continue
		}
		found, err := exec.LookPath(path)
		if err != nil {
			return "", fmt.Errorf("no Envoy to run: %w", err)
		}
		return found, nil
	}
	found, err := exec.LookPath("envoy")
	if err != nil {
		return "", errors.New("no Envoy found: run `make demo`, which fetches one, or say --envoy PATH or ENVOY=PATH")
	}
	return found, nil
}
