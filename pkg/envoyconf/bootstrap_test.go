package envoyconf

import (
	"flag"
	"os"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"

	"understudy/pkg/config"
)

var update = flag.Bool("update", false, "write the golden files anew; read the difference before it is committed")

// shapes are the configurations that together use every setting.
var shapes = []struct {
	file string
	hop  Hop
}{
	{"closed", Internal},
	{"open", Internal},
	{"replicas", TCP},
	{"sockets", UDS},
	{"platforms", Internal},
}

func TestBootstrapIsWhatWasReviewed(t *testing.T) {
	for _, s := range shapes {
		t.Run(s.file, func(t *testing.T) {
			got := toYAML(t, bootstrap(t, s.file, s.hop))
			golden := "testdata/" + s.file + ".golden.yaml"
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Errorf("Bootstrap(%s, %s) differs from %s in line %d; run with -update and read the difference",
					s.file, s.hop, golden, firstDifference(string(got), string(want)))
			}
		})
	}
}

func firstDifference(got, want string) int {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return i + 1
		}
	}
	return min(len(g), len(w)) + 1
}

func TestEqualConfigsGiveEqualBytes(t *testing.T) {
	first := toYAML(t, bootstrap(t, "closed", Internal))
	for range 20 {
		if again := toYAML(t, bootstrap(t, "closed", Internal)); string(again) != string(first) {
			t.Fatalf("YAML(Bootstrap) differs in line %d from one run to the next", firstDifference(string(again), string(first)))
		}
	}
}

func TestSecretsStayWhereTheyAre(t *testing.T) {
	const value = "sk-must-not-be-written"
	t.Setenv("ANTHROPIC_API_KEY", value)
	path := t.TempDir() + "/key"
	if err := os.WriteFile(path, []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
	c := edited(t, "open", "/run/secrets/local", path)
	if v, err := c.Providers["local"].Auth.Secret.Value(); v != value {
		t.Fatalf("Secret.Value() = %q, %v, want %q", v, err, value)
	}
	b, err := Bootstrap(c, Internal)
	if err != nil {
		t.Fatal(err)
	}
	y := string(toYAML(t, b))
	if strings.Contains(y, value) {
		t.Error("the bootstrap holds the value of a secret, want only where to find it")
	}
	for _, want := range []string{"%ENVIRONMENT(ANTHROPIC_API_KEY)%", "filename: " + path} {
		if !strings.Contains(y, want) {
			t.Errorf("the bootstrap lacks %q", want)
		}
	}
}

func TestWhatEnvoyCannotBeToldIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		from, to   string
		hop        Hop
		want       string
	}{
		{"the tcp hop's port is Envoy's admin port", "closed", "127.0.0.1:9901", "127.0.0.1:10001", TCP,
			"envoy.admin: port 10001 is the tcp hop's, one above envoy.listen; move one of them"},
		{"the tcp hop's port is the service's", "closed", "127.0.0.1:9002", "127.0.0.1:10001", TCP,
			"server.grpc: port 10001 is the tcp hop's, one above envoy.listen; move one of them"},
		{"no port is left above the front's", "closed", "127.0.0.1:10000", "127.0.0.1:65535", TCP,
			"envoy.listen: port 65535 leaves none above it for the tcp hop"},
		{"sockets and names are mixed", "replicas", "10.0.0.7:9002", "unix:///run/u.sock", Internal,
			"envoy.services: Envoy takes unix sockets or host names in one cluster, not both"},
		{"a provider's cluster is another's status feed", "closed", "  local: {api: anthropic,", "  local: {api: anthropic, cluster: llm-byo-status,", Internal,
			"providers.local.cluster: llm-byo-status is taken by the status feed of byo: choose another"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Bootstrap(edited(t, tt.file, tt.from, tt.to), tt.hop)
			if err == nil || err.Error() != tt.want {
				t.Errorf("Bootstrap(%s) = %v, want %s", tt.hop, err, tt.want)
			}
		})
	}
}

func TestAFrontOnASocketHasOnlyAnInternalHop(t *testing.T) {
	c := edited(t, "closed", "", "")
	c.Envoy.Listen = config.Address{Network: "unix", Addr: "/run/front.sock"}
	for hop, want := range map[Hop]bool{Internal: true, TCP: false, UDS: false} {
		if _, err := Bootstrap(c, hop); (err == nil) != want {
			t.Errorf("Bootstrap(%s) = %v, want success: %v", hop, err, want)
		}
	}
}

func TestParseHop(t *testing.T) {
	for in, want := range map[string]Hop{"": Internal, "internal": Internal, "tcp": TCP, "uds": UDS} {
		if got, err := ParseHop(in); got != want || err != nil {
			t.Errorf("ParseHop(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
	if got, err := ParseHop("pigeon"); err == nil {
		t.Errorf("ParseHop(pigeon) = %q, want an error", got)
	}
}

func bootstrap(t *testing.T, file string, hop Hop) *bootstrapv3.Bootstrap {
	t.Helper()
	b, err := Bootstrap(edited(t, file, "", ""), hop)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// edited is the config in testdata with one text replaced by another.
func edited(t *testing.T, file, from, to string) *config.Config {
	t.Helper()
	data, err := os.ReadFile("testdata/" + file + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	if from != "" {
		text = strings.ReplaceAll(text, from, to)
	}
	c, err := config.Parse(file+".yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func toYAML(t *testing.T, b *bootstrapv3.Bootstrap) []byte {
	t.Helper()
	y, err := YAML(b)
	if err != nil {
		t.Fatal(err)
	}
	return y
}
