//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"understudy/internal/scripted"
	"understudy/internal/stage"
)

// pledge is a chain as it runs and as a file promises it.
type pledge struct {
	name  string
	chain chain        // that runs, on a and b unless it says otherwise
	file  func(*chain) // makes of it what the file promises; nil: the same
	want  []string     // in the sentence about it; empty: the drill passes
	place string       // the Envoy of this name is called; "" is the stack's own
}

// more is the policy of a chain that does not wait long.
func more(c fileChain) fileChain {
	if c.Deadlines == (fileDeadlines{}) {
		c.Deadlines = fileDeadlines{FirstContent: time.Second, Answer: time.Second, Idle: time.Second}
	}
	return c
}

func off(message string) *fileOff { return &fileOff{Message: message} }

// pledges are the deliberate faults: what runs is not what the file promises, or does not work.
func pledges() []pledge {
	says := func(edit func(*fileChain)) func(*chain) { return func(c *chain) { edit(&c.more) } }
	unwell := func(model string) func(string, *fileTarget) {
		return func(provider string, t *fileTarget) {
			if provider == "b" {
				t.Model = model
			}
		}
	}
	sorry := fileChain{Degrade: []string{"off"}, Off: off("Sorry.")}
	return []pledge{
		{name: "nothing is wrong", chain: chain{more: fileChain{Degrade: []string{"cache", "queue", "off"}, Off: off("Sorry.")}}},
		{name: "the rungs have changed places", chain: chain{on: []string{"b", "a"}},
			file: func(c *chain) { c.on = []string{"a", "b"} }, want: []string{"targets[0]: x-llm-target is %s/b, not %s/a"}},
		{name: "the file has a rung that does not run",
			file: func(c *chain) { c.on = []string{"a", "b", "c"} }, want: []string{"targets: ", `refuses the drill`, `no target "%s/c"`}},
		{name: "the chain does not run", file: func(c *chain) { c.name += "-new" }, want: []string{"refuses the drill", `no chain is named "%s-new"`}},
		{name: "the chain only observes", chain: chain{more: fileChain{Mode: "observe"}},
			file: says(func(c *fileChain) { c.Mode = "" }), want: []string{"refuses the drill", "only observes"}},

		{name: "the message of off is another", chain: chain{more: sorry},
			file: says(func(c *fileChain) { c.Off = off("Please call 0800 1234.") }), want: []string{`off: it says "Sorry.", not "Please call 0800 1234."`}},
		{name: "the status of off is another", chain: chain{more: sorry},
			file: says(func(c *fileChain) { c.Off = &fileOff{Status: 500, Message: "Sorry."} }), want: []string{"off: the status is 503, not 500"}},
		{name: "off is an error and not an answer", chain: chain{more: sorry},
			file: says(func(c *fileChain) { c.Off = &fileOff{As: "answer", Message: "Sorry."} }), want: []string{"off: the status is 503, not 200", "it is not a whole answer"}},
		{name: "there is no off", file: says(func(c *fileChain) { c.Degrade, c.Off = sorry.Degrade, sorry.Off }),
			want: []string{"off: ", "x-llm-degraded is missing, not off"}},
		{name: "nothing is cached", file: says(func(c *fileChain) { c.Degrade = []string{"cache"} }),
			want: []string{"cache: the status is 529, not 200", "x-llm-degraded is missing, not cache"}},
		{name: "nothing is queued", file: says(func(c *fileChain) { c.Degrade = []string{"queue"} }),
			want: []string{"queue: the status is 529, not 202", "x-llm-degraded is missing, not queue"}},
		{name: "the rung of the downshift is dead", chain: chain{on: []string{"a", "dead"}, more: fileChain{Degrade: []string{"downshift"}, From: "%s/dead"}},
			want: []string{"downshift_from: ", "x-llm-fallback-reason is transport, not overloaded", "check providers.dead-anthropic.endpoint"}},

		{name: "the fallback's model is unknown to its provider", chain: chain{tune: unwell("no-such-model")},
			want: []string{"targets[1]: ", "x-llm-rung is missing, not 1", "check targets.%s/b.model"}},
		{name: "the fallback's credential is wrong", chain: chain{on: []string{"a", "c"}},
			want: []string{"targets[1]: ", "x-llm-rung is missing, not 1", "refuses its credential: check providers.c-anthropic.auth"}},
		{name: "the fallback answers in another dialect", chain: chain{tune: unwell("of-another-dialect")},
			want: []string{"targets[1]: ", "in another dialect: check providers.b-anthropic.api and endpoint"}},

		{name: "the deadline is longer", chain: chain{more: fileChain{Deadlines: fileDeadlines{FirstContent: 20 * time.Second, Answer: 20 * time.Second, Idle: time.Second}}},
			file: says(func(c *fileChain) { c.Deadlines.FirstContent, c.Deadlines.Answer = time.Second, time.Second }),
			want: []string{"no answer began within 7s", "is the deadline of the configuration in use longer?"}},
		{name: "answers leave at their first content", file: says(func(c *fileChain) { c.Commit = "complete" }),
			want: []string{"commit: x-llm-rung is 0, not 1"}},
		{name: "answers leave at once", chain: chain{more: fileChain{Commit: "headers"}},
			file: says(func(c *fileChain) { c.Commit = "" }), want: []string{"targets: the status is 529, not 200"}},
		{name: "a lower tier is let through", file: says(func(c *fileChain) { c.On = map[string]string{"tier_downgrade": "next"} }),
			want: []string{"on.tier_downgrade: x-llm-rung is 0, not 1"}},
		{name: "a rate limit is let through", chain: chain{more: fileChain{On: map[string]string{"rate_limited": "return"}}},
			file: says(func(c *fileChain) { c.On = nil }), want: []string{"on.rate_limited: the status is 429, not 200"}},

		{name: "Envoy's front does not ask again", place: "unretried", want: []string{"targets[1]: ", "its route has no retry policy"}},
		{name: "Envoy's front asks too seldom", chain: chain{on: []string{"a", "c", "b"}}, place: "seldom",
			want: []string{"targets[2]: ", "num_retries is too small"}},
		{name: "Envoy does not know the fallback", place: "stale",
			want: []string{"targets[1]: ", "x-llm-fallback-reason is transport, not overloaded", "that Envoy has its cluster"}},
		{name: "Envoy does not know where faults are played", place: "undrilled",
			want: []string{"x-llm-fallback-reason is transport, not overloaded", "Envoy lacks the cluster understudy-drill"}},
	}
}

