package config

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
)

// maxSecret is the longest secret in bytes; no header of a provider takes more.
const maxSecret = 16 << 10

// Secret is a credential that the file names but does not hold: env:NAME or file:PATH.
//
// It is read once, when it is made, and shows only its reference however it is printed. The zero Secret has no value.
// reflect.DeepEqual tells whether two secrets are the same.
type Secret struct {
	ref string
	// text is a pointer to a string because fmt calls no method on what it reaches through an unexported field of
	// somebody else's struct, and prints such a pointer as an address, whatever the verb.
	text *string
	err  error // why there is no text
}

var errForm = errors.New("expected env:NAME or file:PATH (a secret itself does not belong in this file)")

// ReadSecret reads what ref names. The error is for a ref that is neither env:NAME nor file:PATH, and does not repeat
// it; a secret that is absent or empty is told by Value.
func ReadSecret(ref string) (Secret, error) {
	kind, name, _ := strings.Cut(ref, ":")
	if name == "" || strings.ContainsAny(name, "\x00\r\n") {
		return Secret{}, errForm
	}
	switch kind {
	case "env":
		if strings.ContainsAny(name, "= ") {
			return Secret{}, errForm
		}
		return newSecret(ref, []byte(os.Getenv(name)), nil), nil
	case "file":
		data, err := readSecretFile(name)
		return newSecret(ref, data, err), nil
	}
	return Secret{}, errForm
}

func newSecret(ref string, data []byte, err error) Secret {
	text := strings.TrimRight(string(data), "\r\n")
	if err == nil && text == "" {
		err = errors.New("absent or empty")
	}
	if err != nil {
		return Secret{ref: ref, err: fmt.Errorf("secret %s: %w", ref, err)}
	}
	return Secret{ref: ref, text: &text}
}

// readSecretFile refuses what is not a regular file: a pipe could block the reload for ever.
func readSecretFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err == nil && len(data) > maxSecret {
		err = fmt.Errorf("longer than %d bytes", maxSecret)
	}
	return data, err
}

// Value is the secret itself, without a trailing line break. The error says which secret is absent, empty, unreadable or
// more than a line.
func (s Secret) Value() (string, error) {
	text, err := s.read()
	// RFC 9110, 5.5: a field value has no control characters; Envoy would refuse the request.
	if err == nil && strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", s.fault("holds a line break or another control character")
	}
	return text, err
}

// Keys are the keys of 32 bytes that the secret lists, one a line, in base64 or hex. There is at least one. The error
// names the secret and the line, and repeats nothing of it.
func (s Secret) Keys() ([][32]byte, error) {
	text, err := s.read()
	if err != nil {
		return nil, err
	}
	var keys [][32]byte
	for line := range strings.Lines(text) {
		key, ok := parseKey(strings.TrimRight(line, "\r\n"))
		if !ok {
			return nil, s.fault("line %d is no key: write 32 bytes in base64 or hex, one key a line", len(keys)+1)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func parseKey(s string) (key [32]byte, ok bool) {
	decode := base64.StdEncoding.Strict().DecodeString
	if len(s) == hex.EncodedLen(len(key)) {
		decode = hex.DecodeString
	}
	b, err := decode(s)
	if err != nil || len(b) != len(key) {
		return key, false
	}
	return [32]byte(b), true
}

// read is the whole text of the secret.
func (s Secret) read() (string, error) {
	switch {
	case s.ref == "":
		return "", errors.New("no secret is configured")
	case s.err != nil:
		return "", s.err
	}
	return *s.text, nil
}

// fault is the error of a secret that is there, but of no use.
func (s Secret) fault(format string, args ...any) error {
	return fmt.Errorf("secret %s: %s", s.ref, fmt.Sprintf(format, args...))
}

// Ref is the reference as the file has it: env:NAME, file:PATH, or "".
func (s Secret) Ref() string { return s.ref }

// String is the reference, never the value.
func (s Secret) String() string { return "secret(" + s.ref + ")" }

// GoString is String.
func (s Secret) GoString() string { return s.String() }

// LogValue is String.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText is String; JSON and YAML use it too.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
