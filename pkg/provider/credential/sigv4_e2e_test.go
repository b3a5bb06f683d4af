//go:build e2e

package credential

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "let botocore write the golden signatures anew")

// botocoreVersion is the one in the user's cache folder.
const botocoreVersion = "1.44.8"

// libraries is a folder from which Python can import botocore, installed there if it is not yet.
func libraries(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "understudy", "botocore-"+botocoreVersion+"-lib")
	if _, err := os.Stat(filepath.Join(dir, "botocore", "auth.py")); err == nil {
		return dir
	}
	pip := exec.CommandContext(t.Context(), "python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
		"--upgrade", "--target", dir, "botocore=="+botocoreVersion)
	if out, err := pip.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", pip.Args, err, out)
	}
	return dir
}

// botocore signs the calls.
func botocore(t *testing.T, calls []call) []string {
	t.Helper()
	in, err := json.Marshal(calls)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "python3", "testdata/sigv4.py")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+libraries(t))
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("sigv4.py: %v", err)
	}
	var signed []string
	if err := json.Unmarshal(out, &signed); err != nil || len(signed) != len(calls) {
		t.Fatalf("sigv4.py signed %d of %d calls: %v", len(signed), len(calls), err)
	}
	return signed
}

func TestBotocoreSignsAlike(t *testing.T) {
	calls := readCalls(t)
	for i, want := range botocore(t, calls) {
		if *update {
			calls[i].Want = want
		}
		if calls[i].Want != want {
			t.Errorf("%s: %s has %s, botocore %s", calls[i].Name, golden, calls[i].Want, want)
		}
	}
	if *update {
		writeCalls(t, calls)
	}
}

func writeCalls(t *testing.T, calls []call) {
	t.Helper()
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(calls); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestBotocoreSignsAnyCallAlike(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	calls := make([]call, 2000)
	for i := range calls {
		calls[i] = anyCall(r)
	}
	for i, want := range botocore(t, calls) {
		if got := calls[i].sign(t)["authorization"]; got != want {
			t.Fatalf("seed %d: authorization of %+v = %s, want %s", seed, calls[i], got, want)
		}
	}
}

func anyCall(r *rand.Rand) call {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	text := func(most int, from ...string) string {
		var b strings.Builder
		for range r.IntN(most + 1) {
			b.WriteString(pick(from...))
		}
		return b.String()
	}
	odd := []string{
		"a", "Z", "0", "-", ".", "_", "~", ":", "@", "!", "$", "'", "(", ")", "*", ",", "%2F", "%20", "%3A", "%25", "%2f",
		"%C3%A9", "%F0%9F%8E%AD", "%00", "=",
	}
	c := call{
		Method: pick("POST", "GET", "DELETE"), Host: pick("h.example", "bedrock-runtime.us-east-1.amazonaws.com", "127.0.0.1:8443"),
		Path: "/" + text(12, append(odd, "/", "/", "/../", "/./", "//", "+", "&")...),
		Body: text(20, "a", "é", "🎭", "\"", "\n", "\x00", "{"),
		Time: fmt.Sprintf("20%02d%02d%02dT%02d%02d%02dZ", r.IntN(80)+10, r.IntN(12)+1, r.IntN(28)+1, r.IntN(24), r.IntN(60), r.IntN(60)),
		Key:  "AKIDEXAMPLE", Secret: text(40, "a", "/", "+", "B"), Token: text(3, "tok", "/", "=="),
		Region: pick("us-east-1", "eu-central-1"), Service: pick("bedrock", "bedrock-mantle"),
	}
	if r.IntN(2) == 0 {
		c.Path += "?" + text(8, append(odd, "&", "&", "+", "/", "?")...)
	}
	for _, name := range []string{"content-type", "X-Amzn-Bedrock-Service-Tier", "Accept", "x-A", "x-b", "anthropic-beta"} {
		if r.IntN(2) == 0 {
			c.Headers = append(c.Headers, [2]string{name, text(6, "a", " ", "  ", ",", "\"", "=", "Z")})
		}
	}
	r.Shuffle(len(c.Headers), func(i, j int) { c.Headers[i], c.Headers[j] = c.Headers[j], c.Headers[i] })
	return c
}
