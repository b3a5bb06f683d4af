//go:build story

package story

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"understudy/internal/stage"
)

// alert is one that Prometheus would send, or will when it has lasted.
type alert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	State       string            `json:"state"` // pending or firing
}

// about is which alert of a rule is meant: one of a target or of a chain.
type about struct{ rule, label, value string }

func (a about) String() string { return fmt.Sprintf("%s{%s=%q}", a.rule, a.label, a.value) }

// alerts are those of /api/v1/alerts: what has resolved is not among them.
func (s *stack) alerts(ctx context.Context) ([]alert, error) {
	got, err := stage.GetJSON[struct {
		Data struct {
			Alerts []alert `json:"alerts"`
		} `json:"data"`
	}](ctx, s.prometheus+"/api/v1/alerts")
	return got.Data.Alerts, err
}

// alert is the one that is meant; its state is "" when there is none.
func (s *stack) alert(ctx context.Context, a about) (alert, error) {
	all, err := s.alerts(ctx)
	for _, got := range all {
		if got.Labels["alertname"] == a.rule && got.Labels[a.label] == a.value {
			return got, nil
		}
	}
	return alert{}, err
}

// fires waits until the alert fires.
func (s *stack) fires(within time.Duration, a about) (got alert) {
	s.t.Helper()
	stage.Eventually(s.t, within, a.String(), func(ctx context.Context) (err error) {
		if got, err = s.alert(ctx, a); err == nil && got.State != "firing" {
			err = fmt.Errorf("its state is %q, want firing", got.State)
		}
		return err
	})
	return got
}

// resolves waits until there is no such alert any more.
func (s *stack) resolves(within time.Duration, a about) {
	s.t.Helper()
	stage.Eventually(s.t, within, a.String(), func(ctx context.Context) error {
		got, err := s.alert(ctx, a)
		if err == nil && got.State != "" {
			err = fmt.Errorf("its state is %q, want none", got.State)
		}
		return err
	})
}

// quiet waits until Prometheus has seen so many series of a query, and has no alert.
func (s *stack) quiet(query string, series int) {
	s.t.Helper()
	stage.Eventually(s.t, stage.Patience, "a quiet Prometheus", func(ctx context.Context) error {
		got, err := stage.GetJSON[struct {
			Data struct {
				Result []struct{} `json:"result"`
			} `json:"data"`
		}](ctx, s.prometheus+"/api/v1/query?query="+url.QueryEscape(query))
		if err != nil {
			return err
		}
		all, err := s.alerts(ctx)
		if err == nil && (len(got.Data.Result) != series || len(all) != 0) {
			err = fmt.Errorf("it has %d series of %s and alerts %v, want %d and none", len(got.Data.Result), query, all, series)
		}
		return err
	})
}
