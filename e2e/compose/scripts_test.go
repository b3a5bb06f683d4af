//go:build linux

package compose

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// pretend makes programs of these names, each of which tells how it was called, and is all that a script finds besides
// what every Debian has.
func pretend(t *testing.T, programs map[string]string) (env []string, calls func() string) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "calls")
	for name, body := range programs {
		script := fmt.Sprintf("#!/bin/sh\necho %s \"$@\" >>%s\n%s\n", name, log, body)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	calls = func() string {
		said, _ := os.ReadFile(log) // absent: nothing was called
		return string(said)
	}
	return append(os.Environ(), "PATH="+dir+":/usr/bin:/bin", "XDG_CACHE_HOME="+filepath.Join(dir, "cache")), calls
}

// run runs one of scripts/, and tells what it said and its exit code.
func run(t *testing.T, env []string, script string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join("../../scripts", script), args...)
	var out, errs strings.Builder
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func TestAPackageIsInstalledWhenAnyOfItsProgramsIsMissing(t *testing.T) {
	env, calls := pretend(t, map[string]string{"apt-get": "", "here": "", "here-too": ""})
	for _, row := range []struct {
		name     string
		programs []string
		want     string
	}{
		{"all are here", []string{"here", "here-too"}, ""},
		{"the second is missing", []string{"here", "not-here-at-all"}, "apt-get update -qq\napt-get install -y -qq --no-install-recommends pack\n"},
	} {
		if _, errs, code := run(t, env, "need.sh", append([]string{"pack"}, row.programs...)...); code != 0 || calls() != row.want {
			t.Errorf("%s: need.sh = %d %s, and called %q, want %q", row.name, code, errs, calls(), row.want)
		}
	}
}

func TestAMachineWithoutDockerIsToldLoudlyThatTheStackIsNotTested(t *testing.T) {
	for name, row := range map[string]struct{ program, body, why string }{
		"another system":        {"uname", "echo Plan9", "Docker's daemon needs Linux, this is Plan9"},
		"a user without rights": {"id", "echo 1000", "Docker's daemon needs root, this is user 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			env, _ := pretend(t, map[string]string{row.program: row.body})
			if _, errs, code := run(t, env, "docker.sh", "start"); code != 77 || errs != row.why+"\n" {
				t.Errorf("docker.sh start = %d %q, want 77 %q", code, errs, row.why)
			}
			_, errs, code := run(t, env, "compose.sh")
			if want := "### SKIPPED: THE COMPOSE STACK IS NOT TESTED: " + row.why; code != 0 || !strings.Contains(errs, want) {
				t.Errorf("compose.sh = %d %q, want 0 %q", code, errs, want)
			}
		})
	}
}

// Somebody's 3000 or 9090 is always taken.
func TestEveryPortOfTheDemoIsOnLoopbackAndCanBeMoved(t *testing.T) {
	file, err := os.ReadFile("../../docker-compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/compose.md")
	if err != nil {
		t.Fatal(err)
	}
	var demo struct {
		Services map[string]struct{ Ports []string }
	}
	if err := yaml.Unmarshal(file, &demo); err != nil {
		t.Fatal(err)
	}
	movable := regexp.MustCompile(`^127\.0\.0\.1:\$\{(DEMO_[A-Z]+_PORT):-\d+\}:\d+$`)
	for name, service := range demo.Services {
		for _, port := range service.Ports {
			m := movable.FindStringSubmatch(port)
			if m == nil {
				t.Errorf("%s publishes %s, want one that matches %s", name, port, movable)
			} else if !strings.Contains(string(doc), m[1]) {
				t.Errorf("docs/compose.md says nothing of %s", m[1])
			}
		}
	}
}
