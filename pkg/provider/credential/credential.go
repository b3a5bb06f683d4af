// Package credential is what proves to a provider who is calling: a key from the config, an AWS signature, or a token
// of Google's or Microsoft's, renewed in the background before it ends.
//
// The client's own credential is not its business: such a provider gets nothing from here.
package credential

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"understudy/pkg/config"
)

// Request is a call as it goes on the wire, as far as a signature covers it.
type Request struct {
	Method  string
	Host    string            // :authority
	Path    string            // with the query, percent-encoded
	Headers map[string]string // to be signed; what is of the transport or a credential is left out
	Body    []byte
}

// Header is one header to set; Name is lower case.
type Header struct{ Name, Value string }

// Set has the credentials of every provider of one Config.
//
// Ownership: whoever made it starts it, and stops it unless a successor was started.
// Concurrency: Start and Stop are one goroutine's; everything else is anybody's, also after Stop: what is at hand
// then still proves, while it lasts.
type Set struct {
	sources map[string]*source
	names   []string
	log     *slog.Logger
	prev    *Set              // until Start
	running map[*renewer]bool // what Stop ends
}

// New has one source for each provider of cfg. What prev, the Set that was started last (nil: none), has at hand for an
// unchanged account is kept, its measured clock included. Nothing runs before Start. Log gets one line when a
// credential cannot be renewed and one when it can again, and at Start one for each key that is not there.
func New(cfg *config.Config, prev *Set, log *slog.Logger) *Set {
	s := &Set{sources: map[string]*source{}, names: slices.Clone(wellKnown), log: log, prev: prev, running: map[*renewer]bool{}}
	for name, p := range cfg.Providers {
		s.sources[name] = newSource(p, prev.source(name), log)
		if h := p.Auth.Header; h != "" && !slices.Contains(s.names, h) {
			s.names = append(s.names, h)
		}
	}
	slices.Sort(s.names)
	return s
}

// wellKnown are the headers in which the providers that are known here take a credential, or a part of one.
var wellKnown = []string{
	"api-key", "authorization", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token", "x-api-key",
	"x-goog-api-key", "x-goog-user-project",
}

// Names are all headers, lower case, that Sign sets for one provider or another. An attempt removes them first, so
// that nothing of the client's, or of an earlier attempt's, is left. The slice is not to be changed.
func (s *Set) Names() []string { return s.names }

// Start lets the credentials renew themselves until Stop or the end of ctx, and ends those of the Set before that this
// one has no use for. The Set before needs no Stop then.
func (s *Set) Start(ctx context.Context) {
	var before map[*renewer]bool
	if s.prev != nil {
		before = s.prev.running
		s.prev.running, s.prev = nil, nil
	}
	for name, src := range s.sources {
		if n, ok := src.fixed.(none); ok {
			s.log.Warn("the provider is not called until there is a credential", "provider", name, "error", n.err.Error())
		}
		if r := src.renewer; r != nil {
			if !before[r] {
				r.start(ctx)
			}
			delete(before, r)
			s.running[r] = true
		}
	}
	stop(before)
}

// Stop ends the renewal and waits for it.
func (s *Set) Stop() {
	stop(s.running)
	s.running = nil
}

func stop(running map[*renewer]bool) {
	for r := range running {
		r.cancel()
	}
	for r := range running {
		<-r.done
	}
}

// Sign returns the headers that prove to the provider who is calling; none for a provider that takes the client's own
// credential, or no credential. It waits, two seconds at most, only for the first credential and for one that ended
// while this machine slept, and after one call has waited in vain no other does. The error says why nothing can be proved; no secret is in it.
func (s *Set) Sign(ctx context.Context, provider string, r Request) ([]Header, error) {
	src := s.source(provider)
	if src == nil {
		return nil, unknown(provider)
	}
	headers, err := src.sign(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("provider %s: %w", provider, err)
	}
	return headers, nil
}

// Ready is nil when a call can be authenticated, or will be in a moment, and otherwise says why not.
func (s *Set) Ready(provider string) error {
	src := s.source(provider)
	if src == nil {
		return unknown(provider)
	}
	if err := src.ready(); err != nil {
		return fmt.Errorf("provider %s: %w", provider, err)
	}
	return nil
}

// source is nil when there is none, or no Set.
func (s *Set) source(provider string) *source {
	if s == nil {
		return nil
	}
	return s.sources[provider]
}

func unknown(provider string) error { return fmt.Errorf("no provider is named %.80q", provider) }

// maxSkew is how far apart a signature's time and the provider's clock may be before the one is wrong for the other.
// AWS allows 5 minutes; its SDKs correct from 4 (aws-sdk-go-v2 aws/retry, skewThreshold).
const maxSkew = 4 * time.Minute

// Skewed is told of an answer 401 or 403 to a signed call: signed is the x-amz-date of the call, date the Date of the
// answer. When the clocks are so far apart that this explains the refusal, the provider's is believed from now on, and
// the result is true: the same call, signed anew, may pass. The code of the error needs no look: the same one stands
// for a wrong clock and for a wrong key (aws-sdk-go-v2 aws/retry, clockSkewCodes).
func (s *Set) Skewed(provider, signed, date string) bool {
	src := s.source(provider)
	if src == nil || src.account.aws == "" {
		return false
	}
	theirs, err := http.ParseTime(date)
	if err != nil {
		return false
	}
	ours, err := time.Parse(amzDate, signed)
	if err != nil || theirs.Sub(ours).Abs() <= maxSkew {
		return false
	}
	src.clock.Store(int64(time.Until(theirs)))
	return true
}
