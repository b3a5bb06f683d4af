//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"understudy/internal/scripted"
)

// carried are the credentials that a careless client sends, each with another secret in it.
var carried = map[string]string{
	"authorization":        "Bearer " + clientKey,
	"x-api-key":            "client-anthropic-secret",
	"api-key":              "client-azure-secret",
	"x-goog-api-key":       "client-google-secret",
	"x-amz-security-token": "client-aws-secret",
	"x-amz-date":           "20200101T000000Z",
	"cookie":               "session=client-cookie-secret",
	"openai-organization":  "client-organization-secret",
	"openai-project":       "client-project-secret",
}

// carriedInQuery do the same in the query.
const carriedInQuery = "key=client-query-secret&api-key=client-query-secret"

// clientSecrets are what no provider may see of a client, but the one that takes the client's own credential.
var clientSecrets = []string{
	clientKey, "client-anthropic-secret", "client-azure-secret", "client-google-secret", "client-aws-secret", "20200101T000000Z",
	"client-cookie-secret", "client-organization-secret", "client-project-secret", "client-query-secret",
}

// everywhere are the places of each dialect that chains are drawn from.
var everywhere = map[string][]string{
	"anthropic": {"anthropic", "anthropic2", "invoke", "runtime", "mantle", "web", "vertex", "foundry", "fentra", "apikey"},
	"openai":    {"openai", "openai2", "azure", "entra", "own"},
	"gemini":    {"gemini", "vgemini"},
}

var dialects = []string{"anthropic", "openai", "gemini"}

const drawnChains = 1000

// drawn is a chain of some places in any order, sometimes with a rung that two share.
func drawn(r *rand.Rand, i int) chain {
	api := dialects[r.IntN(len(dialects))]
	on := slices.Clone(everywhere[api])
	r.Shuffle(len(on), func(i, j int) { on[i], on[j] = on[j], on[i] })
	on = on[:min(len(on), 2+r.IntN(3))]
	if len(on) > 2 && r.IntN(3) == 0 {
		on = append([]string{on[0] + "|" + on[1]}, on[2:]...)
	}
	return chain{name: fmt.Sprint("drawn-", i), api: api, on: on, shares: "all", breaker: patient, more: fileChain{Retry: unbounded}}
}

// drawnCall goes through such a chain: each place may fail in its own way.
func drawnCall(r *rand.Rand, c chain) call {
	var script strings.Builder
	ways := []string{"529", "500", "503", "reset", "html502", "error-first", "error-start", "cut n=0", "empty", "ok", "error n=2"}
	for _, name := range everywhere[c.api] {
		fmt.Fprintf(&script, "%s=%s; ", name, ways[r.IntN(len(ways))])
	}
	paths := map[string][]string{"anthropic": {messages}, "openai": {chats, responsed}, "gemini": {geminiPath, geminiStreamPath}}[c.api]
	k := call{path: paths[r.IntN(len(paths))], stream: r.IntN(2) == 0, chain: c.name, id: c.name, script: script.String(), header: map[string]string{"anthropic-version": "2023-06-01"}}
	own := slices.ContainsFunc(c.on, func(rung string) bool { return slices.Contains(strings.Split(rung, "|"), "own") })
	for name, value := range carried {
		if name == "authorization" || !own { // one that takes the client's credential takes one
			k.header[name] = value
		}
	}
	if !own {
		k.path += map[bool]string{true: "&", false: "?"}[strings.Contains(k.path, "?")] + carriedInQuery
	}
	return k
}

func bodyOf(c call) string {
	if strings.HasPrefix(c.path, "/v1beta/") {
		return richGemini
	}
	path, _, _ := strings.Cut(c.path, "?")
	return requestBody(path, c.stream)
}

