package config

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const hidden = "sk-hidden"

func TestSecretShowsOnlyItsReferenceHoweverItIsPrinted(t *testing.T) {
	t.Setenv("UNDERSTUDY_TEST_KEY", hidden)
	s, err := ReadSecret("env:UNDERSTUDY_TEST_KEY")
	if err != nil {
		t.Fatal(err)
	}
	if v, err := s.Value(); v != hidden || err != nil {
		t.Fatalf("Value() = %q, %v, want %q", v, err, hidden)
	}
	inside := struct{ auth Auth }{Auth{Secret: s}} // fmt calls no methods below an unexported field
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		fmt.Fprintf(&out, verb+" "+verb+" "+verb+" "+verb+"\n", s, &s, inside, []Secret{s})
	}
	slog.New(slog.NewTextHandler(&out, nil)).Info("m", "secret", s, "auth", inside)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "secret", s, "auth", Auth{Secret: s})
	for _, marshal := range []func(Auth) ([]byte, error){
		func(a Auth) ([]byte, error) { return json.Marshal(a) },
		func(a Auth) ([]byte, error) { return yaml.Marshal(a) },
	} {
		text, err := marshal(Auth{Secret: s})
		if err != nil || !strings.Contains(string(text), "secret(env:UNDERSTUDY_TEST_KEY)") {
			t.Errorf("marshal = %s, %v, want the reference", text, err)
		}
		out.Write(text)
	}
	for _, form := range []string{hidden, fmt.Sprintf("%x", hidden), fmt.Sprintf("%X", hidden), fmt.Sprint([]byte(hidden))} {
		if strings.Contains(out.String(), form) {
			t.Errorf("the secret is printed as %s:\n%s", form, out.String())
		}
	}
}

func TestSecretOfAFile(t *testing.T) {
	for _, row := range []struct{ name, content, want, err string }{
		{"one line", "sk-1", "sk-1", ""},
		{"a trailing line break is dropped", "sk-1\n", "sk-1", ""},
		{"a trailing DOS line break is dropped", "sk-1\r\n", "sk-1", ""},
		{"inner and leading spaces stay", " sk 1", " sk 1", ""},
		{"empty", "", "", "absent or empty"},
		{"a line break only", "\n", "", "absent or empty"},
		{"two lines could smuggle a header", "sk-1\r\nx-evil: 1", "", "holds a line break or another control character"},
		{"binary", "sk\x00", "", "holds a line break or another control character"},
		{"too long", strings.Repeat("x", maxSecret+1), "", "longer than 16384 bytes"},
	} {
		t.Run(row.name, func(t *testing.T) {
			ref := "file:" + write(t, filepath.Join(t.TempDir(), "key"), row.content)
			s, err := ReadSecret(ref)
			if err != nil {
				t.Fatal(err)
			}
			wantErr := "<nil>"
			if row.err != "" {
				wantErr = "secret " + ref + ": " + row.err
			}
			if got, err := s.Value(); got != row.want || fmt.Sprint(err) != wantErr {
				t.Errorf("Value() = %q, %v, want %q, %s", got, err, row.want, wantErr)
			}
		})
	}
}

func TestSecretThatCannotBeReadSaysWhich(t *testing.T) {
	for ref, want := range map[string]string{
		"env:UNDERSTUDY_TEST_ABSENT": "secret env:UNDERSTUDY_TEST_ABSENT: absent or empty",
		"file:/nowhere/key":          "secret file:/nowhere/key: stat /nowhere/key: no such file or directory",
		"file:/":                     "secret file:/: not a regular file",
		"file:/dev/zero":             "secret file:/dev/zero: not a regular file",
	} {
		s, err := ReadSecret(ref)
		if err != nil {
			t.Errorf("ReadSecret(%q) = %v, want no fault", ref, err)
		}
		if v, err := s.Value(); v != "" || fmt.Sprint(err) != want {
			t.Errorf("Value of %s = %q, %v, want %s", ref, v, err, want)
		}
	}
	if v, err := (Secret{}).Value(); v != "" || err == nil {
		t.Errorf("Secret{}.Value() = %q, %v, want an error", v, err)
	}
}

func TestSecretReferenceOfNoKnownFormIsNotRepeated(t *testing.T) {
	for _, ref := range []string{"", "sk-hidden", "env:", "file:", "ENV:sk-hidden", "env:sk-hidden=1", "file:sk-hidden\nx", ":sk-hidden"} {
		if _, err := ReadSecret(ref); err == nil || strings.Contains(err.Error(), hidden) {
			t.Errorf("ReadSecret(%q) = %v, want an error without it", ref, err)
		}
	}
}

