//go:build page

package page

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"understudy/internal/stage"
	"understudy/pkg/admin"
)

func TestThePageShowsAnOutageAsItHappens(t *testing.T) {
	s := startStack(t)
	b := open(t)
	b.must(chromedp.Navigate(s.status + "/"))
	eval[bool](b, `window.never_reloaded = true`)
	b.shows("live", "Live")
	b.shows("summary", "all 2 closed", "1 connected")
	b.shows("c0", "chat", "✓ closed a/sonnet 100 %", "1 by the primary", "$50.00 of $50.00 left for 1h0m0s", "0 wait")
	b.shows("t0", "✓ closed", "ok")
	b.shows("envoys", "1.40.0", "internal", "cds", "lds", "rds", "nothing")
	b.shows("failovers", "None since the start")

	s.plays(s.a, "529")
	s.calls(4) // three fail over, and one passes over the target
	b.shows("t0", "✕ open", "half-open in", "overloaded", "0 %")
	b.shows("summary", "1 of 2 not closed")
	b.shows("c0", "✕ open a/sonnet 20 %", "✓ closed b/sonnet 80 %", "1 by the primary, 4 by a fallback")
	b.shows("failovers", "chat", "a/sonnet", "b/sonnet", "overloaded")
	b.shows("transitions", "a/sonnet closed open overloaded this replica")
	b.counts("t0")
	b.sound("outage")

	s.plays(s.a, "ok")
	b.shows("transitions", "a/sonnet half-open closed", "a/sonnet open half-open")
	b.shows("t0", "✓ closed", "100 %")
	b.shows("summary", "all 2 closed")
	s.calls(1)
	b.shows("c0", "2 by the primary, 4 by a fallback")
	if !eval[bool](b, `window.never_reloaded === true`) {
		t.Error("the page was loaded anew, want that it changes by itself")
	}
	b.keep("recovered")
}

var countdown = regexp.MustCompile(`half-open in (\d+)s`)

// counts waits until a target's time to half-open is another one than at first.
func (b *tab) counts(id string) {
	b.t.Helper()
	first := ""
	stage.Eventually(b.t, stage.Patience, "the countdown", func(context.Context) error {
		m := countdown.FindStringSubmatch(b.text(id))
		switch {
		case first == "" && m != nil:
			first = m[1]
		case m != nil && m[1] != first:
			return nil
		}
		return errors.New("it says " + b.text(id))
	})
}

func TestThePageKeepsTheFocusAndCanBePaused(t *testing.T) {
	s := startStack(t)
	b := open(t)
	b.must(chromedp.Navigate(s.status + "/"))
	b.shows("live", "Live")
	eval[bool](b, `(document.querySelector("#t0 a").focus(), true)`)
	s.plays(s.a, "529")
	s.calls(3)
	b.shows("t0", "✕ open")
	if !eval[bool](b, `document.activeElement === document.querySelector("#t0 a")`) {
		t.Error("the row's link has lost the focus")
	}
	b.focus("pause")
	b.must(chromedp.KeyEvent("\r"))
	b.shows("live", "Paused")
	before := b.text("c0")
	s.calls(1)
	paused := s.json().At
	stage.Eventually(t, stage.Patience, "/api/status", func(context.Context) error { // so that the page had something to tell, and the time
		now := s.json()
		if n := now.Chains[0].Outcomes.Total(); n != 5 || now.At.Sub(paused) < 3*time.Second {
			return fmt.Errorf("it tells of %d exchanges at %s, want 5 some seconds after %s", n, now.At, paused)
		}
		return nil
	})
	if got := b.text("c0"); got != before || eval[string](b, `document.getElementById("pause").getAttribute("aria-pressed")`) != "true" {
		t.Errorf("while it is paused the page says %q, want %q as before", got, before)
	}
	b.must(chromedp.KeyEvent("\r"))
	b.shows("live", "Live")
	b.shows("c0", "1 by the primary, 4 by a fallback")
}

// json is what the page shows, as JSON.
func (s *stack) json() admin.Status {
	s.t.Helper()
	status, err := stage.GetJSON[admin.Status](s.t.Context(), s.status+"/api/status")
	if err != nil {
		s.t.Fatal(err)
	}
	return status
}