// fill gives each pledge's chain its name.
func (p *pledge) fill(i int) {
	c := &p.chain
	c.name, c.api, c.more = fmt.Sprintf("pledge-%d", i), "anthropic", more(c.more)
	c.more.From = strings.ReplaceAll(c.more.From, "%s", c.name)
	if c.on == nil {
		c.on = []string{"a", "b"}
	}
	for j := range p.want {
		p.want[j] = strings.ReplaceAll(p.want[j], "%s", c.name)
	}
}

// fussy is an account that knows its models and its key, and of which one model is not what it seems.
func fussy(provider string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		switch asks := func(model string) bool { return bytes.Contains(body, []byte(model)) }; {
		case provider == "c" && r.Header.Get("x-api-key") != key(account(provider, "anthropic")):
			r.Header.Set(scripted.ScriptHeader, "*=401")
		case asks("no-such-model"):
			r.Header.Set(scripted.ScriptHeader, "*=404")
		case asks("of-another-dialect"):
			r.URL.Path = "/v1/chat/completions"
		}
		h.ServeHTTP(w, r)
	})
}

// bootstraps are Envoys that are not as the file needs them.
var bootstraps = map[string]func(map[string]any){
	"unretried": func(boot map[string]any) {
		eachRoute(boot, func(route map[string]any) { delete(route, "retry_policy") })
	},
	"seldom": func(boot map[string]any) {
		eachRoute(boot, func(route map[string]any) {
			if policy, ok := route["retry_policy"].(map[string]any); ok {
				policy["num_retries"] = 1
			}
		})
	},
	"stale":     func(boot map[string]any) { withoutCluster(boot, "llm-b-anthropic") },
	"undrilled": func(boot map[string]any) { withoutCluster(boot, "understudy-drill") },
}