func secretOf(t *testing.T, ref string) Secret {
	t.Helper()
	s, err := ReadSecret(ref)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestKeysOfASecret(t *testing.T) {
	one, two := [32]byte{0xfb, 0xff, 1}, [32]byte{31: 2}
	b64, hexa := base64.StdEncoding.EncodeToString(one[:]), hex.EncodeToString(two[:])
	for _, row := range []struct {
		name, content string
		want          [][32]byte
		err           string
	}{
		{"base64", b64 + "\n", [][32]byte{one}, ""},
		{"hex", hexa, [][32]byte{two}, ""},
		{"hex in capitals", strings.ToUpper(hex.EncodeToString(one[:])), [][32]byte{one}, ""},
		{"the first line is the first key", hexa + "\n" + b64, [][32]byte{two, one}, ""},
		{"DOS line breaks", b64 + "\r\n" + hexa + "\r\n", [][32]byte{one, two}, ""},
		{"an empty file", "", nil, "absent or empty"},
		{"an empty line could be a key that went missing", b64 + "\n\n" + hexa, nil, "line 2 is no key"},
		{"a key of 31 bytes", base64.StdEncoding.EncodeToString(one[:31]), nil, "line 1 is no key"},
		{"a key of 33 bytes", base64.StdEncoding.EncodeToString(append(one[:], 1)), nil, "line 1 is no key"},
		{"base64 for URLs is another alphabet", base64.URLEncoding.EncodeToString(one[:]), nil, "line 1 is no key"},
		{"hex with a letter too many", hexa[:63] + "g", nil, "line 1 is no key"},
		{"a sentence in the second line", b64 + "\nsk-hidden", nil, "line 2 is no key"},
		{"a space after the key", b64 + " ", nil, "line 1 is no key"},
	} {
		t.Run(row.name, func(t *testing.T) {
			ref := "file:" + write(t, filepath.Join(t.TempDir(), "keys"), row.content)
			got, err := secretOf(t, ref).Keys()
			if !slices.Equal(got, row.want) || (err == nil) != (row.err == "") {
				t.Errorf("Keys() = %x, %v, want %x, %q", got, err, row.want, row.err)
			}
			if err == nil {
				return
			}
			if said := err.Error(); !strings.HasPrefix(said, "secret "+ref+": "+row.err) || strings.Contains(said, hidden) || strings.Contains(said, b64) {
				t.Errorf("Keys() = %v, want %q and nothing of the keys", err, row.err)
			}
		})
	}
}

func TestWebhookIsSignedWithTheBytesThatItsSecretStandsFor(t *testing.T) {
	for secret, want := range map[string]string{
		"whsec_c2VjcmV0": "secret",
		"c2VjcmV0":       "c2VjcmV0",
		"any words":      "any words",
		"WHSEC_c2VjcmV0": "WHSEC_c2VjcmV0",
	} {
		t.Setenv("UNDERSTUDY_TEST_KEY", secret)
		w := &Webhook{Secret: secretOf(t, "env:UNDERSTUDY_TEST_KEY")}
		if got, err := w.Key(); string(got) != want || err != nil {
			t.Errorf("Key() of %q = %q, %v, want %q", secret, got, err, want)
		}
	}
	for _, secret := range []string{"", "whsec_", "whsec_sk-hidden", "whsec_c2VjcmV"} {
		t.Setenv("UNDERSTUDY_TEST_KEY", secret)
		w := &Webhook{Secret: secretOf(t, "env:UNDERSTUDY_TEST_KEY")}
		if got, err := w.Key(); got != nil || err == nil || strings.Contains(err.Error(), hidden) {
			t.Errorf("Key() of %q = %q, %v, want an error without the secret", secret, got, err)
		}
	}
}

// A reload compares settings that hold secrets.
func TestSecretsThatAreTheSameCompareSo(t *testing.T) {
	read := func(value string) Server {
		t.Setenv("UNDERSTUDY_TEST_KEY", value)
		return Server{AdminToken: secretOf(t, "env:UNDERSTUDY_TEST_KEY")}
	}
	if a, b := read("sk-1"), read("sk-1"); !reflect.DeepEqual(a, b) {
		t.Errorf("DeepEqual(%v, %v) = false, want true", a, b)
	}
	if a, b := read(""), read(""); !reflect.DeepEqual(a, b) {
		t.Errorf("DeepEqual of two absent secrets = false, want true")
	}
	for _, other := range []string{"sk-2", ""} {
		if a, b := read("sk-1"), read(other); reflect.DeepEqual(a, b) {
			t.Errorf("DeepEqual(sk-1, %q) = true, want false", other)
		}
	}
}

func write(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
