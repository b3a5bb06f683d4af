// Package token signs and checks x-llm-internal, which marks the service's own calls on their way through Envoy.
package token

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"time"
)

// life is how long a token holds: long enough for a call to reach the hop, also past a busy Envoy.
const life = time.Minute

// Mark is the header that the service sets on the answer to a call of its own that it has let through to a provider.
const Mark = "x-llm-probed"

// ErrInvalid is every way in which a token may be no good. It does not say which, as the bearer should not know.
var ErrInvalid = errors.New("x-llm-internal is not ours")

// Purpose is what a token allows.
type Purpose string

// The purposes.
const (
	Probe Purpose = "probe" // a probe of the named target
	Feed  Purpose = "feed"  // a poll of the named provider's status feed
	Job   Purpose = "job"   // a run of a queued request along the named chain, for a tenant: see JobName
	Drill Purpose = "drill" // a rehearsal, by the plan that drill.OfName reads of the name
)

// JobName is what a Job's token names: whose request it is tells whose budget pays for it.
func JobName(chain, tenant string) string {
	if tenant == "" {
		return chain
	}
	return chain + ";" + base64.RawURLEncoding.EncodeToString([]byte(tenant))
}

// OfJob undoes JobName. A tenant that cannot be read is none.
func OfJob(name string) (chain, tenant string) {
	chain, rest, _ := strings.Cut(name, ";")
	b, _ := base64.RawURLEncoding.DecodeString(rest)
	return chain, string(b)
}

// Sign makes a token that allows purpose for name from now on.
func Sign(key []byte, purpose Purpose, name string, now time.Time) string {
	return SignUntil(key, purpose, name, now.Add(life))
}

// SignUntil makes a token that holds until then, for a call of several attempts.
func SignUntil(key []byte, purpose Purpose, name string, until time.Time) string {
	text := string(purpose) + ";" + strconv.FormatInt(until.Unix(), 10) + ";" + name
	return text + ";" + mac(key, text)
}

// Check returns what a token allows. Without a key nothing is ours.
func Check(key []byte, token string, now time.Time) (Purpose, string, error) {
	i := strings.LastIndexByte(token, ';')
	if len(key) == 0 || i < 0 || !hmac.Equal([]byte(mac(key, token[:i])), []byte(token[i+1:])) {
		return "", "", ErrInvalid
	}
	purpose, rest, _ := strings.Cut(token[:i], ";")
	until, name, ok := strings.Cut(rest, ";")
	end, err := strconv.ParseInt(until, 10, 64)
	if !ok || err != nil || now.Unix() > end {
		return "", "", ErrInvalid
	}
	return Purpose(purpose), name, nil
}

func mac(key []byte, text string) string {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}
