package credential

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"understudy/pkg/config"
)

func secret(t testing.TB, ref string) config.Secret {
	t.Helper()
	s, err := config.ReadSecret(ref)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// one is a config with the provider p.
func one(a config.Auth) *config.Config {
	return &config.Config{Providers: map[string]*config.Provider{"p": {Name: "p", Region: "us-east-1", Auth: a}}}
}

func newSet(c *config.Config, prev *Set) *Set { return New(c, prev, slog.New(slog.DiscardHandler)) }

func TestSignSaysWhatTheConfigSays(t *testing.T) {
	dir := t.TempDir()
	newline, empty, absent := filepath.Join(dir, "newline"), filepath.Join(dir, "empty"), filepath.Join(dir, "absent")
	write(t, newline, "sk-file\n")
	write(t, empty, "\n")
	t.Setenv("KEY", "sk-env")
	for _, row := range []struct {
		name string
		auth config.Auth
		want []Header
		err  string
	}{
		{"a key in a header", config.Auth{Header: "x-api-key", Secret: secret(t, "env:KEY")}, []Header{{"x-api-key", "sk-env"}}, ""},
		{"a bearer token", config.Auth{Header: "authorization", Prefix: "Bearer ", Secret: secret(t, "env:KEY")},
			[]Header{{"authorization", "Bearer sk-env"}}, ""},
		{"a key of Azure's has no authorization beside it", config.Auth{Header: "api-key", Secret: secret(t, "env:KEY")},
			[]Header{{"api-key", "sk-env"}}, ""},
		{"the line break at the end of a key file is not of the key",
			config.Auth{Header: "x-api-key", Secret: secret(t, "file:"+newline)}, []Header{{"x-api-key", "sk-file"}}, ""},
		{"an empty key file is said", config.Auth{Header: "x-api-key", Secret: secret(t, "file:"+empty)}, nil,
			"provider p: secret file:" + empty + ": absent or empty"},
		{"an absent key file is said", config.Auth{Header: "x-api-key", Secret: secret(t, "file:"+absent)}, nil,
			"no such file or directory"},
		{"an absent variable is said", config.Auth{Header: "x-api-key", Secret: secret(t, "env:NO_SUCH_KEY")}, nil,
			"provider p: secret env:NO_SUCH_KEY: absent or empty"},
		{"the client's own credential is left alone", config.Auth{FromClient: true}, nil, ""},
		{"no credential", config.Auth{None: true}, nil, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newSet(one(row.auth), nil)
			got, err := s.Sign(t.Context(), "p", Request{})
			if !slices.Equal(got, row.want) || !says(err, row.err) {
				t.Errorf("Sign() = %v, %v, want %v, %q", got, err, row.want, row.err)
			}
			if err := s.Ready("p"); !says(err, row.err) {
				t.Errorf("Ready() = %v, want %q", err, row.err)
			}
		})
	}
}

// says reports whether err holds the text, or is nil for "".
func says(err error, text string) bool {
	if err == nil || text == "" {
		return err == nil && text == ""
	}
	return strings.Contains(err.Error(), text)
}

func TestAProviderThatIsNotThereIsAnError(t *testing.T) {
	s := newSet(one(config.Auth{None: true}), nil)
	if _, err := s.Sign(t.Context(), "q", Request{}); !says(err, `no provider is named "q"`) {
		t.Errorf("Sign(q) = %v, want that no provider is named so", err)
	}
	if err := s.Ready("q"); !says(err, `no provider is named "q"`) {
		t.Errorf("Ready(q) = %v, want that no provider is named so", err)
	}
	if s.Skewed("q", "20261130T000000Z", "Mon, 30 Nov 2026 01:00:00 GMT") {
		t.Error("Skewed(q) = true, want false")
	}
}

func TestNamesAreAllThatSignSets(t *testing.T) {
	t.Setenv("KEY", "k")
	got := newSet(one(config.Auth{Header: "x-acme-key", Secret: secret(t, "env:KEY")}), nil).Names()
	want := []string{
		"api-key", "authorization", "x-acme-key", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token", "x-api-key",
		"x-goog-api-key", "x-goog-user-project",
	}
	if !slices.Equal(got, want) {
		t.Errorf("Names() = %v, want %v", got, want)
	}
}