func TestNoCredentialReachesAnotherProvider(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	var chains []chain
	var calls []call
	for i := range drawnChains {
		chains = append(chains, drawn(r, i))
		calls = append(calls, drawnCall(r, chains[i]))
	}
	var places []string
	for _, list := range everywhere {
		places = append(places, list...)
	}
	s := startStack(t, plan{places: places, chains: chains})
	var next atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(calls); i = int(next.Add(1)) - 1 {
				s.ask(t, calls[i], bodyOf(calls[i]))
			}
		})
	}
	wg.Wait()
	asked := 0
	for _, name := range places {
		n := s.providers[name].Count("")
		if n == 0 {
			t.Errorf("seed %d: %s was never asked", seed, name)
		}
		asked += n
		s.keepsToItself(t, name)
	}
	if asked < drawnChains*5/4 {
		t.Errorf("seed %d: %d attempts for %d requests, want more failovers", seed, asked, drawnChains)
	}
	s.refusals(t)
	s.survives(t)
}

// keepsToItself checks that nothing but a place's own credential ever came there.
func (s *Stack) keepsToItself(t *testing.T, name string) {
	t.Helper()
	foreign := map[string]string{}
	for _, secret := range clientSecrets {
		foreign[secret] = "the client"
	}
	for other := range s.places {
		for _, secret := range s.secrets(other) {
			foreign[secret] = other
		}
	}
	for _, own := range s.secrets(name) {
		delete(foreign, own)
	}
	for _, p := range profiles {
		_, secret, _ := awsKey(p)
		foreign[secret] = p // goes nowhere at all
	}
	for _, r := range s.providers[name].Requests("") {
		said := fmt.Sprint(r.Path, r.Header, string(r.Body))
		for secret, of := range foreign {
			if strings.Contains(said, secret) {
				t.Errorf("%s was sent a credential of %s: %q in %s %v", name, of, secret, r.Path, r.Header)
			}
		}
	}
}

func TestASkewedClockIsCorrectedOnce(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			t.Parallel()
			s := startStack(t, plan{places: []string{"invoke", "runtime", "anthropic"}, skew: skew, chains: []chain{
				{name: "alone", api: "anthropic", on: []string{"invoke"}, breaker: patient},
				{name: "first", api: "anthropic", on: []string{"runtime", "anthropic"}, breaker: patient},
			}})
			for _, c := range []struct{ chain, place string }{{"alone", "invoke"}, {"first", "runtime"}} {
				for i := range 5 {
					got := s.rich(within(t, patience), t, call{path: messages, stream: i%2 == 0, chain: c.chain, script: "*=ok", id: fmt.Sprint(t.Name(), c.chain, i)})
					if got.err != nil || got.status != http.StatusOK {
						t.Errorf("request %d to %s = %d, %v, want 200", i, c.place, got.status, got.err)
					}
					if by := got.header.Get("x-llm-target"); i > 0 && by != c.chain+"/"+c.place {
						t.Errorf("request %d was served by %s, want %s", i, by, c.place)
					}
				}
				refused := 0
				for _, r := range s.providers[c.place].Requests("") {
					if strings.Contains(r.Refused, "Signature ") {
						refused++
					}
				}
				if refused != 1 {
					t.Errorf("%s refused %d signatures, want 1: the next one is of the corrected time", c.place, refused)
				}
			}
		})
	}
}

func TestCredentialsThatEndFailNoRequest(t *testing.T) { // alone: it is about time
	on := map[string]call{"web": {path: messages}, "vertex": {path: messages, stream: true}, "entra": {path: chats}, "vgemini": {path: geminiPath}}
	p := plan{places: names(on), life: 6 * time.Second}
	for name := range on {
		p.chains = append(p.chains, chain{name: name, api: everywhereOf(name), on: []string{name}, breaker: patient})
	}
	s := startStack(t, p)
	ctx := within(t, 16*time.Second)
	var wg sync.WaitGroup
	for name, c := range on {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				c.chain, c.script, c.id = name, "*=ok", fmt.Sprint(name, i)
				if got := s.rich(within(t, patience), t, c); got.err != nil || got.status != http.StatusOK {
					t.Errorf("request %d to %s = %d %s, %v, want 200", i, name, got.status, got.body, got.err)
				}
				wait(ctx, 20*time.Millisecond)
			}
		})
	}
	wg.Wait()
	s.refusals(t)
	for name := range on {
		used := map[string]bool{}
		for _, r := range s.providers[name].Requests("") {
			used[r.Header.Get("authorization")[:min(60, len(r.Header.Get("authorization")))]+r.Header.Get("x-amz-security-token")] = true
		}
		if len(used) < 3 {
			t.Errorf("%s was shown %d credentials in 16 s, want at least 3 of 6 s each", name, len(used))
		}
	}
}

