//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

func TestAReloadUnderLoadDropsNothing(t *testing.T) { // alone: it is heavy
	s := startStack(t, plan{chains: surviving()})
	s.plan.chains = append(s.plan.chains, chain{name: "new", api: "anthropic", on: []string{"b", "a"}})
	of := func(i int) call {
		return call{path: messages, stream: i%2 == 0, chain: []string{"flow", "whole"}[i/2%2], script: "a=ok n=5 delay=20ms", id: fmt.Sprint(t.Name(), i)}
	}
	answers := s.underLoad(t, of, func() {
		s.compose(t, 0).save(t, s.services[0].config)
		eventually(t, patience, func() error {
			a := s.sdk(within(t, patience), t, call{path: messages, chain: "new", script: "*=ok", id: "new"})
			if got := a.header.Get("x-llm-target"); got != "new/b" {
				return fmt.Errorf("x-llm-chain new was served by %q, %v, want new/b", got, a.err)
			}
			return nil
		})
	})
	for _, a := range answers {
		if a.err != nil || a.header.Get("x-llm-rung") != "0" {
			t.Errorf("an exchange got %d, %v, rung %q, want 200 from rung 0", a.status, a.err, a.header.Get("x-llm-rung"))
		}
	}
	s.reads(t, is(1), "understudy_config_reload_success")
}

func reloadKeeps(t *testing.T, p plan) {
	kept := chain{name: "kept", api: "anthropic", on: []string{"a", "b"}, breaker: fileBreaker{Failures: 1, OpenFor: time.Hour}}
	p.chains = []chain{kept}
	s := startStack(t, p)
	s.sdk(within(t, patience), t, call{path: messages, chain: "kept", script: "a=529"})
	s.breaker(t, "kept/a", open)

	s.plan.chains = append(s.plan.chains, chain{name: "new", api: "anthropic", on: []string{"b", "a"}})
	for i, service := range s.services {
		s.compose(t, i).save(t, service.config)
	}
	s.each(t, is(1), "understudy_breaker_share", "target", "new/b") // it is known there, and closed
	c := call{path: messages, chain: "kept", script: "*=ok", id: "after"}
	if a := s.sdk(within(t, patience), t, c); a.header.Get("x-llm-target") != "kept/b" {
		t.Errorf("served by %q, want kept/b: the breaker of kept/a was open", a.header.Get("x-llm-target"))
	}
	s.calls(t, "after", "a:0 b:1")
}

func TestABadFileChangesNothing(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{chains: []chain{{name: "stays", api: "anthropic", on: []string{"a", "b"}}}})
	good, err := os.ReadFile(s.services[0].config)
	if err != nil {
		t.Fatal(err)
	}
	bad := strings.Replace(string(good), "server:", "sever:", 1)
	write(t, s.services[0].config+".new", []byte(bad))
	if err := os.Rename(s.services[0].config+".new", s.services[0].config); err != nil {
		t.Fatal(err)
	}
	s.reads(t, is(0), "understudy_config_reload_success")
	c := call{path: messages, chain: "stays", script: "a=529; b=ok"}
	served{by: "b", target: "stays/b", rung: 1, attempts: 2, reason: "overloaded"}.check(t, c, s.sdk(within(t, patience), t, c))
	if log := s.services[0].tail(8 << 10); !strings.Contains(log, "sever") {
		t.Errorf("the log does not name the unknown key:\n%s", log)
	}
}

func TestNothingOfARequestOrASecretIsLogged(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{chains: []chain{{name: "quiet", api: "anthropic", on: []string{"a", "b"}}}})
	for _, script := range []string{"a=ok", "a=529; b=ok", "*=401", "a=error n=1", "*=reset"} {
		c := call{path: messages, stream: true, chain: "quiet", script: script, id: "a-word-of-the-answer", header: map[string]string{"x-mine": "a-word-of-the-request"}}
		s.sdk(within(t, patience), t, c)
	}
	s.services[0].stop(patience)
	log := s.services[0].tail(1 << 20)
	for _, secret := range []string{clientKey, "key-of-", "a-word-of", "hello"} {
		if strings.Contains(log, secret) {
			t.Errorf("the log says %q:\n%s", secret, log)
		}
	}
}
