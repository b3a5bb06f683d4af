//go:build e2e

package e2e

import (
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"understudy/internal/stage"
)

// drillOf runs `extproc drill` and gives its exit code and all that it says.
func drillOf(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	cmd := exec.CommandContext(within(t, 3*time.Minute), binary, append([]string{"drill"}, args...)...)
	text, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("extproc drill %v: %v", args, err)
	}
	return cmd.ProcessState.ExitCode(), string(text)
}

// demoFile is the demo's config with what the demo fills in, though nobody is there.
func demoFile(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../cmd/extproc/demo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "demo.yaml")
	write(t, file, []byte(os.Expand(string(text), func(name string) string {
		if name == "dir" {
			return "/nowhere"
		}
		return "https://" + name + ".example.com"
	})))
	return file
}

// The whole suite on a machine without a credential, with breakers that open and close.
func TestADrillOfTheDemosConfigPasses(t *testing.T) {
	t.Parallel()
	slots <- struct{}{}
	defer func() { <-slots }()
	envoy, err := envoys[envoyMain]()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	page, cases := filepath.Join(dir, "r.html"), filepath.Join(dir, "r.xml")
	code, out := drillOf(t, "-c", demoFile(t), "--self", "--envoy", envoy, "--deadline-scale", "0.05", "--share", "1", "--for", "30s",
		"--report", page, "--junit", cases)
	if code != 0 || !strings.Contains(out, "the drill has passed: ") || !strings.Contains(out, " 0 broken, 0 not possible here") {
		t.Fatalf("extproc drill = exit %d, want 0 and every promise kept\n%s", code, out)
	}
	html, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"The drill has", "rung 1 serves: fallback/sonnet", "at attempt 2", "understudy", "0.05 of the file", "/1.40."} {
		if !strings.Contains(strings.ToLower(string(html)), strings.ToLower(want)) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, never := range []string{"<script", "http-equiv", "src=", "@import"} {
		if strings.Contains(string(html), never) {
			t.Errorf("the page has %q, want nothing that is not in it", never)
		}
	}
	var suites struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Suites   []struct {
			Cases []struct {
				Name string `xml:"name,attr"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	js, err := os.ReadFile(cases)
	if err == nil {
		err = xml.Unmarshal(js, &suites)
	}
	if err != nil || suites.Failures != 0 || len(suites.Suites) != 2 || suites.Tests != strings.Count(out, "\nkept ")+1 {
		t.Errorf("JUnit's file = %+v, %v, want two suites with the %d promises of the output", suites, err, strings.Count(out, "\nkept ")+1)
	}
}

// Every dialect on every platform, played by the oldest Envoy that is promised to work.
func TestADrillOfEveryPlatformPasses(t *testing.T) {
	t.Parallel()
	slots <- struct{}{}
	defer func() { <-slots }()
	envoy, err := envoys[envoyOldest]()
	if err != nil {
		t.Fatal(err)
	}
	code, out := drillOf(t, "-c", "testdata/drill.yaml", "--self", "--envoy", envoy, "--deadline-scale", "0.01")
	if code != 0 {
		t.Errorf("extproc drill = exit %d, want 0\n%s", code, strings.Join(unkept(out), "\n"))
	}
}

// rehearsed is a stack of one chain with breakers of its own.
func rehearsed(t *testing.T, c chain) (*Stack, chain) {
	t.Helper()
	c.name, c.api = "live", "anthropic"
	return startStack(t, drills(t, plan{chains: []chain{c}})), c
}

func (s *Stack) drilled(t *testing.T, want float64) {
	t.Helper()
	s.reads(t, is(want), "understudy_drill_active", "chain", "live")
}

func TestADrillThatIsInterruptedStopsItsPlan(t *testing.T) {
	t.Parallel()
	s, _ := rehearsed(t, chain{on: []string{"a", "b"}, breaker: fileBreaker{Failures: 1000}, more: more(fileChain{})})
	p, err := start("drill", filepath.Join(s.dir, "drill.log"), binary, "drill", "-c", s.services[0].config, "--chain", "live", "--share", "1", "--for", "10m")
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop(patience)
	s.drilled(t, 1)
	p.signal(syscall.SIGINT)
	select {
	case <-p.exited:
	case <-within(t, patience).Done():
		t.Fatal("the drill goes on after SIGINT")
	}
	s.drilled(t, 0)
	if code := p.cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(p.tail(1<<20), "interrupted: ") {
		t.Errorf("an interrupted drill = exit %d, want 1 and the word\n%s", code, p.tail(8<<10))
	}
}

// begin lets the chain's requests meet faults.
func (s *Stack) begin(t *testing.T, plan map[string]any) (id string) {
	t.Helper()
	plan["chain"] = "live"
	status, answer, text := s.change(t, "/drills", plan)
	id, _ = answer["id"].(string)
	if status != http.StatusCreated || id == "" {
		t.Fatalf("POST /drills = %d %s, want a plan", status, text)
	}
	s.drilled(t, 1)
	return id
}

func TestADrillThatHurtsClientsStopsByItself(t *testing.T) {
	t.Parallel()
	s, c := rehearsed(t, chain{on: []string{"a", "b"}, breaker: fileBreaker{Failures: 1000}})
	s.begin(t, map[string]any{"faults": map[string]string{"*": "overloaded"}, "share": 1, "for": "10m", "max_errors": 0.5})
	ctx := within(t, time.Minute)
	for i := 0; ; i++ {
		a := s.sdk(ctx, t, call{path: messages, chain: c.name, script: "*=ok", id: fmt.Sprint(i)})
		if ctx.Err() != nil {
			t.Fatalf("after %d requests the drill still hurts", i)
		}
		if a.status == http.StatusOK {
			if i < 10 || i > 20 {
				t.Errorf("the drill ended after %d failures, want more than half of 20: those still to come count as good", i)
			}
			break
		}
	}
	s.drilled(t, 0)
}

func TestADrillEndsByItselfAndOnceItIsTold(t *testing.T) {
	t.Parallel()
	s, c := rehearsed(t, chain{on: []string{"a", "b"}, breaker: fileBreaker{Failures: 1000}})
	plan := func(lasts string) map[string]any {
		return map[string]any{"faults": map[string]string{c.target("a"): "overloaded"}, "share": 1, "for": lasts}
	}
	served := func(by string) {
		t.Helper()
		if got := s.sdk(within(t, patience), t, call{path: messages, chain: c.name, script: "*=ok"}).header.Get("x-llm-target"); got != c.target(by) {
			t.Errorf("x-llm-target = %q, want %q", got, c.target(by))
		}
	}
	s.begin(t, plan("3s"))
	s.drilled(t, 0)
	served("a")
	id := s.begin(t, plan("10m"))
	served("b")
	if status, _, text := s.change(t, "/drills/"+id+"/stop", nil); status != http.StatusOK {
		t.Fatalf("POST /drills/%s/stop = %d %s", id, status, text)
	}
	s.drilled(t, 0)
	served("a")
}

func TestADrillSaysWhyItCannotBegin(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{chains: []chain{{name: "live", api: "anthropic", on: []string{"a", "b"}}}})
	config := s.services[0].config
	mute := demoFile(t)
	text, err := os.ReadFile(mute)
	if err != nil {
		t.Fatal(err)
	}
	write(t, mute, append(text, "\n    degrade: [off]\n    off: {message: \"\"}\n"...))
	for _, row := range []struct {
		name string
		args []string
		want string
	}{
		{"the service plays no faults", []string{"-c", config}, "the running service allows no drill: refused: this configuration has no drill.listen"},
		{"nobody listens", []string{"-c", config, "--admin", "http://" + stage.Refusing(t)}, "cannot be asked"},
		{"the listener is Envoy's", []string{"-c", config, "--admin", "http://" + s.envoyAdmin}, "has no drills"},
		{"there is no such chain", []string{"-c", config, "--chain", "nosuch"}, `has no chain named "nosuch"`},
		{"the owner's message is empty", []string{"-c", mute, "--self"}, "chains.chat.off.message: must not be empty"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if code, out := drillOf(t, row.args...); code != 1 || !strings.Contains(out, row.want) {
				t.Errorf("extproc drill %v = exit %d, %s, want exit 1 and %q", row.args, code, out, row.want)
			}
		})
	}
}
