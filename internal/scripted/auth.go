package scripted

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Auth decides about the credential of a request. The error says what is wrong.
type Auth interface {
	check(r *http.Request, body []byte) error
}

// carriers are the headers that any of the providers takes a credential from.
var carriers = []string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "X-Amz-Security-Token", "X-Amz-Date", "Proxy-Authorization", "Cookie"}

// carriesOnly checks that no credential stands anywhere but in the headers named.
func carriesOnly(r *http.Request, names ...string) error {
	for _, name := range carriers {
		if values := r.Header.Values(name); len(values) > 0 && !slices.Contains(names, name) {
			return fmt.Errorf("a credential in %s, which this platform does not take", name)
		}
	}
	for _, name := range []string{"key", "api-key", "api_key", "access_token"} {
		if r.URL.Query().Has(name) {
			return fmt.Errorf("a credential in the query: %s", name)
		}
	}
	return nil
}

// Anyone lets in whoever calls.
type Anyone struct{}

func (Anyone) check(*http.Request, []byte) error { return nil }

// Key is a credential in a header of its own: x-api-key, api-key or x-goog-api-key.
type Key struct {
	Header string
	Valid  func(key string) error
}

func (k Key) check(r *http.Request, _ []byte) error {
	name := http.CanonicalHeaderKey(k.Header)
	values := r.Header.Values(name)
	if len(values) != 1 {
		return fmt.Errorf("%d headers %s, want 1", len(values), k.Header)
	}
	return errors.Join(carriesOnly(r, name), k.Valid(values[0]))
}

// Bearer is a token in the authorization header.
type Bearer struct {
	Valid func(token string) error
}

func (b Bearer) check(r *http.Request, _ []byte) error {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return fmt.Errorf("%d headers authorization, want 1", len(values))
	}
	token, ok := strings.CutPrefix(values[0], "Bearer ")
	if !ok {
		return errors.New("the authorization is no bearer token")
	}
	return errors.Join(carriesOnly(r, "Authorization"), b.Valid(token))
}

// Either takes one of several credentials, not both.
type Either []Auth

func (e Either) check(r *http.Request, body []byte) error {
	errs := make([]error, len(e))
	for i, a := range e {
		if errs[i] = a.check(r, body); errs[i] == nil {
			return nil
		}
	}
	return errors.Join(errs...)
}

// Exactly accepts these values.
func Exactly(values ...string) func(string) error {
	return func(got string) error {
		if !slices.Contains(values, got) {
			return errors.New("the credential is not one of this account")
		}
		return nil
	}
}