func TestACloudThatIssuesNothingAtTheStartStopsNothing(t *testing.T) {
	t.Parallel()
	on := []string{"web", "vertex", "fentra", "anthropic"}
	s := startStack(t, plan{places: on, mute: true, container: true, chains: []chain{
		{name: "clouds", api: "anthropic", on: on, breaker: patient, more: fileChain{Retry: unbounded}},
		{name: "cloud", api: "anthropic", on: []string{"vertex"}, breaker: patient},
	}})
	ask := func(chain, id string) answer {
		return s.sdk(within(t, patience), t, call{path: messages, chain: chain, script: "*=ok", id: id})
	}
	ask("clouds", "early").target(t, "clouds/anthropic")
	s.calls(t, "early", "web:0 vertex:0 fentra:0")
	if a := ask("cloud", "alone"); a.status != http.StatusServiceUnavailable {
		t.Errorf("a chain without any credential = %d, %v, want 503", a.status, a.err)
	}
	s.issuer.Break(false)
	eventually(t, patience, func() error {
		if got := ask("clouds", "late").header.Get("x-llm-target"); got != "clouds/web" {
			return fmt.Errorf("served by %s, want clouds/web", got)
		}
		return nil
	})
	s.refusals(t)
	for _, want := range []string{"no AWS credential", "no Google token"} { // Microsoft's SDK may still be trying
		if log := s.services[0].tail(1 << 20); !strings.Contains(log, want) {
			t.Errorf("the log does not say %q:\n%s", want, log)
		}
	}
}

// everywhereOf is the dialect of a place.
func everywhereOf(name string) string {
	for api, list := range everywhere {
		if slices.Contains(list, name) {
			return api
		}
	}
	return ""
}

func TestAReplacedSecretIsUsedWithoutAFailedRequest(t *testing.T) { // alone: it is heavy
	s := startStack(t, plan{places: []string{"anthropic", "azure"}, chains: []chain{
		{name: "anthropic", api: "anthropic", on: []string{"anthropic"}, breaker: patient},
		{name: "azure", api: "openai", on: []string{"azure"}, breaker: patient},
	}})
	of := func(i int) call {
		if i%2 == 0 {
			return call{path: messages, stream: i%4 == 0, chain: "anthropic", script: "*=ok", id: fmt.Sprint(t.Name(), i)}
		}
		return call{path: chats, stream: i%4 == 1, chain: "azure", script: "*=ok", id: fmt.Sprint(t.Name(), i)}
	}
	headers := map[string]string{"anthropic": "x-api-key", "azure": "api-key"}
	answers := s.underLoad(t, of, func() {
		for name, header := range headers {
			path := filepath.Join(s.dir, name+".secret")
			write(t, path+".new", []byte(newKeyOf(name)+"\n"))
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
			from := time.Now()
			eventually(t, patience, func() error { return lastKey(s.providers[name], header, newKeyOf(name)) })
			t.Logf("%s: the new secret was used after %s", name, time.Since(from).Round(time.Millisecond))
		}
		wait(within(t, patience), time.Second)
	})
	for _, a := range answers {
		if a.err != nil || a.status != http.StatusOK {
			t.Errorf("a request under load = %d, %v, want 200", a.status, a.err)
		}
	}
	for name, header := range headers {
		switches := 0
		requests := s.providers[name].Requests("")
		for i := 1; i < len(requests); i++ {
			if requests[i].Header.Get(header) != requests[i-1].Header.Get(header) {
				switches++
			}
		}
		if last := requests[len(requests)-1].Header.Get(header); last != newKeyOf(name) || switches > 16 { // of those on their way
			t.Errorf("%s: the last of %d requests carries %q after %d switches, want the new secret for good", name, len(requests), last, switches)
		}
	}
	s.refusals(t)
}

// lastKey is nil when the latest request carries a key.
func lastKey(p *scripted.Provider, header, want string) error {
	requests := p.Requests("")
	if len(requests) == 0 || requests[len(requests)-1].Header.Get(header) != want {
		return fmt.Errorf("provider %s is not called with the new key", p.Name())
	}
	return nil
}
