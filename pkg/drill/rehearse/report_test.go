package rehearse

import (
	"encoding/xml"
	"flag"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden file anew; read the difference before it is committed")

// day is a report with every outcome, and with text that means something to HTML and XML.
func day() *Report {
	began := time.Date(2026, 3, 14, 9, 26, 53, 0, time.UTC)
	return &Report{
		Began: began, Ended: began.Add(90 * time.Second), File: "understudy.yaml", Hash: "abc", Running: "abc", Gateway: "http://gw:8080",
		Service: "understudy v1", Notes: []string{"a note"},
		Results: []Result{
			{Name: "the configuration", Promised: "hash abc", Seen: "hash abc", Outcome: Kept},
			{Chain: "chat", Name: "rung 1 serves: b/x", Call: "POST /v1/messages", Where: "chains.chat.targets[1]", Promised: "status 200",
				Seen: "status 503, saying <script>&\x01", Outcome: Broken, Why: `chains.chat.targets[1]: the status is 503, not 200; check "providers.b.auth"`, Drills: []string{"D1"}, Took: 1234 * time.Millisecond},
			{Chain: "chat", Name: "rung 0 serves: a/x", Outcome: Untold, Why: "the breaker of a/x is open"},
		},
	}
}

func TestJUnitIsWhatWasReviewed(t *testing.T) {
	var out strings.Builder
	if err := day().JUnit(&out); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("testdata/junit.golden.xml", []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/junit.golden.xml")
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("JUnit() =\n%s\nwant\n%s", out.String(), want)
	}
	for dec := xml.NewDecoder(strings.NewReader(out.String())); ; {
		if _, err := dec.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("JUnit() is no XML: %v", err)
		}
	}
}

func TestThePageTellsAllAndLoadsNothing(t *testing.T) {
	var out strings.Builder
	if err := day().HTML(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"the drill has failed: 1 promises kept, 1 broken, 1 not possible here, in 1m30s", "2026-03-14 09:26:53 UTC", "The stack", "<code>drill D1</code>",
		"check &#34;providers.b.auth&#34;", "&lt;script&gt;", "the breaker of a/x is open", "nothing was tried", "a note", "prefers-color-scheme: dark", "@media print",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, never := range []string{"<script", "<link", "src=", "@import", "url("} {
		if strings.Contains(out.String(), never) {
			t.Errorf("the page has %q, want nothing that it would load or run", never)
		}
	}
}

func TestADrillPassesOnlyWhereSomethingWasShownAndNothingBroken(t *testing.T) {
	for _, row := range []struct {
		name        string
		outcomes    []Outcome
		interrupted bool
		passed      bool
		verdict     string
		stack       bool // has kept a promise, too
	}{
		{"all kept", []Outcome{Kept, Kept}, false, true, "the drill has passed: 2 promises kept", false},
		{"some not possible", []Outcome{Kept, Untold}, false, true, "the drill has passed: 1 promises kept, 0 broken, 1 not possible here", false},
		{"one broken", []Outcome{Kept, Broken}, false, false, "the drill has failed", false},
		{"none possible", []Outcome{Untold}, false, false, "the drill has shown nothing", false},
		{"nothing at all", nil, false, false, "the drill has shown nothing", false},
		{"not to its end", []Outcome{Kept}, true, false, "interrupted: ", false},
		{"none but that of the configuration", []Outcome{Untold}, false, false, "the drill has shown nothing: 1 promises kept", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := &Report{Interrupted: row.interrupted}
			for _, o := range row.outcomes {
				r.Results = append(r.Results, Result{Chain: "chat", Outcome: o})
			}
			if row.stack {
				r.Results = append(r.Results, Result{Name: "the configuration", Outcome: Kept})
			}
			if got := r.Verdict(); r.Passed() != row.passed || !strings.HasPrefix(got, row.verdict) {
				t.Errorf("Passed(), Verdict() of %v = %t, %q, want %t, %q", row.outcomes, r.Passed(), got, row.passed, row.verdict)
			}
		})
	}
}

// A CI server reads the file and not the exit code.
func TestAFileOfADrillThatHasNotPassedHasAFailure(t *testing.T) {
	for _, r := range []*Report{
		{Interrupted: true, Results: []Result{{Chain: "chat", Outcome: Kept}}},
		{Results: []Result{{Chain: "chat", Outcome: Untold}}},
		{},
	} {
		var out strings.Builder
		if err := r.JUnit(&out); err != nil {
			t.Fatal(err)
		}
		if want := `<failure message="` + r.Verdict(); !strings.Contains(out.String(), want) || !strings.Contains(out.String(), ` failures="1"`) {
			t.Errorf("JUnit() lacks %s:\n%s", want, out.String())
		}
	}
}
