package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestAttachPrintsForWhatIsAsked(t *testing.T) {
	const config = "../../pkg/envoyconf/testdata/closed.yaml"
	rows := []struct {
		args string
		code int
		want string
	}{
		{"--for static", exitFine, "# Understudy, level same-request:"},
		{"--for static --level observe", exitFine, "observability_mode: true"},
		{"--for istio --callers default/app", exitFine, "kind: EnvoyFilter"},
		{"--for istio --callers default/app --port 8123", exitFine, "port: 8123"},
		{"--for istio --callers default/app --port 70000", exitUsage, "value out of range"},
		{"--for gateway --namespace apps", exitFine, "kind: EnvoyExtensionPolicy"},
		{"", exitUsage, `--for "": write static`},
		{"--for nginx", exitUsage, `--for "nginx": write static`},
		{"--for static --level all", exitUsage, `level "all": write observe`},
		{"--for static --namespace apps", exitUsage, "static files have none"},
		{"--for static --port 80", exitUsage, "are for istio"},
		{"--for static --callers default/app", exitUsage, "are for istio"},
	}
	for _, r := range rows {
		t.Run(r.args, func(t *testing.T) {
			var out, errs bytes.Buffer
			args := append([]string{"envoy", "attach", "-c", config}, strings.Fields(r.args)...)
			code := run(t.Context(), args, std{nil, &out, &errs})
			if text := out.String() + errs.String(); code != r.code || !strings.Contains(text, r.want) {
				t.Errorf("extproc envoy attach %s = %d %.300q, want %d and %q", r.args, code, text, r.code, r.want)
			}
		})
	}
}
