package store

import (
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats.go"
)

// sealKeySize is that of AES-256.
const sealKeySize = 32

// A sealed message says so in this header; its data is the nonce, the ciphertext and the tag.
const (
	sealedHeader = "Understudy-Sealed"
	sealedWith   = "AES-256-GCM"
)

// ErrSealed says that a value is sealed by a key that is not among those given, belongs elsewhere or was changed, or that
// it is not sealed where it has to be.
var ErrSealed = errors.New("no key opens the value")

// Sealer encrypts values at rest with AES-256-GCM, each bound to its bucket and key, or queue, topic and id. Keys, topics
// and ids themselves, and the times and sizes of values, can be read.
//
// Concurrency: all methods may be called at once.
type Sealer struct {
	keys []cipher.AEAD
}

// NewSealer makes a sealer of keys of 32 random bytes each. The first seals, all of them open: to change the key put the
// new one first, on every replica behind the old one before. Nonces are random: a key is good for 2³² values.
func NewSealer(keys [][]byte) (*Sealer, error) {
	if len(keys) == 0 {
		return nil, errors.New("store: no key to seal with, want at least one of 32 bytes")
	}
	s := &Sealer{}
	for n, key := range keys {
		if len(key) != sealKeySize {
			return nil, fmt.Errorf("store: key %d to seal with has %d bytes, want %d", n+1, len(key), sealKeySize)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, err
		}
		s.keys = append(s.keys, aead)
	}
	return s, nil
}

// String keeps the keys out of logs.
func (s *Sealer) String() string { return fmt.Sprintf("sealer of %d keys", len(s.keys)) }

// Format keeps them out of every verb.
func (s *Sealer) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

// put makes value the data of m. A nil sealer leaves it plain.
func (s *Sealer) put(m *nats.Msg, value []byte) {
	m.Data = value
	if s != nil {
		m.Header.Set(sealedHeader, sealedWith)
		m.Data = s.keys[0].Seal(nil, nil, value, belongs(m.Subject, m.Header))
	}
}

// open returns the value in a message's data, or ErrSealed. A nil sealer opens what is plain, any other what it sealed.
func (s *Sealer) open(subject string, h nats.Header, data []byte) ([]byte, error) {
	sealed := h.Get(sealedHeader) != ""
	switch {
	case s == nil && sealed:
		return nil, fmt.Errorf("%w: it is sealed, and there is no key", ErrSealed)
	case s == nil:
		return data, nil
	case !sealed:
		return nil, fmt.Errorf("%w: it is not sealed", ErrSealed)
	}
	for _, key := range s.keys {
		if value, err := key.Open(nil, nil, data, belongs(subject, h)); err == nil {
			return value, nil
		}
	}
	return nil, ErrSealed
}

// belongs is what a sealed value is bound to: the subject names the bucket and the key, or the queue and the topic, and an
// item has its id besides.
func belongs(subject string, h nats.Header) []byte {
	return []byte(subject + "\n" + h.Get(nats.MsgIdHdr))
}
