package rehearse

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

// The elements of JUnit's XML, as CI servers read them:
// https://github.com/testmoapp/junitxml
type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Skipped  int          `xml:"skipped,attr"`
	Time     string       `xml:"time,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name       string          `xml:"name,attr"`
	Tests      int             `xml:"tests,attr"`
	Failures   int             `xml:"failures,attr"`
	Skipped    int             `xml:"skipped,attr"`
	Time       string          `xml:"time,attr"`
	Timestamp  string          `xml:"timestamp,attr"`
	Properties []junitProperty `xml:"properties>property"`
	Cases      []junitCase     `xml:"testcase"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitCase struct {
	Name    string      `xml:"name,attr"`
	Class   string      `xml:"classname,attr"`
	Time    string      `xml:"time,attr"`
	Failure *junitWhy   `xml:"failure"`
	Skipped *junitWhy   `xml:"skipped"`
	Out     junitOutput `xml:"system-out"`
}

type junitWhy struct {
	Message string `xml:"message,attr"`
}

type junitOutput struct {
	Text string `xml:",chardata"`
}

// JUnit writes the report as CI servers read it: a suite a chain, a case a promise.
func (r *Report) JUnit(w io.Writer) error {
	all := junitSuites{
		Name: "extproc drill", Tests: len(r.Results), Failures: r.Count(Broken), Skipped: r.Count(Untold), Time: seconds(r.Ended.Sub(r.Began)),
	}
	for _, c := range r.Chapters() {
		all.Suites = append(all.Suites, r.suite(&c))
	}
	if !r.Passed() && all.Failures == 0 { // a file without a failure is read as a success
		all.Tests, all.Failures = all.Tests+1, 1
		whole := Result{Name: "the drill is whole", Outcome: Broken, Why: r.Verdict(), Began: r.Began}
		all.Suites = append(all.Suites, r.suite(&Chapter{Chain: "The drill", Results: []Result{whole}}))
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func (r *Report) suite(c *Chapter) junitSuite {
	s := junitSuite{
		Name: c.Title(), Tests: len(c.Results), Failures: c.Count(Broken), Skipped: c.Count(Untold),
		Timestamp: r.Began.UTC().Format("2006-01-02T15:04:05"),
		Properties: []junitProperty{
			{"config", r.File}, {"config.hash", r.Hash}, {"config.running", r.Running}, {"gateway", r.Gateway}, {"service", r.Service}, {"envoy", r.Envoy},
		},
	}
	for _, note := range r.Notes {
		s.Properties = append(s.Properties, junitProperty{"note", note})
	}
	var took time.Duration
	for _, result := range c.Results {
		took += result.Took
		s.Cases = append(s.Cases, result.junit(c.Title()))
	}
	s.Time = seconds(took)
	return s
}

func (r *Result) junit(class string) junitCase {
	c := junitCase{Name: r.Name, Class: class, Time: seconds(r.Took), Out: junitOutput{fmt.Sprintf("promised by %s: %s\nseen: %s\ndrills: %s\n",
		r.Where, r.Promised, r.Seen, strings.Join(r.Drills, " "))}}
	if r.Call != "" {
		c.Name += " (" + r.Call + ")"
	}
	switch r.Outcome {
	case Broken:
		c.Failure = &junitWhy{r.Why}
	case Untold:
		c.Skipped = &junitWhy{r.Why}
	}
	return c
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
