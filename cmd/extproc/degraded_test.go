package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
)

// flip posts a change of the chain main's switch, with a token where there is one.
func (s *service) flip(to, token string) int {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "http://"+s.adminListener.Addr().String()+"/chains/main/"+to, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func (s *service) wantPace(want float64) {
	s.t.Helper()
	eventually(s.t, func(context.Context) error {
		if s.processor.Pace("main") != want {
			return errors.New("the switch is not where it should be")
		}
		return nil
	})
}

func TestAChainThatIsOffIsOffFromTheStartAfterARestart(t *testing.T) {
	dir := folder(t)
	s := begin(t, dir, embedded(dir))
	s.wantPace(1)
	eventually(t, func(context.Context) error {
		if got := s.flip("off", ""); got != http.StatusOK {
			return errors.New(http.StatusText(got))
		}
		return nil
	})
	s.wantPace(0)
	s.end()
	for range 3 { // a race that is lost once in a while is no promise
		s = begin(t, dir, embedded(dir))
		if got := s.processor.Pace("main"); got != 0 {
			t.Errorf("right after the start the chain takes %v of its traffic, want 0: it is switched off", got)
		}
		s.end()
	}
	s = begin(t, dir, embedded(dir))
	defer s.end()
	if got := s.flip("on", ""); got != http.StatusOK {
		t.Errorf("POST /chains/main/on = %d, want 200", got)
	}
	s.wantPace(1)
}

func TestAnAdminTokenThatIsNotThereLetsNobodyIn(t *testing.T) {
	dir := folder(t)
	yaml := strings.Replace(serviceYAML, "server: {", `server: {admin_token: "env:UNDERSTUDY_TEST_TOKEN", `, 1)
	t.Setenv("UNDERSTUDY_TEST_TOKEN", "")
	s := beginWith(t, dir, embedded(dir), yaml)
	defer s.end()
	if got := s.flip("off", ""); got != http.StatusUnauthorized {
		t.Errorf("POST /chains/main/off without the token that the config asks for = %d, want 401", got)
	}
}
