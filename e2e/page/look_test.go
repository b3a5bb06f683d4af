//go:build page

package page

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/prometheus/client_golang/prometheus"

	"understudy/internal/stage"
	"understudy/pkg/admin"
)

func TestThePageCanBeReadWithoutScripts(t *testing.T) {
	s := startStack(t)
	s.plays(s.a, "529")
	s.calls(3)
	b := open(t)
	if _, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	b.must(chromedp.Navigate(s.status + "/"))
	html, err := chromedp.Run(b.ctx, chromedp.OuterHTML(chromedp.CSS("html")))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"✕ open", "half-open in", "3 by a fallback", `<button id="pause" type="button" aria-pressed="false" hidden`} {
		if !strings.Contains(html, want) {
			t.Errorf("the page without scripts has no %q", want)
		}
	}
	b.keep("without-scripts")
	first := clock(html)
	stage.Eventually(t, stage.Patience, "the page without scripts", func(context.Context) error { // it asks to be loaded anew every ten seconds
		html, err := chromedp.Run(b.ctx, chromedp.OuterHTML(chromedp.CSS("html")))
		if err == nil && clock(html) == first {
			err = errors.New("it is still as of " + first)
		}
		return err
	})
}

func clock(html string) string {
	_, rest, _ := strings.Cut(html, `<p id="clock">As of <time datetime="`)
	at, _, _ := strings.Cut(rest, `"`)
	return at
}

// large is the status of 200 targets and 50 chains in trouble.
func large() admin.Status {
	now := time.Now().UTC()
	in := func(d time.Duration) *time.Time { t := now.Add(d); return &t }
	s := admin.Status{At: now, Replica: "large", Store: "up", Window: 300, Config: admin.Config{File: "understudy.yaml", Hash: strings.Repeat("c0ffee", 10), Loaded: now, OK: true},
		Envoy: admin.Envoy{Oldest: "1.36.4", Newest: "1.40.0"}}
	classes := []string{"ok", "overloaded", "timeout", "rate_limited", "truncated"}
	for i := range 200 {
		t := admin.Target{Name: fmt.Sprintf("account-%d/model-%d-of-this-provider", i%13, i), Provider: fmt.Sprintf("account-%d", i%13), Model: fmt.Sprintf("model-%d", i),
			State: []string{"closed", "half-open", "open"}[i%3], Share: float64(i%5) / 4, Why: classes[1+i%4], Chains: []string{fmt.Sprintf("feature-%d", i%50)}}
		if i%3 == 2 {
			t.Until = in(time.Duration(i) * time.Second)
		}
		if i%7 == 0 {
			t.Cooling = in(time.Duration(i) * time.Second)
		}
		for j := range 8 {
			t.Verdicts = append(t.Verdicts, admin.Verdict{At: now.Add(-time.Duration(i*j) * time.Second), Class: classes[(i+j)%5], Detail: fmt.Sprintf("%x", i*7919*j)})
		}
		s.Targets = append(s.Targets, t)
	}
	for i := range 50 {
		c := admin.Chain{Name: fmt.Sprintf("feature-%d", i), API: "anthropic", PerSecond: float64(i), Outcomes: admin.Outcomes{Served: 31 * i, Fallback: 7 * i, Failed: i % 3},
			Budget: &admin.Budget{USD: 100, Remaining: float64(100 - i), State: "closed", Per: "1h0m0s"}, Queue: &admin.Queue{Waiting: i, Oldest: float64(i * 17)}}
		for j := range 8 {
			c.Rungs = append(c.Rungs, admin.Rung{Targets: []string{s.Targets[(i*4+j*31)%200].Name}, Served: i * j, Share: float64(j) / 28})
		}
		s.Chains = append(s.Chains, c)
	}
	for i := range 50 {
		s.Failovers = append(s.Failovers, admin.Failover{At: now, Chain: s.Chains[i].Name, Exchange: fmt.Sprintf("%08x-%04x-4c1d-9d2a-%012x", i*2654435761, i*7919, i*i*104729),
			From: s.Targets[i].Name, To: s.Targets[199-i].Name, Outcome: "fallback", Why: classes[1+i%4], Attempts: 2, Lost: int64(i * 37), Took: int64(i * 411)})
		s.Transitions = append(s.Transitions, admin.Transition{At: now, Target: s.Targets[i*3].Name, From: "closed", To: "open", Why: classes[1+i%4], By: "the fleet"})
	}
	return s
}

// showLarge serves the large status.
func showLarge(t *testing.T) string {
	status := large()
	quiet := make(chan struct{})
	server := httptest.NewServer(admin.Handler(admin.Options{
		Metrics: prometheus.NewRegistry(), Ready: func() error { return nil }, Local: true, Token: func() string { return "" }, Quiet: quiet,
		Status: func() admin.Status { status.At = time.Now(); return status },
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(quiet) })
	return server.URL
}

func TestALargePageIsLightAndSound(t *testing.T) {
	url := showLarge(t)
	sum := 0
	for _, path := range []string{"/", "/assets/page.css", "/assets/live.js"} {
		sum += weight(t, url+path)
	}
	t.Logf("200 targets and 50 chains: %d bytes compressed", sum)
	if sum > 100<<10 {
		t.Errorf("the page of 200 targets and 50 chains has %d bytes compressed, want at most 100 KiB", sum)
	}
	b := open(t)
	b.must(chromedp.Navigate(url + "/"))
	b.shows("live", "Live")
	b.shows("t199", "account-4/model-199-of-this-provider")
	b.sound("large")
}

// weight is what a browser is sent, in bytes.
func weight(t *testing.T, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "gzip")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	sent, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(strings.NewReader(string(sent)))
	if err == nil {
		_, err = io.Copy(io.Discard, z)
	}
	if err != nil {
		t.Fatalf("%s is not sent compressed: %v", url, err)
	}
	return len(sent)
}
