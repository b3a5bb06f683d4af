package admin

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/net/html"
)

func TestTheStatusFitsItsSchema(t *testing.T) {
	s := serve(sample(3, 2), nil)
	_, text := s.get(t, "/api/status.schema.json")
	schema := compile(t, text)
	for name, status := range map[string]Status{"everything is said": sample(3, 2), "of a small config": small()} {
		resp, body := serve(status, nil).get(t, "/api/status")
		if got := resp.Header.Get("Content-Type"); got != "application/json" {
			t.Errorf("Content-Type = %s, want application/json", got)
		}
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
		if err == nil {
			err = schema.Validate(value)
		}
		if err != nil {
			t.Errorf("%s: /api/status does not fit its schema: %v\n%s", name, err, body)
		}
	}
	if value := any(map[string]any{"at": "now"}); schema.Validate(value) == nil {
		t.Error("the schema lets anything pass")
	}
}

// small is a status with as little as there can be.
func small() Status {
	s := sample(8, 1)
	s.Envoy = Envoy{Oldest: "1.36.4", Newest: "1.40.0"}
	s.Config, s.Store = Config{OK: true}, "up"
	s.Drills, s.Failovers, s.Transitions, s.Faults, s.Providers = []Drill{}, []Failover{}, []Transition{}, []string{}, []Provider{}
	s.Chains[0] = Chain{Rungs: []Rung{{Targets: []string{s.Targets[0].Name}}}, Degrade: []string{}}
	s.Targets = []Target{{Name: s.Targets[0].Name, Chains: []string{}, State: "closed", Verdicts: []Verdict{}}}
	return s
}

func compile(t *testing.T, text string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("status.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("status.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// hostile means something in every place where a page can have it.
const hostile = `"'></td><script>alert(1)</script><img src=x onerror=alert(2)>` + "`{{.}}\n\ndata: x\u2028&lt;javascript:alert(3)"

func TestWhatOthersHaveSaidCannotActOnThePage(t *testing.T) {
	clean, spoiled := sample(4, 2), sample(4, 2)
	spoil(reflect.ValueOf(&spoiled).Elem(), hostile)
	for i := range spoiled.Chains { // so that rungs find their targets
		for j := range spoiled.Chains[i].Rungs {
			spoiled.Chains[i].Rungs[j].Targets = []string{spoiled.Targets[j%4].Name}
		}
	}
	for _, path := range []string{"/", "/operate", "/?done=" + "%3Cscript%3E", "/operate?target=%22%3E%3Cscript%3E"} {
		_, want := serve(clean, nil).get(t, path)
		_, got := serve(spoiled, nil).get(t, path)
		if got, want := skeleton(t, got), skeleton(t, want); !slices.Equal(got, want) {
			t.Errorf("GET %s with hostile words has other elements: %s", path, diff(got, want))
		}
	}
	for _, data := range events(t, serve(spoiled, nil), "") {
		var parts []part
		if err := json.Unmarshal([]byte(data), &parts); err != nil {
			t.Fatalf("an event is not JSON: %v\n%s", err, data)
		}
		for _, p := range parts {
			for _, element := range skeleton(t, "<table>"+string(p.HTML)+"</table>") {
				if strings.HasPrefix(element, "script") || strings.HasPrefix(element, "img") || strings.Contains(element, " on") {
					t.Errorf("the event's part %s has %s", p.ID, element)
				}
			}
		}
	}
}

// skeleton is the elements of a page with the names of their attributes, and where links lead if not into the page.
func skeleton(t *testing.T, page string) (elements []string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		words := []string{n.Data}
		for _, a := range n.Attr {
			words = append(words, a.Key)
			if a.Key == "src" || a.Key == "action" || a.Key == "href" && !strings.HasPrefix(a.Val, "/") && !strings.HasPrefix(a.Val, "#") {
				words = append(words, a.Val)
			}
		}
		elements = append(elements, strings.Join(words, " "))
	}
	return elements
}

// diff is the first difference.
func diff(got, want []string) string {
	for i := range got {
		if i >= len(want) || got[i] != want[i] {
			return got[i]
		}
	}
	return "fewer"
}

func TestNothingActsFromWithinThePage(t *testing.T) {
	for _, path := range []string{"/", "/operate"} {
		_, page := serve(sample(4, 2), nil).get(t, path)
		for _, never := range []string{"<style", "style=", "<script>", " onclick", "http://", "https://"} {
			if strings.Contains(page, never) {
				t.Errorf("GET %s has %s", path, never)
			}
		}
	}
}

func TestEveryAnswerSaysWhatBrowsersMayDoWithIt(t *testing.T) {
	s := serve(sample(4, 2), nil)
	for _, path := range []string{"/", "/operate", "/api/status", "/api/status.schema.json", "/assets/page.css", "/assets/live.js", "/metrics", "/nosuch", "/healthz"} {
		resp, _ := s.get(t, path)
		for name, want := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "same-origin",
			"Cache-Control": "no-store", "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := resp.Header.Get(name); got != want {
				t.Errorf("GET %s: %s = %q, want %q", path, name, got, want)
			}
		}
	}
	if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("the policy is %s, want one that allows nothing by default and nothing unsafe", policy)
	}
}

