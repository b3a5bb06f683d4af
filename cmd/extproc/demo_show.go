package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// prologue tells what the demo runs on.
func (s *story) prologue() {
	fmt.Fprintln(s.out, "One real Envoy, the service, and two scripted providers. No account is needed.")
	fmt.Fprintln(s.out)
	s.line("client", "calls Envoy at %s", s.front)
	b := s.cfg.Targets["primary/sonnet"].Breaker
	s.line("chain", "primary/sonnet  at %s, breaker: %d failures open it for %s", s.primary.server.URL("127.0.0.1"), b.Failures, b.OpenFor)
	s.line("", "fallback/sonnet at %s", s.fallback.server.URL("127.0.0.1"))
	s.line("metrics", "%s/metrics", s.admin)
}

func (s *story) line(who, format string, args ...any) {
	fmt.Fprintf(s.out, "   %-10s%s\n", who, fmt.Sprintf(format, args...))
}

// tellScene prints one exchange: what was sent, what each provider did, what the client saw.
func (s *story) tellScene(sc scene, got seen, calls [2]int) {
	kind := ""
	if sc.stream {
		kind = ", streamed"
	}
	s.line("sent", "POST /v1/messages%s", kind)
	s.line("primary", "%s: %s", called(calls[0]), sc.does)
	if calls[1] > 0 {
		s.line("fallback", "%s: a good answer", called(calls[1]))
	} else {
		s.line("fallback", "%s", called(0))
	}
	s.line("client", "%s", got.headline())
	for _, text := range got.excerpt() {
		s.line("", "%s", text)
	}
	s.line("", "%s", got.summary())
}

func called(n int) string {
	switch n {
	case 0:
		return "not called"
	case 1:
		return "1 call"
	}
	return fmt.Sprintf("%d calls", n)
}

// summary says what the client has in the end.
func (g seen) summary() string {
	if n := g.starts(); n > 0 {
		return fmt.Sprintf("→ %s, message_start × %d", g.ending(), n)
	}
	return fmt.Sprintf("→ %s", g.ending())
}

// headline is the status and who served.
func (g seen) headline() string {
	words := []string{fmt.Sprint(g.status)}
	for _, name := range []string{"x-llm-target", "x-llm-rung", "x-llm-attempts", "x-llm-fallback-reason"} {
		if value := g.header.Get(name); value != "" {
			words = append(words, name+": "+value)
		}
	}
	return strings.Join(words, "   ")
}

// excerpt is the start and the end of the body.
func (g seen) excerpt() []string {
	const head, tail, width = 2, 2, 96
	lines := g.lines
	if len(lines) > head+tail {
		lines = append(append(append([]string{}, lines[:head]...), "…"), lines[len(lines)-tail:]...)
	}
	short := make([]string, len(lines))
	for i, line := range lines {
		if r := []rune(line); len(r) > width {
			line = string(r[:width-1]) + "…"
		}
		short[i] = line
	}
	return short
}

// table prints the heads of columns, then what row is given, aligned; done ends it.
func (s *story) table(heads ...any) (row func(cells ...any), done func()) {
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	row = func(cells ...any) {
		fmt.Fprintf(w, "   %-10s", "")
		for i, cell := range cells {
			if i > 0 {
				fmt.Fprint(w, "\t")
			}
			fmt.Fprint(w, cell)
		}
		fmt.Fprintln(w)
	}
	row(heads...)
	return row, func() { _ = w.Flush() }
}
