package cache

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"understudy/pkg/classify"
)

// Why a request's answer is not kept. A request that is [ErrPrivate] or [ErrUnread] must not be stored either.
var (
	// ErrPrivate says that the request forbids to store it (store: false), or carries a credential.
	ErrPrivate = errors.New("the request must not be stored")
	// ErrState says that the request names what a provider holds, so that it alone does not say what its answer is.
	ErrState = errors.New("the request leans on what a provider holds")
	// ErrUnread says that the request cannot be read, or that providers may read it differently.
	ErrUnread = errors.New("the request cannot be read")
)

// Request is what an answer is kept under.
type Request struct {
	Chain, Tenant string // those of two never share an answer
	API           classify.API
	Path          string // of the endpoint, with the query
	Version, Beta string // anthropic-version; anthropic-beta or openai-beta
	Body          []byte // the client's JSON, without content encoding; the caller bounds it
}

// Key stands for a request: requests that ask the same have the same key. It holds nothing that the caller sent, but
// hashes; short texts can be guessed from those, so they are for the sealed store only. The zero Key is no request's.
type Key struct {
	exact digest
	near  *question // nil: only the same request hits
}

type digest [sha256.Size]byte

func (d digest) String() string { return hex.EncodeToString(d[:]) }

// KeyOf is the key of r, also for near hits where near is set. The error wraps ErrPrivate, ErrState, both, or ErrUnread.
func KeyOf(r Request, near bool) (Key, error) {
	d := dialects[r.API]
	if d == nil {
		return Key{}, fmt.Errorf("%w: requests to %s are in no dialect that the cache knows", ErrUnread, r.Path)
	}
	form := r.envelope()
	start := len(form)
	form, _, f, err := canonical(form, r.Body, d, noHole)
	if err != nil {
		return Key{}, fmt.Errorf("%w: %w", ErrUnread, err)
	}
	if err := f.err(); err != nil {
		return Key{}, err
	}
	k := Key{exact: sha256.Sum256(form)}
	if near {
		k.near = r.question(d, form[:start])
	}
	return k, nil
}

func (f found) err() error {
	var private, state error
	if f.private != "" {
		private = fmt.Errorf("%w: %s", ErrPrivate, f.private)
	}
	if f.state != "" {
		state = fmt.Errorf("%w: %s", ErrState, f.state)
	}
	return errors.Join(private, state)
}

// envelope begins the canonical form of a request with all that is not its body, each with its length before it.
func (r *Request) envelope() []byte {
	b := make([]byte, 0, 512+min(len(r.Body), 64<<10))
	b = append(b, "understudy answer 1\n"...)
	for _, s := range []string{r.Chain, r.Tenant, r.Path, strings.TrimSpace(r.Version), betas(r.Beta)} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	return append(b, byte(r.API))
}

// betas sorts a list of features, whose order says nothing.
func betas(list string) string {
	all := strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
	slices.SortFunc(all, cmp.Compare[string])
	return strings.Join(slices.Compact(all), ",")
}

// MarshalText writes a digest in hex.
func (d digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (d *digest) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(d)) {
		return errors.New("no SHA-256 in hex")
	}
	_, err := hex.Decode(d[:], text)
	return err
}
