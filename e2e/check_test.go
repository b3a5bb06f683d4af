//go:build e2e

package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"understudy/internal/scripted"
)

// served is a good answer as a test wants it.
type served struct {
	by       string // provider
	target   string
	rung     int
	attempts int    // 0: not checked
	reason   string // of the last failed attempt; "" is none
	n, size  int    // of the content events; 0 is the 3 that a provider sends unasked
	noHints  bool   // more than one replica: the reason may be missing
}

// check compares an answer with what was wanted.
func (w served) check(t testing.TB, c call, a answer) {
	t.Helper()
	if a.err != nil || a.status != 200 {
		t.Fatalf("%s by %s = status %d, %v, want 200 and no error\n%.2000s", c.script, c.chain, a.status, a.err, a.body)
	}
	if a.body == "" {
		w.checkText(t, c, a.text)
	}
	if err := w.checkHeaders(a); err != nil {
		t.Errorf("%s by %s: %v", c.script, c.chain, err)
	}
}

func (w served) checkText(t testing.TB, c call, text string) {
	t.Helper()
	n := w.n
	if n == 0 {
		n = 3
	}
	if want := scripted.Text(w.by, model(w.by), c.scriptID(t), n, w.size); text != want {
		t.Errorf("%s by %s says %.400q (%d bytes), want %.400q (%d bytes)", c.script, c.chain, text, len(text), want, len(want))
	}
}

func (w served) checkHeaders(a answer) error {
	want := map[string]string{"x-llm-target": w.target, "x-llm-rung": strconv.Itoa(w.rung), "x-llm-fallback-reason": w.reason}
	if w.attempts > 0 {
		want["x-llm-attempts"] = strconv.Itoa(w.attempts)
	}
	if w.noHints && a.header.Get("x-llm-fallback-reason") == "" {
		delete(want, "x-llm-fallback-reason")
	}
	for name, value := range want {
		if got := a.header.Get(name); got != value {
			return fmt.Errorf("%s = %q, want %q (headers %v)", name, got, value, a.header)
		}
	}
	return nil
}

// calls checks how many requests of a call each provider saw, as "a:1 b:1".
func (s *Stack) calls(t testing.TB, id, want string) {
	t.Helper()
	for entry := range strings.FieldsSeq(want) {
		name, count, _ := strings.Cut(entry, ":")
		if got := s.providers[name].Count(id); strconv.Itoa(got) != count {
			t.Errorf("provider %s saw %d requests of %q, want %s", name, got, id, count)
		}
	}
}

// chainFor adds a chain to a list and names it after its place there, so that rows need no names of their own.
func chainFor(list *[]chain, api string, on ...string) *chain {
	*list = append(*list, chain{name: fmt.Sprintf("chain-%d", len(*list)), api: api, on: on})
	return &(*list)[len(*list)-1]
}
