package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"understudy/pkg/admin"
	"understudy/pkg/chain/breaker"
	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// post asks the admin listener for a change, with a token where there is one.
func (s *service) post(path, token string) int {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "http://"+s.adminListener.Addr().String()+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func (s *service) wantForced(want breaker.Force) {
	s.t.Helper()
	eventually(s.t, func(context.Context) error {
		if got := s.breaker().Forced(); got != want {
			return fmt.Errorf("the breaker is forced %v, want %v", got, want)
		}
		return nil
	})
}

// force forces a/m as soon as the store takes it.
func (s *service) force(how string) {
	s.t.Helper()
	eventually(s.t, func(context.Context) error {
		if got := s.post("/breakers/"+how+"/a/m", ""); got != http.StatusOK {
			return errors.New(http.StatusText(got))
		}
		return nil
	})
}

func TestAForcedBreakerStaysForcedOverReloadsAndRestarts(t *testing.T) {
	dir := folder(t)
	s := begin(t, dir, embedded(dir))
	s.force("open")
	s.wantForced(breaker.ForcedOpen)
	elsewhere := strings.NewReplacer("DIR", dir, "STORE", embedded(dir), "https://a.example.com", "https://a2.example.com").Replace(serviceYAML)
	was := s.breaker()
	s.write(elsewhere)
	s.reload(t.Context(), s.file)
	if s.breaker() == was {
		t.Fatal("another endpoint has the breaker of the one before")
	}
	s.wantForced(breaker.ForcedOpen)
	s.end()
	for range 3 { // a race that is lost once in a while is no promise
		s = beginWith(t, dir, embedded(dir), strings.Replace(serviceYAML, "https://a.example.com", "https://a2.example.com", 1))
		if got := s.breaker().Forced(); got != breaker.ForcedOpen {
			t.Errorf("right after the start the breaker is forced %v, want open", got)
		}
		s.end()
	}
	s = begin(t, dir, embedded(dir))
	defer s.end()
	s.force("closed")
	s.wantForced(breaker.ForcedClosed)
	if _, text := s.get("/metrics"); !strings.Contains(text, `understudy_breaker_forced{target="a/m"} -1`) {
		t.Error("/metrics does not tell of the forced breaker")
	}
	s.force("release")
	s.wantForced(breaker.Released)
	if got := s.post("/breakers/open/no/such", ""); got != http.StatusNotFound {
		t.Errorf("POST /breakers/open/no/such = %d, want 404", got)
	}
	tos := ""
	for _, tr := range s.lookout.seen(s.processor.Book().Config).Transitions {
		tos += tr.By + ": " + tr.To + "; "
	}
	if want := "an operator: released; an operator: forced closed; "; !strings.HasPrefix(tos, want) {
		t.Errorf("transitions = %s, want %s first", tos, want)
	}
}

func TestTheStatusOfARunningServiceFitsItsSchema(t *testing.T) {
	dir := folder(t)
	s := begin(t, dir, embedded(dir))
	defer s.end()
	s.trip()
	s.write("chains: 7")
	s.reload(t.Context(), s.file)
	_, text := s.get("/api/status.schema.json")
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("status.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("status.json")
	if err != nil {
		t.Fatal(err)
	}
	_, body := s.get("/api/status")
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
	if err == nil {
		err = schema.Validate(value)
	}
	if err != nil {
		t.Fatalf("/api/status does not fit its schema: %v\n%s", err, body)
	}
	var got admin.Status
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if a := got.Targets[0]; a.Name != "a/m" || a.State != "open" || a.Until == nil || a.Share != 0 || a.Chains[0] != "main" {
		t.Errorf("target = %+v, want a/m, open", a)
	}
	if got.Config.OK || !strings.Contains(got.Config.Error, "chains") || got.Config.Tried == nil {
		t.Errorf("config = %+v, want that the change is refused, and why", got.Config)
	}
	if len(got.Transitions) != 1 || got.Transitions[0].To != "open" || got.Store != "up" || got.Envoy.Connected != nil {
		t.Errorf("status = %+v", got)
	}
	if p := got.Providers; p[0].Feed != "unknown" || !p[0].Ready || p[2].Ready || p[1].Feed != "" {
		t.Errorf("providers = %+v, want the feed of a unknown, and c without its credential", p)
	}
}

func TestNoPageTellsASecret(t *testing.T) {
	dir := folder(t)
	secret := func(name string) string { return "hunter2-" + name + "-0123456789abcdef" }
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte(secret("file")), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("STATUS_TEST_KEY", secret("env"))
	t.Setenv("STATUS_TEST_TOKEN", secret("token"))
	yaml := strings.NewReplacer("server: {", `server: {admin_token: "env:STATUS_TEST_TOKEN", `,
		`"https://b.example.com", auth: {from: client}`, `"https://b.example.com", auth: {bearer: "env:STATUS_TEST_KEY"}`,
		"env:NOT_SET_ANYWHERE", "file:"+key).Replace(serviceYAML)
	s := beginWith(t, dir, embedded(dir), yaml)
	defer s.end()
	pages := []string{"/", "/operate", "/api/status", "/metrics", "/?done=open", "/api/status.schema.json"}
	looks := func() {
		t.Helper()
		for _, path := range pages {
			if code, text := s.get(path); code != http.StatusOK || strings.Contains(text, "hunter2") {
				t.Errorf("GET %s = %d, and tells a secret: %v", path, code, strings.Contains(text, "hunter2"))
			}
		}
		if text := s.firstEvent(); strings.Contains(text, "hunter2") || !strings.Contains(text, `"id":"summary"`) {
			t.Errorf("the first event tells a secret, or nothing: %.200s", text)
		}
	}
	looks()
	s.write(strings.Replace(s.read(), "env:STATUS_TEST_KEY", secret("inline"), 1)) // what somebody does by mistake
	s.reload(t.Context(), s.file)
	if s.lookout.config.OK {
		t.Fatal("a secret in the file is taken")
	}
	looks()
	for _, token := range []string{"", "wrong", secret("env")} {
		if got := s.post("/breakers/open/a/m", token); got != http.StatusUnauthorized {
			t.Errorf("POST /breakers/open/a/m with the token %q = %d, want 401", token, got)
		}
	}
}

func (s *service) read() string {
	s.t.Helper()
	text, err := os.ReadFile(s.file)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// firstEvent is what a page that has seen nothing is sent first.
func (s *service) firstEvent() string {
	s.t.Helper()
	_, page := s.get("/")
	_, rest, _ := strings.Cut(page, `data-shape="`)
	shape, _, _ := strings.Cut(rest, `"`)
	resp, err := http.Get("http://" + s.adminListener.Addr().String() + "/events?shape=" + shape)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var b strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(b.String(), "\n\n") {
		n, err := resp.Body.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			s.t.Fatal(err)
		}
	}
	return b.String()
}

func TestAnOpenPageDoesNotKeepTheServiceFromStopping(t *testing.T) {
	dir := folder(t)
	s := begin(t, dir, embedded(dir))
	_, page := s.get("/")
	_, rest, _ := strings.Cut(page, `data-shape="`)
	shape, _, _ := strings.Cut(rest, `"`)
	resp, err := http.Get("http://" + s.adminListener.Addr().String() + "/events?shape=" + shape)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	s.end() // fails where the listener cannot be closed in time
}

// Who sends half a request to the admin listener does not make a stop slower, nor a failure.
func TestAStopDoesNotWaitForHalfARequest(t *testing.T) {
	dir := folder(t)
	s := begin(t, dir, embedded(dir))
	conn, err := net.Dial("tcp", s.adminListener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// The answer to Expect says that the handler waits for the body.
	_, err = io.WriteString(conn, "POST /operate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n")
	if err == nil {
		_, err = io.ReadFull(conn, make([]byte, len("HTTP/1.1 100")))
	}
	if err != nil {
		t.Fatal(err)
	}
	s.end() // fails where stop does
}

// What is shown is gathered while configs come and go, and while requests end.
func TestTheStatusIsGatheredWhileAllChanges(t *testing.T) {
	dir := folder(t)
	s := begin(t, dir, embedded(dir))
	defer s.end()
	full, small := s.processor.Book().Config, *s.processor.Book().Config
	small.Chains, small.Targets = nil, map[string]*config.Target{}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	forever := func(f func()) {
		wg.Go(func() {
			for ctx.Err() == nil {
				f()
			}
		})
	}
	forever(func() { s.processor.Use(&small, nil); s.lookout.reloaded(nil); s.processor.Use(full, nil) })
	forever(func() { s.lookout.Exchange(record("fallback", 1)); s.drills.Exchange(record("failed", -1)) })
	forever(func() {
		s.lookout.Attempt("a/m", classify.Verdict{Class: classify.Overloaded})
		s.lookout.Transition(breaker.Transition{Target: "a/m"})
		s.lookout.forced("a/m", breaker.Released, breaker.ForcedOpen)
	})
	for range 50 {
		for _, path := range []string{"/", "/api/status", "/metrics"} {
			if code, text := s.get(path); code != http.StatusOK {
				t.Errorf("GET %s = %d %s, want 200", path, code, text)
			}
		}
	}
	cancel()
	wg.Wait()
	s.processor.Use(full, nil)
}