// eachRoute visits what the routes of a bootstrap do.
func eachRoute(v any, do func(map[string]any)) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			eachRoute(e, do)
		}
	case map[string]any:
		for name, e := range v {
			if route, ok := e.(map[string]any); ok && name == "route" {
				do(route)
			}
			eachRoute(e, do)
		}
	}
}

func withoutCluster(boot map[string]any, name string) {
	static := boot["static_resources"].(map[string]any)
	static["clusters"] = slices.DeleteFunc(static["clusters"].([]any), func(c any) bool {
		return c.(map[string]any)["name"] == name
	})
}

// beside starts another Envoy for the same service, with the last word on its bootstrap.
func (s *Stack) beside(t *testing.T, name string, edit func(map[string]any)) *Stack {
	t.Helper()
	view := *s
	view.plan.bootstrap = edit
	view.listen, view.envoyAdmin = stage.Free(t), stage.Free(t)
	config := filepath.Join(s.dir, name+".yaml")
	view.compose(t, 0).save(t, config)
	envoy, err := view.runEnvoy(t, name, config)
	if err != nil {
		t.Fatal(err)
	}
	s.solos = append(s.solos, envoy)
	return &view
}

func TestADrillNamesEachDeliberateFault(t *testing.T) {
	t.Parallel()
	rows := pledges()
	var chains []chain
	for i := range rows {
		rows[i].fill(i)
		chains = append(chains, rows[i].chain)
	}
	p := drills(t, plan{chains: chains, before: fussy})
	playing := p.edit
	p.edit = func(f *file) {
		playing(f)
		wrong := f.Providers["c-anthropic"]
		wrong.Auth = f.Providers["b-anthropic"].Auth
		f.Providers["c-anthropic"] = wrong
	}
	s := startStack(t, p)
	places := map[string]*Stack{"": s}
	for name, edit := range bootstraps {
		places[name] = s.beside(t, name, edit)
	}
	t.Run("rows", func(t *testing.T) {
		for i := range rows {
			t.Run(rows[i].name, func(t *testing.T) {
				t.Parallel()
				s.checkPledge(t, &rows[i], chains, i, places[rows[i].place].front())
			})
		}
	})
	s.survives(t)
}

// checkPledge drills one chain by its file, and reads what the drill says.
func (s *Stack) checkPledge(t *testing.T, p *pledge, chains []chain, i int, gateway string) {
	promised := chains[i]
	f := s.services[0].config
	if p.file != nil {
		p.file(&promised)
		view := *s
		view.plan.chains = slices.Clone(chains)
		view.plan.chains[i] = promised
		f = filepath.Join(t.TempDir(), "promised.yaml")
		view.compose(t, 0).save(t, f)
	}
	code, out := drillOf(t, "-c", f, "--gateway", gateway, "--chain", promised.name)
	if want := min(1, len(p.want)); code != want {
		t.Errorf("extproc drill = exit %d, want %d\n%s", code, want, out)
	}
	if len(p.want) == 0 {
		return
	}
	if !slices.ContainsFunc(unkept(out), func(sentence string) bool {
		return !slices.ContainsFunc(p.want, func(part string) bool { return !strings.Contains(sentence, part) })
	}) {
		t.Errorf("no broken promise is told by a sentence with %q:\n%s", p.want, strings.Join(unkept(out), "\n"))
	}
}

// unkept are the sentences of promises that were not kept.
func unkept(out string) []string {
	var all []string
	lines := strings.Split(out, "\n")
	for i, line := range lines[:len(lines)-1] {
		if strings.HasPrefix(line, "BROKEN") {
			all = append(all, lines[i+1])
		}
	}
	return all
}
