//go:build page

package page

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"understudy/internal/stage"
)

// send opens the page of forms, fills one in and sends it, all by keys.
func (b *tab) send(s *stack, tokenField string, fields ...field) {
	b.t.Helper()
	b.must(chromedp.Navigate(s.status + "/operate"))
	for _, f := range fields {
		b.fill(f.id, f.keys)
	}
	b.fill(tokenField, token)
	b.must(chromedp.KeyEvent(kb.Tab))
	if got := eval[string](b, `document.activeElement.tagName`); got != "BUTTON" {
		b.t.Fatalf("after the token comes %s, want the button", got)
	}
	if _, err := chromedp.RunResponse(b.ctx, chromedp.KeyEvent("\r")); err != nil {
		b.t.Fatal(err)
	}
}

// field is a field and what is typed into it.
type field struct{ id, keys string }

// down chooses an option that is so far down.
func down(id string, options int) field { return field{id, strings.Repeat(kb.ArrowDown, options)} }

func (b *tab) done(what string) {
	b.t.Helper()
	if text := eval[string](b, `document.querySelector("main .note")?.innerText ?? document.body.innerText`); text != "Done: "+what {
		b.t.Errorf("the page says %q, want that %s", text, what)
	}
}

func TestAnOperatorActsByKeyboardAlone(t *testing.T) {
	s := startStack(t)
	b := open(t)
	b.must(chromedp.Navigate(s.status + "/operate?target=b%2Fsonnet"))
	if got := eval[string](b, `document.getElementById("target").value`); got != "b/sonnet" {
		t.Errorf("the target %s is chosen, want b/sonnet", got)
	}
	b.sound("operate")

	b.send(s, "token-breaker-token", down("target", 1), down("force", 1))
	b.done("the breaker is forced open")
	b.shows("banner", "Forced open by an operator: a/sonnet.")
	b.shows("t0", "✕ open forced")
	b.shows("transitions", "forced open")
	s.calls(2)
	b.shows("c0", "2 by a fallback")
	b.sound("forced")

	b.send(s, "token-breaker-token", down("target", 1), down("force", 2))
	b.done("the breaker is forced closed")
	b.shows("t0", "✓ closed forced")
	b.send(s, "token-breaker-token", down("target", 1), down("force", 3))
	b.done("the breaker is released")
	stage.Eventually(t, stage.Patience, "the banner", func(context.Context) error {
		if text := b.text("banner"); text != "" {
			return errors.New("it says " + text)
		}
		return nil
	})

	b.send(s, "token-chain-token", down("chain-name", 1), down("switch", 1))
	b.done("the chain is switched off")
	b.shows("banner", "Switched off by an operator: chain chat.")
	if err := s.call(t.Context()); err == nil {
		t.Error("a chain that is switched off answers with 200")
	}
	b.send(s, "token-chain-token", down("chain-name", 1), down("switch", 2))
	b.done("the chain is switched on")

	b.must(chromedp.Navigate(s.status + "/operate"))
	b.send(s, "token-drill-token", down("drill-chain", 1), down("drill-target", 2), down("fault", 1), field{"share", "100"})
	b.done("the drill has started")
	b.shows("banner", "Drill", "makes 100 % of the requests of chat meet faults (a/sonnet: overloaded; )")
	s.calls(1)
	b.shows("failovers", "(drill ")
	b.keep("drill")
	b.must(chromedp.Navigate(s.status + "/operate"))
	id := eval[string](b, `document.querySelector("[name=drill]").value`)
	b.send(s, "token-"+id)
	b.done("the drill has ended")
}

func TestAWrongTokenChangesNothing(t *testing.T) {
	s := startStack(t)
	b := open(t)
	b.must(chromedp.Navigate(s.status + "/operate"))
	b.fill("target", kb.ArrowDown)
	b.fill("force", kb.ArrowDown)
	b.fill("token-breaker-token", "wrong")
	resp, err := chromedp.RunResponse(b.ctx, chromedp.KeyEvent("\r"))
	if err != nil {
		t.Fatal(err)
	}
	if text := eval[string](b, `document.querySelector("[role=alert]").innerText`); resp.Status != 401 || text != "this needs the admin token" {
		t.Errorf("a wrong token = %d %q, want 401 and why", resp.Status, text)
	}
	b.sound("refused")
	b.forget("401")
}
