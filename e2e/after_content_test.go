//go:build e2e

package e2e

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"
)

// deaths are the ends of a stream that has shown content.
var deaths = []struct {
	name   string
	script string
	paths  []string
	inBand string // in the raw stream, when the death is in band
}{
	{"an error in band", "error n=2 gate", []string{messages, chats, responsed}, "verloaded"},
	{"an encoded error in band", "error n=2 gzip gate", []string{messages, chats, responsed}, ""},
	{"a failed response", "failed n=2 gate", []string{responsed}, "response.failed"},
	{"an error and then a clean [DONE]", "error-done n=2 gate", []string{chats}, "verloaded"},
	{"a reset", "cut n=2 how=reset gate", []string{messages, chats, responsed}, ""},
	{"a closed connection", "cut n=2 how=close gate", []string{messages, chats, responsed}, ""},
	{"a clean end without the end marker", "cut n=2 how=end gate", []string{messages, chats, responsed}, ""},
	{"a stall", "stall n=2", []string{messages, chats, responsed}, ""},
}

// deathRow is one death for one dialect.
type deathRow struct {
	name   string
	call   call
	chain  chain
	inBand string
}

// deathRows: each chain's breaker opens at the first failure, so that the charge shows.
func deathRows(commit string) (rows []deathRow, chains []chain) {
	for _, d := range deaths {
		for _, path := range d.paths {
			c := chainFor(&chains, apiOf(path), "a", "b")
			c.breaker = fileBreaker{Failures: 1, OpenFor: time.Hour}
			c.more.Commit = commit
			c.more.Deadlines = fileDeadlines{Idle: 2 * time.Second, Answer: 2 * time.Second}
			rows = append(rows, deathRow{
				name:   d.name + " of " + path,
				call:   call{path: path, stream: true, chain: c.name, script: "a=" + d.script + "; b=ok"},
				chain:  *c,
				inBand: d.inBand,
			})
		}
	}
	return rows, chains
}

// openGate opens a provider's gate at the first piece of text that a client sees.
func (s *Stack) openGate(provider, id string) func(string) {
	var once sync.Once
	return func(string) { once.Do(func() { s.providers[provider].Open(id) }) }
}

// sdkDies makes the call with the SDK: it has seen two pieces of text and then raises an error.
func (r deathRow) sdkDies(t *testing.T, s *Stack) {
	c := r.call
	c.id = t.Name() + " sdk"
	c.onText = s.openGate("a", c.id)
	a := s.sdk(within(t, time.Minute), t, c)
	if a.status != 200 || a.err == nil {
		t.Errorf("the SDK got %d %q and error %v, want 200, some text and an error", a.status, a.text, a.err)
	}
	if got := strings.Count(a.text, "[a m-a "); got != 2 {
		t.Errorf("the SDK saw %d pieces of the dead answer, %q, want 2", got, a.text)
	}
	s.calls(t, c.id, "a:1 b:0")
}

// charged: the breaker is open, and the next exchange goes past the target.
func (r deathRow) charged(t *testing.T, s *Stack) {
	s.breaker(t, r.chain.target("a"), open)
	c := r.call
	c.id = t.Name() + " next"
	s.providers["a"].Open(c.id)
	a := s.sdk(within(t, time.Minute), t, c)
	served{by: "b", target: r.chain.target("b"), rung: 1, reason: a.header.Get("x-llm-fallback-reason")}.check(t, c, a)
	s.calls(t, c.id, "a:0 b:1")
}

// deathIsCharged: and its end is an honest one.
func deathIsCharged(t *testing.T, p plan) {
	rows, chains := deathRows("first_content")
	p.chains = chains
	s := startStack(t, p)
	t.Run("rows", func(t *testing.T) {
		for _, row := range rows {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				row.sdkDies(t, s)
				row.charged(t, s)
			})
		}
	})
	s.survives(t)
}

func TestTheHonestEndOnTheWire(t *testing.T) {
	t.Parallel()
	rows, chains := deathRows("first_content")
	for i := range chains {
		chains[i].breaker = fileBreaker{}
	}
	s := startStack(t, plan{chains: chains})
	t.Run("rows", func(t *testing.T) {
		for _, row := range rows {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				row.endsHonestly(t, s)
			})
		}
	})
}

// endsHonestly: the error in band, or an aborted transfer; never the marker of a good end.
func (r deathRow) endsHonestly(t *testing.T, s *Stack) {
	c := r.call
	c.id = t.Name()
	body, err := s.readGated(within(t, time.Minute), t, c)
	if strings.Contains(body, endMarker[c.path]) {
		t.Errorf("the stream ends with %q as if it were good:\n%s", endMarker[c.path], body)
	}
	errorShown := strings.Contains(body, `"error":{`)
	if r.inBand != "" && !(strings.Contains(body, r.inBand) && errorShown) {
		t.Errorf("the stream has no error of its dialect, want %q:\n%s", r.inBand, body)
	}
	if err == nil && !errorShown {
		t.Errorf("the stream ended cleanly without an error:\n%s", body)
	}
	if strings.Contains(body, "[b m-b ") {
		t.Errorf("another model continued the text:\n%s", body)
	}
}

// readGated reads a raw stream and opens the gate once its second content event is there.
func (s *Stack) readGated(ctx context.Context, t *testing.T, c call) (string, error) {
	resp, err := s.http.Do(s.request(ctx, t, c, strings.NewReader(requestBody(c.path, true))))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var all strings.Builder
	buffer := make([]byte, 4096)
	for {
		n, err := resp.Body.Read(buffer)
		all.Write(buffer[:n])
		if strings.Count(all.String(), "[a m-a ") >= 2 {
			s.providers["a"].Open(c.scriptID(t))
		}
		if err != nil {
			return all.String(), ended(err)
		}
	}
}

func TestACompleteHoldGivesTheNextTargetsWholeAnswer(t *testing.T) {
	t.Parallel()
	rows, chains := deathRows("complete")
	s := startStack(t, plan{chains: chains})
	t.Run("rows", func(t *testing.T) {
		for i, row := range rows {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				row.call.script = strings.ReplaceAll(row.call.script, " gate", "")
				a := s.sdk(within(t, time.Minute), t, row.call)
				served{by: "b", target: chains[i].target("b"), rung: 1, attempts: 2, reason: a.header.Get("x-llm-fallback-reason")}.check(t, row.call, a)
				s.calls(t, t.Name(), "a:1 b:1")
				row.charged(t, s)
			})
		}
	})
	s.survives(t)
}
