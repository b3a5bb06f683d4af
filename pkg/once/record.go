package once

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// AnswerMost is the largest answer that is kept, in bytes, its headers included.
const AnswerMost = 4 << 20

var errDamaged = errors.New("what the store has under the idempotency key is damaged")

// state is what a record says of its key.
type state string

const (
	running state = "running"
	kept    state = "kept"   // ended, with an answer for all who ask
	failed  state = "failed" // ended, with an answer for those who wait
)

// run is one doing of what a key stands for.
type run struct {
	Run    string `json:"run,omitempty"`    // the same for all attempts of its exchange
	Answer string `json:"answer,omitempty"` // what its answer lies under, once it has ended
}

// record is what the store says of a key. All of it is random or a hash, and of a fixed size.
type record struct {
	State    state  `json:"state"`
	Exchange string `json:"exchange"`
	Digest   string `json:"digest"`
	Pen      string `json:"pen"` // of the claim that may end the run, or has ended it
	run
	Before run `json:"before,omitzero"` // the one that had ended when this one began
}

func (r Request) key() string { return sum("key", r.Tenant, r.Chain, r.Key) }

func (r Request) record() record {
	return record{State: running, Exchange: sum("exchange", r.Exchange), Digest: sum("digest", r.Digest), Pen: rand.Text()}
}

// sum tells lists of strings apart.
func sum(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		io.WriteString(h, strconv.Itoa(len(p))+":")
		io.WriteString(h, p)
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// answerOf returns what the answer of a run lies under, which is empty when the record knows of none.
func (rec record) answerOf(name string) (answer string, ended bool) {
	switch name {
	case rec.Run:
		return rec.Answer, rec.State != running
	case rec.Before.Run:
		return rec.Before.Answer, true
	}
	return "", true
}

// encode marshals a struct of strings, which cannot fail.
func encode(rec record) []byte {
	b, _ := json.Marshal(rec)
	return b
}

// read returns the record of a key and its revision.
func (k *Keys) read(ctx context.Context, key string) (record, uint64, error) {
	e, err := k.claims.Get(ctx, key)
	if err != nil {
		return record{}, 0, err
	}
	rec, err := decodeRecord(e.Value)
	return rec, e.Revision, err
}

func decodeRecord(value []byte) (rec record, err error) {
	if err := json.Unmarshal(value, &rec); err != nil {
		return record{}, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if rec.State != running && rec.State != kept && rec.State != failed || rec.Run == "" || rec.Pen == "" || (rec.State == running) != (rec.Answer == "") {
		return record{}, fmt.Errorf("%w: its state is %q", errDamaged, rec.State)
	}
	return rec, nil
}

// Answer is what a client gets. Several who wait for it share its bytes: they must not be changed.
type Answer struct {
	Status      int
	ContentType string
	Headers     map[string]string // those that the caller allows
	Body        []byte
	// TooLarge says that there is no more of the answer than its status. Who ends a claim may set it instead of holding a
	// body beyond AnswerMost.
	TooLarge bool
}

// answerHead is what stands in the store before an answer's body, on a line of its own. A JSON string would not keep
// all bytes that a header may have.
type answerHead struct {
	Name        string            `json:"name"` // what it lies under, so that no other is taken for it
	Status      int               `json:"status"`
	ContentType []byte            `json:"content_type,omitempty"`
	Headers     map[string][]byte `json:"headers,omitempty"`
	Bytes       int               `json:"bytes"` // of the body
	TooLarge    bool              `json:"too_large,omitempty"`
}

func (a Answer) size() int {
	n := len(a.ContentType) + len(a.Body)
	for name, value := range a.Headers {
		n += len(name) + len(value)
	}
	return n
}

// encode makes one value of an answer.
func (a Answer) encode(name string) ([]byte, error) {
	if a.TooLarge || a.size() > AnswerMost {
		a = Answer{Status: a.Status, TooLarge: true}
	}
	h := answerHead{Name: name, Status: a.Status, ContentType: []byte(a.ContentType), Bytes: len(a.Body), TooLarge: a.TooLarge}
	for field, value := range a.Headers {
		if h.Headers == nil {
			h.Headers = map[string][]byte{}
		}
		h.Headers[field] = []byte(value)
	}
	line, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	return append(append(line, '\n'), a.Body...), nil
}

// decodeAnswer undoes encode.
func decodeAnswer(value []byte, name string) (Answer, error) {
	line, body, ok := bytes.Cut(value, []byte("\n"))
	var h answerHead
	if err := json.Unmarshal(line, &h); !ok || err != nil {
		return Answer{}, fmt.Errorf("%w: it is no answer: %w", errDamaged, err)
	}
	if h.Name != name || h.Bytes != len(body) {
		return Answer{}, fmt.Errorf("%w: it is answer %q of %d bytes, want %q of %d", errDamaged, h.Name, len(body), name, h.Bytes)
	}
	a := Answer{Status: h.Status, ContentType: string(h.ContentType), Body: body, TooLarge: h.TooLarge}
	for field, value := range h.Headers {
		if a.Headers == nil {
			a.Headers = map[string]string{}
		}
		a.Headers[field] = string(value)
	}
	return a, nil
}
