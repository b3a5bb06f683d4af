package chain

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"understudy/pkg/chain/breaker"
	"understudy/pkg/classify"
	"understudy/pkg/config"
)

func TestAReloadKeepsTheStateOfTargetsThatStay(t *testing.T) {
	same := func([]config.Rung) {}
	edit := func(change func(*config.Target)) func([]config.Rung) {
		return func(r []config.Rung) { change(r[0].Target) }
	}
	moved := func(t *config.Target) {
		p, u := *t.Provider, *t.Provider.Endpoint
		u.Host = "other.example"
		p.Endpoint = &u
		t.Provider = &p
	}
	elsewhere := func(t *config.Target) {
		p := *t.Provider
		p.Project = "another"
		t.Provider = &p
	}
	rows := []struct {
		name   string
		change func([]config.Rung)
		keeps  bool
	}{
		{"an unchanged target is closed", same, true},
		{"other breaker settings close it", edit(func(t *config.Target) { t.Breaker = config.Breaker{Failures: 7, OpenFor: time.Minute} }), true},
		{"another family closes it", edit(func(t *config.Target) { t.Family = "m" }), true},
		{"a corrected model stays open for the wrong one's failures", edit(func(t *config.Target) { t.Model = "other" }), false},
		{"a corrected endpoint stays open for the wrong one's failures", edit(moved), false},
		{"another project stays open for the first one's failures", edit(elsewhere), false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			for trouble, want := range map[string]error{"a open": breaker.ErrOpen, "a cooling": breaker.ErrCooling} {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t, nil, "a", "b")
					b.trouble(trouble)
					rungs := targets("a", "b")
					row.change(rungs)
					next := NewBook(conf(nil, rungs), b.book, nil)
					if got := next.Breaker("a").Check(); row.keeps && got != want || !row.keeps && got != nil {
						t.Errorf("%s: Check() after the reload = %v, want kept: %v", trouble, got, row.keeps)
					}
				})
			}
		})
	}
}

func TestAnAttemptFromBeforeAReloadCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil, "a", "b")
		try, err := b.plan().Begin(Exchange{Attempt: 1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		b.book = NewBook(conf(nil, targets("b", "a")), b.book, nil)
		try.Report(limited(2 * time.Second))
		if got := b.book.Breaker("a").Check(); got != breaker.ErrCooling {
			t.Errorf("Check() = %v, want %v: a 429 during a reload is a 429", got, breaker.ErrCooling)
		}
	})
}

func TestAReloadForgetsTargetsThatAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil, "a", "b")
		b.trouble("b open")
		without := NewBook(conf(nil, targets("a")), b.book, nil)
		if got := without.Breaker("b"); got != nil {
			t.Errorf("Breaker(b) = %v, want nil", got)
		}
		again := NewBook(conf(nil, targets("a", "b")), without, func(breaker.Transition) {})
		if got := again.Breaker("b").State(); got != breaker.Closed {
			t.Errorf("State() of a target that came back = %v, want closed", got)
		}
	})
}

func TestTheListenerHearsEveryTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard []breaker.Transition
		cfg := conf(nil, targets("a", "b"))
		book := NewBook(cfg, nil, func(t breaker.Transition) { heard = append(heard, t) })
		for range 2 {
			try, err := book.Plan(cfg.Chains[0]).Begin(Exchange{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			try.Report(verdict(classify.ServerError))
		}
		want := [2]breaker.Transition{{Target: "a", From: breaker.Closed, To: breaker.Open, Own: true}, {Target: "b", From: breaker.Closed, To: breaker.Open, Own: true}}
		if len(heard) != 2 || [2]breaker.Transition(heard) != want {
			t.Errorf("heard %v, want %v", heard, want)
		}
	})
}

func TestWhoIsAskedWhetherAProviderCanBeCalled(t *testing.T) {
	errRole := errors.New("no credentials: role arn:aws:iam::1:role/llm cannot be assumed")
	secret, err := config.ReadSecret("env:UNDERSTUDY_TEST_ABSENT")
	if err != nil {
		t.Fatal(err)
	}
	rows := []struct {
		name  string
		auth  config.Auth
		ready func(*config.Provider) error
		want  string
	}{
		{"a credential that cannot be had is waited for", config.Auth{AWS: "default"}, func(*config.Provider) error { return errRole }, "skip"},
		{"a credential that can be had is missed", config.Auth{AWS: "default"}, func(*config.Provider) error { return nil }, "a"},
		{"a secret is read though its source says it is there", config.Auth{Header: "x-api-key", Secret: secret}, func(*config.Provider) error { return nil }, "a"},
		{"an absent secret is there where nobody says otherwise", config.Auth{Header: "x-api-key", Secret: secret}, nil, "skip"},
		{"the client's credential needs a source", config.Auth{FromClient: true}, func(*config.Provider) error { return errRole }, "a"},
		{"no credential needs a source", config.Auth{None: true}, func(*config.Provider) error { return errRole }, "a"},
		{"no credential needs a secret", config.Auth{None: true}, nil, "a"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, nil, "a", "b")
			p := *b.cfg.Targets["a"].Provider
			p.Auth = row.auth
			b.cfg.Targets["a"].Provider = &p
			b.book.Ready = row.ready
			if got := b.begin(1, nil); got != row.want {
				t.Errorf("Begin(1) = %s, want %s", got, row.want)
			}
		})
	}
}
