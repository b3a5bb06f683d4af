package credential

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"understudy/pkg/config"
)

// proof makes the headers for one call after another, by the clock of the provider.
type proof interface {
	headers(ctx context.Context, now time.Time, r Request) ([]Header, error)
}

// fixed is the same for every call.
type fixed []Header

func (f fixed) headers(context.Context, time.Time, Request) ([]Header, error) { return f, nil }

// none is why there is no proof.
type none struct{ err error }

func (n none) headers(context.Context, time.Time, Request) ([]Header, error) { return nil, n.err }

// account is what a renewed credential is made from: two that are equal are the same.
type account struct {
	aws, gcp, entra string // as config.Auth has them
	region, service string // of AWS
	scope           string // of Entra
}

// source is the credential of one provider: fixed, or renewed.
type source struct {
	account account
	fixed   proof         // nil when renewed
	renewer *renewer      // nil when fixed, as is clock
	clock   *atomic.Int64 // nanoseconds that the provider's clock is ahead of ours
}

// newSource keeps what old (nil: none) has when it is of the same account.
func newSource(p *config.Provider, old *source, log *slog.Logger) *source {
	s := &source{account: accountOf(p)}
	switch {
	case s.account == account{}:
		s.fixed = fixedProof(p.Auth)
	case old != nil && old.account == s.account:
		s.renewer, s.clock = old.renewer, old.clock
	default:
		s.renewer, s.clock = s.account.renewer(log.With("provider", p.Name)), new(atomic.Int64)
	}
	return s
}

func (a account) renewer(log *slog.Logger) *renewer {
	switch {
	case a.aws != "":
		return newRenewer("no AWS credential", a.fetchAWS, awsFiles(), log)
	case a.gcp != "":
		return newRenewer("no Google token", a.fetchGCP, []string{a.gcpFile()}, log)
	}
	return newRenewer("no Entra token", entra{scope: a.scope}.fetch, nil, log)
}

func accountOf(p *config.Provider) account {
	a := account{aws: p.Auth.AWS, gcp: p.Auth.GCP, entra: p.Auth.Entra}
	switch {
	case a.aws != "":
		a.region, a.service = p.Region, signingName(p.Surface)
	case a.entra != "":
		a.scope = entraScope(p.Platform)
	}
	return a
}

func fixedProof(a config.Auth) proof {
	if a.FromClient || a.None {
		return fixed(nil)
	}
	secret, err := a.Secret.Value()
	if err != nil {
		return none{err}
	}
	return fixed{{a.Header, a.Prefix + secret}}
}

func (s *source) sign(ctx context.Context, r Request) ([]Header, error) {
	if s.renewer == nil {
		return s.fixed.headers(ctx, time.Time{}, r)
	}
	p, err := s.renewer.proof(ctx)
	if err != nil {
		return nil, err
	}
	return p.headers(ctx, time.Now().Add(time.Duration(s.clock.Load())), r)
}

func (s *source) ready() error {
	if s.renewer != nil {
		return s.renewer.ready()
	}
	if n, ok := s.fixed.(none); ok {
		return n.err
	}
	return nil
}

var errToken = said{errors.New("the token that came is empty, has no end, or fits into no header")}

// bearer is the proof by a token that ends. No token of Google's or Microsoft's does not.
func bearer(token string, ends time.Time, more ...Header) (lease, error) {
	odd := func(r rune) bool { return r <= ' ' || r >= 0x7f } // RFC 6750, 2.1: b64token
	if token == "" || strings.ContainsFunc(token, odd) || ends.IsZero() {
		return lease{}, errToken
	}
	return lease{fixed(append([]Header{{"authorization", "Bearer " + token}}, more...)), ends}, nil
}
