package token

import (
	"strings"
	"testing"
	"time"
)

func TestATokenHoldsForItsPurposeItsNameAndItsTime(t *testing.T) {
	key, now := []byte("k"), time.Unix(1_000_000, 0)
	good := Sign(key, Probe, "anthropic/claude;sonnet", now)
	rows := []struct {
		name, token string
		key         string
		at          time.Duration
		ok          bool
	}{
		{"as it was made", good, "k", 0, true},
		{"within its time", good, "k", life, true},
		{"after its time", good, "k", life + time.Second, false},
		{"by another key", good, "other", 0, false},
		{"for another target", strings.Replace(good, "sonnet", "opus", 1), "k", 0, false},
		{"for another purpose", strings.Replace(good, "probe", "feed", 1), "k", 0, false},
		{"cut", good[:len(good)-1], "k", 0, false},
		{"empty", "", "k", 0, false},
		{"signed with no key, where there is none yet", Sign(nil, Probe, "anthropic/claude;sonnet", now), "", 0, false},
		{"without a signature", "probe;9999999999;x", "k", 0, false},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			purpose, name, err := Check([]byte(r.key), r.token, now.Add(r.at))
			if (err == nil) != r.ok || r.ok && (purpose != Probe || name != "anthropic/claude;sonnet") {
				t.Errorf("Check(%q) = %q, %q, %v; want ok %t", r.token, purpose, name, err, r.ok)
			}
		})
	}
}

func FuzzCheck(f *testing.F) {
	f.Add("probe;9999999999;x;y")
	f.Fuzz(func(t *testing.T, token string) {
		if _, _, err := Check([]byte("a key that nobody guesses"), token, time.Unix(0, 0)); err == nil {
			t.Errorf("Check(%q) = nil, want an error", token)
		}
	})
}

func TestAJobsTokenNamesItsTenant(t *testing.T) {
	for _, tenant := range []string{"", "acme", "a;b", "\x00\xff"} {
		if chain, got := OfJob(JobName("chat", tenant)); chain != "chat" || got != tenant {
			t.Errorf("OfJob(JobName(chat, %q)) = %q, %q, want the same", tenant, chain, got)
		}
	}
}
