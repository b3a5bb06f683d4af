package gateway

import (
	"flag"
	"os"
	"testing"

	"understudy/pkg/config"
)

var update = flag.Bool("update", false, "write the golden files anew; read the difference before it is committed")

const examples = "../../../envoy/gateway/"

// The example in envoy/gateway is what the command prints for the config beside it.
func TestTheExampleIsWhatWasReviewed(t *testing.T) {
	for _, level := range []Level{SameRequest, NextRequest} {
		t.Run(string(level), func(t *testing.T) {
			c, err := config.Load(examples + "understudy.yaml")
			if err != nil {
				t.Fatal(err)
			}
			got, err := Manifests(c, Options{Level: level, Namespace: "llm"})
			if err != nil {
				t.Fatal(err)
			}
			golden := examples + string(level) + ".yaml"
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
				t.Errorf("Manifests differs from %s; run with -update and read the difference", golden)
			}
		})
	}
}
