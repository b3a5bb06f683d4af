package admin

import (
	"compress/gzip"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// policy lets a page load its own style sheet and script, ask for its own events and send its own forms: nothing else,
// and nothing that stands in the page itself, so that no text in it can act.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// requestBound ends a request whose body does not come, and an answer that is not read: neither may be kept for ever by
// who has no business here, nor hold up the end of the process.
const requestBound = 30 * time.Second

// guarded adds to every answer what keeps browsers from doing more with it than is meant, and bounds its time.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		bound(w, r)
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		// With no-referrer the browser would send "Origin: null" with our own forms.
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

func bound(w http.ResponseWriter, r *http.Request) {
	rc, until := http.NewResponseController(w), time.Now().Add(requestBound)
	_ = rc.SetWriteDeadline(until) // where it is not supported, nothing is behind that could hang
	if r.ContentLength != 0 {
		_ = rc.SetReadDeadline(until)
	}
}

// trusted lets through who shows the token, and where none is configured, who is on this machine: not a web page that
// a browser there shows (its calls carry an Origin, or a name as Host that was made to lead here).
func (o Options) trusted(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		shown, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch status, why := o.admits(shown); {
		case status == http.StatusUnauthorized:
			say(w, status, why+": send Authorization: Bearer TOKEN")
		case status != http.StatusOK:
			say(w, status, why)
		case o.Token() == "" && (r.Header.Get("Origin") != "" || !plain(r.Host)):
			say(w, http.StatusForbidden, "web pages may not do this: set server.admin_token and send it")
		default:
			next(w, r)
		}
	}
}

// admits says whether a caller may change things who has shown that token.
func (o Options) admits(shown string) (status int, why string) {
	switch token := o.Token(); {
	case token != "" && subtle.ConstantTimeCompare([]byte(shown), []byte(token)) == 1:
		return http.StatusOK, ""
	case token != "":
		return http.StatusUnauthorized, "this needs the admin token"
	case !o.Local:
		return http.StatusForbidden, "this listener is open to the network: set server.admin_token to allow this"
	}
	return http.StatusOK, ""
}

// known lets through who has called this listener by a name that only its operator can have meant: a web page whose own
// name was made to lead here would otherwise read along. TLS names the host by its certificate.
func (o Options) known(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil && !plain(r.Host) && !slices.Contains(o.Names, strings.ToLower(hostOf(r.Host))) {
			say(w, http.StatusMisdirectedRequest, "this page is called by an IP address, by localhost, or by a name in server.admin_names")
			return
		}
		next(w, r)
	}
}

// plain says that a Host header is no name that somebody else's DNS may resolve.
func plain(host string) bool {
	host = hostOf(host)
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || host == "localhost" || host == ""
}

func hostOf(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		return h
	}
	return host
}

// formKey makes what a form of ours carries and no other page can know. A mark is another one each time, so that the
// length of a compressed page says nothing about it.
type formKey [sha256.Size]byte

const nonceLength = 16

func newFormKey() (k formKey) {
	_, _ = rand.Read(k[:]) // never fails
	return k
}

func (k *formKey) mark() string {
	nonce := make([]byte, nonceLength)
	_, _ = rand.Read(nonce)
	return hex.EncodeToString(append(nonce, k.sum(nonce)...))
}

// made says whether mark has made it.
func (k *formKey) made(mark string) bool {
	raw, err := hex.DecodeString(mark)
	return err == nil && len(raw) > nonceLength && hmac.Equal(raw[nonceLength:], k.sum(raw[:nonceLength]))
}

func (k *formKey) sum(nonce []byte) []byte {
	h := hmac.New(sha256.New, k[:])
	h.Write(nonce)
	return h.Sum(nil)
}

// compressed lets next's answer be sent compressed.
func compressed(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding")
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			next(w, r)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer z.Close()
		next(zipped{w, z}, r)
	}
}

type zipped struct {
	http.ResponseWriter
	z *gzip.Writer
}

func (w zipped) Write(p []byte) (int, error) { return w.z.Write(p) }
