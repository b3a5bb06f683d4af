package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"understudy/internal/scripted"
)

// demoProvider serves one scripted provider that goes through a schedule of behaviours, over and over.
func demoProvider(ctx context.Context, args []string, std std) error {
	f := flag.NewFlagSet("demo provider", flag.ContinueOnError)
	name := f.String("name", "provider", "its name, in its answers")
	listen := f.String("listen", "127.0.0.1:8000", "where it is called")
	control := f.String("control", "127.0.0.1:8001", "where it is told what to do")
	schedule := f.String("schedule", "1m ok", "what it does when told nothing: DURATION BEHAVIOUR; DURATION BEHAVIOUR…")
	if err := parse(f, args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%w: a schedule is one word: quote it", errUsage)
	}
	acts, err := parseSchedule(*schedule)
	if err != nil {
		return fmt.Errorf("%w: --schedule: %w", errUsage, err)
	}
	a := &scriptedActor{Provider: scripted.New(*name, scripted.Options{}), log: slog.New(slog.NewJSONHandler(std.err, nil))}
	calls, err := scripted.Serve(a, *listen, nil)
	if err != nil {
		return err
	}
	defer calls.Close()
	controls, err := scripted.Serve(a.controls(), *control, nil)
	if err != nil {
		return err
	}
	defer controls.Close()
	return a.play(ctx, acts)
}

// act is what a provider does for a while.
type act struct {
	lasts     time.Duration
	behaviour string // for scripted.ParseBehaviour
}

// parseSchedule reads acts that are separated by ";", such as "40s ok n=20; 20s 529".
func parseSchedule(s string) ([]act, error) {
	var acts []act
	for part := range strings.SplitSeq(s, ";") {
		lasts, behaviour, _ := strings.Cut(strings.TrimSpace(part), " ")
		d, err := time.ParseDuration(lasts)
		if err == nil && d <= 0 {
			err = errors.New("must be more than 0")
		}
		if err == nil {
			_, err = scripted.ParseBehaviour(behaviour)
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", part, err)
		}
		acts = append(acts, act{d, behaviour})
	}
	return acts, nil
}

// scriptedActor is a provider that goes through acts, unless it is told otherwise.
//
// Concurrency: play runs once; hold, release and playing may be called meanwhile, by any number of goroutines.
type scriptedActor struct {
	*scripted.Provider
	log *slog.Logger

	// mu guards the field below, and keeps what the provider does the same as it.
	mu   sync.Mutex
	part part
}

// part is what a provider has to do.
type part struct {
	due  string // the behaviour of the schedule
	told string // the behaviour instead, or ""
}

func (p part) behaviour() string { return cmp.Or(p.told, p.due) }

// play goes through acts until ctx ends.
func (a *scriptedActor) play(ctx context.Context, acts []act) error {
	for i := 0; ; i = (i + 1) % len(acts) {
		a.Forget() // nobody here asks what has come, and it would be kept for ever
		if err := a.change(func(p *part) { p.due = acts[i].behaviour }); err != nil {
			return err
		}
		timer := time.NewTimer(acts[i].lasts)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// change gives the provider another part; one that means nothing changes nothing.
func (a *scriptedActor) change(edit func(*part)) error {
	next, err := a.take(edit)
	if err == nil {
		a.log.Info("act", "provider", a.Name(), "does", next.behaviour(), "told", next.told != "")
	}
	return err
}

func (a *scriptedActor) take(edit func(*part)) (part, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	next := a.part
	edit(&next)
	if err := a.Set(next.behaviour()); err != nil {
		return a.part, err
	}
	a.part = next
	return next, nil
}

func (a *scriptedActor) playing() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.part.behaviour()
}

// maxAct is the longest act that is listened to, in bytes.
const maxAct = 1 << 10

// controls are GET /act, PUT /act with a behaviour, which stays, DELETE /act, back to the schedule, and /readyz.
func (a *scriptedActor) controls() http.Handler {
	mux := http.NewServeMux()
	show := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, a.playing()) }
	tell := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxAct))
		if err == nil {
			err = a.change(func(p *part) { p.told = string(body) })
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		show(w, r)
	}
	mux.HandleFunc("GET /readyz", show)
	mux.HandleFunc("GET /act", show)
	mux.HandleFunc("PUT /act", tell)
	mux.HandleFunc("DELETE /act", tell) // its body is empty
	return mux
}
