package store

import (
	"fmt"
	"strconv"
	"strings"
)

// keyMost bounds an encoded key: a protocol line longer than 4 KiB makes a NATS server close the connection.
const keyMost = 1024

// encodeKey makes one subject token of any key, reversibly. NATS (ADR-8) takes letters, digits and -/_=. in keys; a
// point would end the token, and = begins an escape here: all bytes but letters, digits and -/_ become =XX.
func encodeKey(key string) (string, error) {
	var b strings.Builder
	for i := range len(key) {
		if c := key[i]; plain(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	if n := b.Len(); n == 0 || n > keyMost {
		return "", fmt.Errorf("%w: a key of %d bytes, want 1 to %d", ErrTooLarge, n, keyMost)
	}
	return b.String(), nil
}

func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-/_", c) >= 0
}

// decodeKey undoes encodeKey; ok is false for a token that encodeKey does not make.
func decodeKey(token string) (key string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		c := token[i]
		if c == '=' {
			hex := token[i+1 : min(i+3, len(token))]
			n, err := strconv.ParseUint(hex, 16, 8)
			if err != nil || plain(byte(n)) || len(hex) < 2 || hex != strings.ToUpper(hex) {
				return "", false
			}
			c, i = byte(n), i+2
		} else if !plain(c) {
			return "", false
		}
		b.WriteByte(c)
	}
	return b.String(), token != ""
}
