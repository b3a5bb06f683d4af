package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pages keeps each write by itself.
type pages []string

func (p *pages) Write(b []byte) (int, error) {
	*p = append(*p, string(b))
	return len(b), nil
}

func TestALineWaitsForOthersUnlessSomethingIsWrong(t *testing.T) {
	for name, row := range map[string]struct {
		log  func(log *slog.Logger)
		want []string // what each write holds, by the messages
	}{
		"nothing is said": {func(*slog.Logger) {}, nil},
		"several in a moment": {func(log *slog.Logger) {
			log.Info("a")
			log.With("k", 1).WithGroup("g").Info("b")
		}, []string{"a b"}},
		"one later than the other": {func(log *slog.Logger) {
			log.Info("a")
			time.Sleep(2 * logWait)
			log.Info("b")
		}, []string{"a", "b"}},
		"something is wrong": {func(log *slog.Logger) {
			log.Info("a")
			log.With("k", 1).Warn("b")
			log.Info("c")
		}, []string{"a b", "c"}},
		"more than may wait": {func(log *slog.Logger) {
			for range logHeld {
				log.Info("a")
			}
			log.Info("b")
		}, []string{strings.TrimSpace(strings.Repeat("a ", logHeld)), "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var wrote pages
				log, end := newJournal(&wrote)
				row.log(log)
				time.Sleep(2 * logWait)
				end()
				var got []string
				for _, p := range wrote {
					got = append(got, strings.Join(messagesIn(p), " "))
				}
				if strings.Join(got, "|") != strings.Join(row.want, "|") {
					t.Errorf("the writes held %q, want %q", got, row.want)
				}
			})
		})
	}
}

func TestTheLastLinesAreWrittenAtTheEnd(t *testing.T) {
	var wrote pages
	log, end := newJournal(&wrote)
	log.Info("a")
	end()
	log.Info("b")
	if len(wrote) != 2 {
		t.Errorf("writes = %q, want two", wrote)
	}
}

// messagesIn are the messages of JSON lines.
func messagesIn(page string) (all []string) {
	for line := range strings.Lines(page) {
		_, rest, _ := strings.Cut(line, `"msg":"`)
		message, _, _ := strings.Cut(rest, `"`)
		all = append(all, message)
	}
	return all
}

func TestAServiceThatStopsSaysSo(t *testing.T) {
	dir := folder(t)
	file := filepath.Join(dir, "understudy.yaml")
	text := strings.NewReplacer("DIR", dir, "STORE", embedded(dir)).Replace(serviceYAML)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var said lockedBuffer
	if code := run(ctx, []string{"serve", "-c", file}, std{out: io.Discard, err: &said}); code != 0 {
		t.Fatalf("serve ended with %d: %s", code, said.String())
	}
	if got := messagesIn(said.String()); !slices.Contains(got, "stopping") {
		t.Errorf("a service that was told to stop said %q, want stopping among it", got)
	}
}
