//go:build compose

package compose

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"understudy/internal/stage"
)

const (
	root    = "../.."
	project = "understudy-e2e"

	// Where docker-compose.yaml publishes things.
	front      = "http://127.0.0.1:10000"
	prometheus = "http://127.0.0.1:9090"
	grafana    = "http://127.0.0.1:3000"

	// patience bounds what has to happen sooner or later; nothing here is about how soon.
	patience = 3 * time.Minute
)

// controls are where the providers are told what to do.
var controls = map[string]string{"north": "http://127.0.0.1:9101", "south": "http://127.0.0.1:9102"}

// up brings the stack up and has it taken down when the test is over.
func up(t *testing.T) {
	t.Helper()
	compose(t, "down", "--volumes", "--remove-orphans") // what a killed run left
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(compose(t, "logs", "--no-color", "--tail=40"))
		}
		compose(t, "down", "--volumes")
	})
	compose(t, "up", "--build", "--detach")
	services := strings.Fields(compose(t, "config", "--services"))
	eventually(t, "every container is healthy", func(ctx context.Context) error {
		for _, service := range services {
			if got := inspect[string](t, service, ".State.Health.Status"); got != "healthy" {
				return fmt.Errorf("%s is %s", service, got)
			}
		}
		return nil
	})
}

// compose runs docker-compose, or what $COMPOSE names, on the file that users run.
func compose(t *testing.T, args ...string) string {
	t.Helper()
	words := strings.Fields(cmp.Or(os.Getenv("COMPOSE"), "docker-compose"))
	return output(t, words[0], slices.Concat(words[1:], []string{"--project-name", project}, args)...)
}

// output is the standard output of a command that works.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), name, args...) // also while the test is being cleaned up
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

func container(t *testing.T, service string) string {
	t.Helper()
	ids := strings.Fields(output(t, "docker", "ps", "--all", "--quiet", "--filter", "label=com.docker.compose.project="+project,
		"--filter", "label=com.docker.compose.service="+service))
	if len(ids) != 1 {
		t.Fatalf("service %s has containers %q, want one", service, ids)
	}
	return ids[0]
}

// inspect is what Docker knows at a path, such as ".State.ExitCode", of a service's container.
func inspect[T any](t *testing.T, service, path string) T {
	t.Helper()
	var v T
	text := output(t, "docker", "inspect", "--format", "{{json "+path+"}}", container(t, service))
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("docker inspect %s of %s = %s: %v", path, service, text, err)
	}
	return v
}

// eventually waits until ok gives no error.
func eventually(t *testing.T, what string, ok func(context.Context) error) {
	t.Helper()
	stage.Eventually(t, patience, what, ok)
}

// act tells a provider what to do from now on.
func act(t *testing.T, provider, behaviour string) {
	t.Helper()
	eventually(t, provider+" can be told what to do", func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, controls[provider]+"/act", strings.NewReader(behaviour))
		if err == nil {
			_, err = stage.Do(req)
		}
		return err
	})
}

// wants is nil when got is as wanted.
func wants[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s = %v, want %v", what, got, want)
	}
	return nil
}
