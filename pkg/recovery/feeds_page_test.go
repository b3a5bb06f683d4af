package recovery

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestReadPageOfEachKind(t *testing.T) {
	for _, tt := range []struct {
		name, file, part string
		want             Status
	}{
		{"all is well", "statuspage-operational", "", Status{Indicator: None, level: Operational}},
		{"the component is well", "statuspage-operational", "Claude API", Status{Indicator: None, Component: "operational", level: Operational}},
		{"an outage, its incident on one line", "statuspage-outage", "",
			Status{Indicator: Major, Incident: "Elevated errors on Sonnet", level: PartialOutage}},
		{"a component by its name, in any case", "statuspage-outage", "claude code",
			Status{Indicator: Major, Component: "degraded_performance", Incident: "Elevated errors on Sonnet", level: Degraded}},
		{"a component by its id", "statuspage-outage", "k8w3r06qmzrp",
			Status{Indicator: Major, Component: "partial_outage", Incident: "Elevated errors on Sonnet", level: PartialOutage}},
		{"a component that the page does not have is unknown, not well", "statuspage-operational", "Claude AIP",
			Status{Indicator: None, level: Unheard}},
		{"of several components with one name the worst counts", "incidentio-compatible", "Login",
			Status{Indicator: Minor, Component: "full_outage", Incident: "Login fails for some users", level: MajorOutage}},
		{"incident.io's own page has no indicator: the worst component stands for it", "incidentio-native", "",
			Status{Indicator: Major, Incident: "Elevated error rates in the API", level: PartialOutage}},
		{"its affected component", "incidentio-native", "Responses",
			Status{Indicator: Major, Component: "partial_outage", Incident: "Elevated error rates in the API", level: PartialOutage}},
		{"its component that is not affected", "incidentio-native", "Batch",
			Status{Indicator: Major, Component: "operational", Incident: "Elevated error rates in the API", level: Operational}},
		{"an incident that names no component", "incidentio-unmapped", "",
			Status{Indicator: Minor, Incident: "Some requests are slow", level: Degraded}},
		{"maintenance in progress", "incidentio-maintenance", "", Status{Indicator: Maintenance, level: Degraded}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := readPage(fixture(t, tt.file), tt.part); got != tt.want || err != nil {
				t.Errorf("readPage(%s, %q) = %+v, %v, want %+v", tt.file, tt.part, got, err, tt.want)
			}
		})
	}
}

func TestReadPageDoesNotGuess(t *testing.T) {
	for _, tt := range []struct {
		name, json string
		want       Status // unless it cannot be read
		bad        bool
	}{
		{name: "a page of HTML", json: "<!doctype html>", bad: true},
		{name: "half a page", json: `{"status":{"indicator":"none"`, bad: true},
		{name: "JSON of something else", json: `{"ok":true}`, bad: true},
		{name: "an error of the gateway's", json: `{"type":"error","error":{"type":"not_found_error"}}`, bad: true},
		{name: "a null", json: `null`, bad: true},
		{name: "a list", json: `[]`, bad: true},
		{name: "an indicator that nobody has explained", json: `{"status":{"indicator":"purple"}}`, want: Status{Indicator: Unsaid, level: Unheard}},
		{name: "a resolved incident is over", json: `{"status":{"indicator":"none"},"incidents":[{"name":"old","status":"resolved"},{"name":"older","status":"postmortem"}]}`,
			want: Status{Indicator: None, level: Operational}},
		{name: "the status alone, without components", json: `{"status":{"indicator":"critical"}}`, want: Status{Indicator: Critical, level: MajorOutage}},
		{name: "an incident with controls in its title", json: `{"status":{"indicator":"none"},"incidents":[{"name":"a\u0000b\u001b[31mc\u2028d","status":"x"}]}`,
			want: Status{Indicator: None, Incident: "a b [31mc d", level: Operational}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := readPage([]byte(tt.json), ""); got != tt.want || (err != nil) != tt.bad {
				t.Errorf("readPage(%s) = %+v, %v, want %+v, error: %v", tt.json, got, err, tt.want, tt.bad)
			}
		})
	}
}

func TestALongTitleIsCutBetweenCharacters(t *testing.T) {
	got := clean(strings.Repeat("é", 500))
	if n := utf8.RuneCountInString(got); n != maxTitle || !strings.HasSuffix(got, "é…") || !utf8.ValidString(got) {
		t.Errorf("clean(500 × é) = %q (%d characters), want %d of them, the last …", got, n, maxTitle)
	}
}

func FuzzReadPage(f *testing.F) {
	files, err := filepath.Glob("testdata/feeds/*.json")
	if err != nil || len(files) == 0 {
		f.Fatalf("no fixtures: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, "")
		f.Add(data, "Responses")
	}
	f.Fuzz(func(t *testing.T, data []byte, part string) {
		s, err := readPage(data, part)
		if err != nil {
			if s != (Status{}) {
				t.Errorf("readPage = %+v with %v, want nothing with an error", s, err)
			}
			return
		}
		if indicator(string(s.Indicator)) != s.Indicator || s.Level() < Unheard || s.Level() > MajorOutage {
			t.Errorf("readPage = %+v, want an indicator and a level of the closed sets", s)
		}
		for _, text := range []string{s.Incident, s.Component} {
			if utf8.RuneCountInString(text) > maxTitle || strings.ContainsAny(text, "\n\r\x00\x1b") || !utf8.ValidString(text) {
				t.Errorf("readPage keeps %q, want one clean line of at most %d characters", text, maxTitle)
			}
		}
		if part == "" && s.Level() != s.Indicator.level() {
			t.Errorf("readPage = %+v, want the indicator's level %d", s, s.Indicator.level())
		}
	})
}

func fixture(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/feeds/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	return data
}
