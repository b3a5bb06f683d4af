//go:build page

package page

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"understudy/internal/stage"
)

// tab is one in a real Chromium, and what its console complains of.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu         sync.Mutex // guards complaints
	complaints []string
}

func open(t *testing.T) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(os.Getenv("CHROMIUM")), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.WindowSize(1280, 900), chromedp.Flag("disable-dev-shm-usage", true))
	alloc, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(alloc)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, log.Enable, cdp.Empty{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.quiet)
	return b
}

// listen takes down what a page must never give rise to: errors of scripts, and what its policy has stopped.
func (b *tab) listen(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch ev := ev.(type) {
	case *log.EventEntryAdded:
		if ev.Entry.Level == "error" {
			b.complaints = append(b.complaints, ev.Entry.Text)
		}
	case *runtime.EventExceptionThrown:
		b.complaints = append(b.complaints, ev.ExceptionDetails.Text)
	}
}

// forget says that an answer of that status was meant, of which the console tells too.
func (b *tab) forget(status string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.complaints = slices.DeleteFunc(b.complaints, func(c string) bool { return strings.Contains(c, "status of "+status) })
}

func (b *tab) quiet() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.complaints) > 0 {
		b.t.Errorf("the browser complains: %q", b.complaints)
	}
}

// must does steps in the page.
func (b *tab) must(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// eval is the value of an expression in the page.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%.200s: %v", expression, err)
	}
	return v
}

// text is what a part of the page says, as it is seen.
func (b *tab) text(id string) string {
	b.t.Helper()
	return strings.Join(strings.Fields(eval[string](b, `document.getElementById("`+id+`")?.innerText ?? ""`)), " ")
}

// shows waits until a part of the page says all of that.
func (b *tab) shows(id string, words ...string) {
	b.t.Helper()
	stage.Eventually(b.t, stage.Patience, "#"+id, func(context.Context) error {
		text := b.text(id)
		for _, w := range words {
			if !strings.Contains(text, w) {
				return fmt.Errorf("it says %q, want %q in it", text, w)
			}
		}
		return nil
	})
}

// prefers chooses between light and dark.
func (b *tab) prefers(scheme string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	if err != nil {
		b.t.Fatal(err)
	}
}

// keep keeps a picture of the whole page.
func (b *tab) keep(name string) {
	b.t.Helper()
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Fatal(err)
	}
	dir := cmp.Or(os.Getenv("PAGE_ARTIFACTS"), b.t.TempDir())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
	stage.Write(b.t, filepath.Join(dir, name+".png"), png)
}

// violation is a rule of axe that the page breaks.
type violation struct {
	ID     string   `json:"id"`
	Impact string   `json:"impact"`
	Nodes  []string `json:"nodes"`
}

// sound has axe look at the page, light and dark. It is put in by the debugger, which the page's policy does not concern.
func (b *tab) sound(what string) {
	b.t.Helper()
	source, err := os.ReadFile(os.Getenv("AXE"))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, scheme := range []string{"light", "dark"} {
		b.prefers(scheme)
		b.keep(what + "-" + scheme)
		eval[chromedp.Void](b, string(source)+";0")
		found := eval[[]violation](b, `axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations.map(v => ({id: v.id, impact: v.impact, nodes: v.nodes.slice(0, 3).map(n => n.html + ": " + n.failureSummary)})))`)
		for _, v := range found {
			if slices.Contains([]string{"serious", "critical"}, v.Impact) {
				b.t.Errorf("%s, %s: axe finds %s (%s): %q", what, scheme, v.ID, v.Impact, v.Nodes)
			} else {
				b.t.Logf("%s, %s: axe finds %s (%s): %q", what, scheme, v.ID, v.Impact, v.Nodes)
			}
		}
	}
	b.prefers("light")
}

// focus goes on by the tabulator key until the element of that id has the focus.
func (b *tab) focus(id string) {
	b.t.Helper()
	for range 100 {
		if eval[string](b, `document.activeElement.id`) == id {
			return
		}
		b.must(chromedp.KeyEvent(kb.Tab))
	}
	b.t.Fatalf("the tabulator key does not reach #%s", id)
}

// fill types into the field of that id, by keys alone.
func (b *tab) fill(id, keys string) {
	b.t.Helper()
	b.focus(id)
	b.must(chromedp.KeyEvent(keys))
}