func TestALargePageIsLight(t *testing.T) {
	s := serve(sample(200, 50), nil)
	sum := 0
	for _, path := range []string{"/", "/assets/page.css", "/assets/live.js"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:9003"+path, nil)
		r.Header.Set("Accept-Encoding", "gzip, br")
		resp, body := s.do(t, r)
		if got := resp.Header.Get("Content-Encoding"); got != "gzip" {
			t.Fatalf("GET %s: Content-Encoding = %q, want gzip", path, got)
		}
		_, plain := s.get(t, path)
		z, err := gzip.NewReader(strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(z)
		if path != "/" && (err != nil || !bytes.Equal(text, []byte(plain))) {
			t.Errorf("GET %s compressed is another text: %v", path, err)
		}
		sum += len(body)
		t.Logf("%s: %d bytes, %d compressed", path, len(text), len(body))
	}
	if sum > 100<<10 {
		t.Errorf("the page of 200 targets and 50 chains has %d bytes compressed, want at most 100 KiB", sum)
	}
}

func TestThePageSaysWhatThereIsToSee(t *testing.T) {
	_, page := serve(sample(3, 2), nil).get(t, "/?done=open")
	text := regexp.MustCompile(`\s+`).ReplaceAllString(textOf(t, page), " ")
	for _, want := range []string{
		"Done: the breaker is forced open", "Drill DRILL1 makes 5 % of the requests of chain-0 meet faults (*: reset; )", "Forced open by an operator: provider-0/model-with-a-usual-name-0.",
		"The changed config is not used: understudy.yaml:3: chains: no", "The store does not answer", "Switched off by an operator: chain chain-0.", "2 of 3 not closed",
		"◐ half-open half-open in 4s", "1m30s left", "server_error (api_error_2)", "100 by the primary, 20 by a fallback, 3 degraded, 2 failed, 1 canceled",
		"$12.34 of $100.00 left for 24h0m0s, of the tightest tenant, soft, reopens Nov 30 13:00:00 UTC", "3 wait, 1 run oldest 1m15s", "partial outage: Elevated errors",
		"bedrock missing", "envoy-1 1.35.0 not one that this is made for internal cds 12 rds: route: unknown cluster", "Envoy envoy-1 refuses its configuration (cds): no such field", "Envoy envoy-1 goes on with an older configuration",
		"8f14e45f-0000-4c1d-9d2a-1b2c3d4e5f60 provider-0/model-with-a-usual-name-0 provider-1/model-with-a-usual-name-1, downshift overloaded (drill DRILL1) 0s 1.234s",
		"closed open overloaded this replica", "observes only", "replica replica-1",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
	_, page = serve(small(), nil).get(t, "/")
	for _, want := range []string{"all 1 closed", "None since the start.", "Envoy has its configuration from elsewhere"} {
		if !strings.Contains(textOf(t, page), want) {
			t.Errorf("the page of a small config does not say %q", want)
		}
	}
}

func textOf(t *testing.T, page string) string {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for n := range root.Descendants() {
		if n.Type == html.TextNode {
			b.WriteString(n.Data)
			b.WriteByte(' ')
		}
	}
	return strings.NewReplacer(" ,", ",", " .", ".", " :", ":", "  ", " ").Replace(b.String())
}

func TestASharesWordsAreNeverBetterThanTheShare(t *testing.T) {
	for share, want := range map[float64]string{0: "0 %", 0.0001: "<1 %", 0.5: "50 %", 0.999: ">99 %", 1: "100 %"} {
		if got := percent(share); got != want {
			t.Errorf("percent(%v) = %s, want %s", share, got, want)
		}
	}
}