func TestAReloadKeepsWhatIsUnchanged(t *testing.T) {
	quiet(t)
	providers := func(region string) *config.Config {
		return &config.Config{Providers: map[string]*config.Provider{
			"same":  {Name: "same", Region: "us-east-1", Auth: config.Auth{AWS: "default"}},
			"other": {Name: "other", Region: region, Auth: config.Auth{AWS: "default"}},
		}}
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
	first := newSet(providers("us-east-1"), nil)
	first.Start(t.Context())
	signs(t, first, "same", "us-east-1")
	signs(t, first, "other", "us-east-1")
	if !first.Skewed("same", "20200101T000000Z", "Wed, 01 Jan 2020 01:00:00 GMT") {
		t.Fatal("Skewed() = false, want true")
	}
	second := newSet(providers("eu-west-1"), first)
	second.Start(t.Context())
	t.Cleanup(second.Stop)
	first.Stop() // does not reach what second has taken over

	old, kept := first.source("same"), second.source("same")
	if old.renewer != kept.renewer || kept.clock.Load() == 0 {
		t.Errorf("after a reload without a change the renewer is another one, or its clock is lost")
	}
	select {
	case <-kept.renewer.done:
		t.Error("after a reload the kept credential renews itself no more")
	case <-first.source("other").renewer.done:
	}
	signs(t, second, "other", "eu-west-1")
	signs(t, first, "other", "us-east-1") // for the attempts that began with the old config
}

// signs checks the region that the provider's signature names.
func signs(t *testing.T, s *Set, provider, region string) {
	t.Helper()
	headers, err := s.Sign(t.Context(), provider, Request{Method: "POST", Host: "h", Path: "/"})
	if err != nil || !strings.Contains(byName(headers)["authorization"], "/"+region+"/bedrock/aws4_request") {
		t.Errorf("Sign(%s) = %v, %v, want a signature for %s", provider, headers, err, region)
	}
}

func TestAReplacedSecretFileIsUsedByTheNextReload(t *testing.T) {
	dir := t.TempDir()
	key, file := filepath.Join(dir, "key"), filepath.Join(dir, "u.yaml")
	write(t, key, "sk-1")
	write(t, file, `
providers: {p: {api: anthropic, endpoint: https://a.example, auth: {header: x-api-key, secret: "file:`+key+`"}}}
targets: {p/x: {provider: p, model: x}}
chains: {chat: {match: [{path: /v1/messages}], targets: [p/x]}}
`)
	cfg, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	watcher, set := config.NewWatcher(cfg), newSet(cfg, nil)
	write(t, key+".new", "sk-2\n")
	if err := os.Rename(key+".new", key); err != nil {
		t.Fatal(err)
	}
	if !watcher.Changed() {
		t.Fatal("Changed() = false after the secret alone was replaced, want true")
	}
	if cfg, err = config.Load(file); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		set  *Set
		want string
	}{{set, "sk-1"}, {newSet(cfg, set), "sk-2"}} {
		got, err := row.set.Sign(t.Context(), "p", Request{})
		if err != nil || got[0].Value != row.want {
			t.Errorf("Sign() = %v, %v, want %s", got, err, row.want)
		}
	}
}

func TestAKeyThatIsNotThereIsSaidAtStart(t *testing.T) {
	var log strings.Builder
	s := New(one(config.Auth{Header: "x-api-key", Secret: secret(t, "env:NOT_SET_ANYWHERE")}), nil, slog.New(slog.NewTextHandler(&log, nil)))
	s.Start(t.Context())
	s.Stop()
	for _, want := range []string{"provider=p", "NOT_SET_ANYWHERE"} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("the log is %q, want one line with %s", log.String(), want)
		}
	}
}

func TestManyReloadsLeaveOneRenewalForEachAccount(t *testing.T) {
	quiet(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
	var s *Set
	before := runtime.NumGoroutine()
	for i := range 200 {
		next := newSet(&config.Config{Providers: map[string]*config.Provider{
			"same":  {Name: "same", Region: "us-east-1", Auth: config.Auth{AWS: "default"}},
			"other": {Name: "other", Region: fmt.Sprintf("r-%d", i), Auth: config.Auth{AWS: "default"}},
		}}, s)
		if i%3 == 0 { // a reload that comes to nothing starts nothing
			continue
		}
		next.Start(t.Context())
		s = next
		go func() { _, _ = next.Sign(t.Context(), "other", Request{Method: "POST", Host: "h", Path: "/"}) }()
	}
	if got := len(s.running); got != 2 {
		t.Errorf("after 200 reloads %d credentials renew themselves, want 2", got)
	}
	s.Stop()
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("goroutines = %d after Stop, want %d as before", runtime.NumGoroutine(), before)
		}
	}
}
