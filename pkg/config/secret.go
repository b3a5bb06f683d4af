package config

import (
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
type Secret struct {
	ref string
	// value is a function because fmt calls no method on what it reaches through an unexported field of somebody
	// else's struct, and prints what a pointer leads to there when the verb does not fit.
	value func() (string, error)
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
	value := strings.TrimRight(string(data), "\r\n")
	switch {
	case err != nil:
	case value == "":
		err = errors.New("absent or empty")
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }):
		// RFC 9110, 5.5: a field value has no control characters; Envoy would refuse the request.
		err = errors.New("holds a line break or another control character")
	}
	if err != nil {
		value, err = "", fmt.Errorf("secret %s: %w", ref, err)
	}
	return Secret{ref, func() (string, error) { return value, err }}
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

// Value is the secret itself, without a trailing line break. The error says which secret is absent, empty or unreadable.
func (s Secret) Value() (string, error) {
	if s.value == nil {
		return "", errors.New("no secret is configured")
	}
	return s.value()
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
