package scripted

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// SigV4 verifies AWS Signature Version 4, by the words of the IAM User Guide ("Create a signed AWS API request") and
// with no part of AWS's SDKs.
type SigV4 struct {
	Region, Service string
	// Secret has the key that belongs to an access key id, and the session token that has to come with it.
	Secret func(id string) (secret, session string, err error)
	Clock  func() time.Time // nil: time.Now
}

// maxSkew: "the request must reach AWS within five minutes of the time stamp in the request".
const maxSkew = 5 * time.Minute

const amzDate = "20060102T150405Z"

// awsError is a refusal by its exception.
type awsError struct{ exception, message string }

func (e awsError) Error() string { return e.exception + ": " + e.message }

func incomplete(format string, args ...any) error {
	return awsError{"IncompleteSignatureException", fmt.Sprintf(format, args...)}
}

// signed is what an authorization header says.
type signed struct {
	id, day, region, service string
	headers                  []string
	signature                string
}

func (s SigV4) check(r *http.Request, body []byte) error {
	if err := carriesOnly(r, "Authorization", "X-Amz-Date", "X-Amz-Security-Token"); err != nil {
		return awsError{"AccessDeniedException", err.Error()}
	}
	got, err := readAuthorization(r)
	if err != nil {
		return err
	}
	secret, session, err := s.Secret(got.id)
	if err != nil {
		return err
	}
	if r.Header.Get("X-Amz-Security-Token") != session {
		return awsError{"UnrecognizedClientException", "The security token included in the request is invalid."}
	}
	if err := s.scope(got, r.Header.Get("X-Amz-Date")); err != nil {
		return err
	}
	canonical, err := canonicalRequest(r, body, got.headers)
	if err != nil {
		return err
	}
	if want := s.signature(secret, r.Header.Get("X-Amz-Date"), canonical); !hmac.Equal([]byte(want), []byte(got.signature)) {
		return awsError{"InvalidSignatureException", "The request signature we calculated does not match the signature you provided. " +
			"The Canonical String for this request should have been '" + canonical + "'"}
	}
	return nil
}

// readAuthorization reads AWS4-HMAC-SHA256 Credential=ID/DAY/REGION/SERVICE/aws4_request, SignedHeaders=A;B, Signature=HEX.
func readAuthorization(r *http.Request) (signed, error) {
	values := r.Header.Values("Authorization")
	if len(values) == 0 {
		return signed{}, awsError{"MissingAuthenticationTokenException", "Missing Authentication Token"}
	}
	rest, ok := strings.CutPrefix(values[0], "AWS4-HMAC-SHA256 ")
	if len(values) > 1 || !ok {
		return signed{}, incomplete("%d authorization headers, want one of AWS4-HMAC-SHA256", len(values))
	}
	fields := map[string]string{}
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		fields[name] = value
	}
	scope := strings.Split(fields["Credential"], "/")
	if len(scope) != 5 || scope[4] != "aws4_request" || fields["SignedHeaders"] == "" || fields["Signature"] == "" {
		return signed{}, incomplete("Authorization header requires 'Credential', 'Signature' and 'SignedHeaders': %s", rest)
	}
	return signed{scope[0], scope[1], scope[2], scope[3], strings.Split(fields["SignedHeaders"], ";"), fields["Signature"]}, nil
}

// scope checks where and when a signature holds.
func (s SigV4) scope(got signed, date string) error {
	when, err := time.Parse(amzDate, date)
	switch {
	case err != nil:
		return incomplete("Date must be in ISO-8601 'basic format'. Got '%s'.", date)
	case got.day != date[:8]:
		return awsError{"InvalidSignatureException", fmt.Sprintf("Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP: '%s' != '%s'.", got.day, date[:8])}
	case got.region != s.Region:
		return awsError{"InvalidSignatureException", fmt.Sprintf("Credential should be scoped to a valid region, not '%s'.", got.region)}
	case got.service != s.Service:
		return awsError{"InvalidSignatureException", fmt.Sprintf("Credential should be scoped to correct service: '%s'.", s.Service)}
	}
	now := s.now()
	switch {
	case now.Sub(when) > maxSkew:
		return awsError{"InvalidSignatureException", fmt.Sprintf("Signature expired: %s is now earlier than %s (%s - 5 min.)",
			date, now.Add(-maxSkew).Format(amzDate), now.Format(amzDate))}
	case when.Sub(now) > maxSkew:
		return awsError{"InvalidSignatureException", fmt.Sprintf("Signature not yet current: %s is still later than %s (%s + 5 min.)",
			date, now.Add(maxSkew).Format(amzDate), now.Format(amzDate))}
	}
	return nil
}

func (s SigV4) now() time.Time {
	if s.Clock == nil {
		return time.Now().UTC()
	}
	return s.Clock().UTC()
}

// canonicalRequest is HTTPMethod, CanonicalUri, CanonicalQueryString, CanonicalHeaders, SignedHeaders and HashedPayload,
// a line each.
func canonicalRequest(r *http.Request, body []byte, names []string) (string, error) {
	headers, err := canonicalHeaders(r, names)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(body)
	payload := hex.EncodeToString(sum[:])
	if said := r.Header.Get("X-Amz-Content-Sha256"); said != "" && said != payload {
		return "", awsError{"InvalidSignatureException", "The provided 'x-amz-content-sha256' header does not match what was computed."}
	}
	query, err := canonicalQuery(r.URL.RawQuery)
	if err != nil {
		return "", err
	}
	path, _, _ := strings.Cut(r.RequestURI, "?") // as it came: r.URL has it decoded
	return strings.Join([]string{r.Method, canonicalPath(path), query, headers, strings.Join(names, ";"), payload}, "\n"), nil
}

// canonicalPath normalizes a path and encodes each segment of it, which the client has encoded once, again: "Each path
// segment must be URI-encoded twice (except for Amazon S3 which only gets URI-encoded once)."
func canonicalPath(path string) string {
	var kept []string
	for segment := range strings.SplitSeq(path, "/") {
		switch segment {
		case "", ".":
		case "..":
			kept = kept[:max(0, len(kept)-1)]
		default:
			kept = append(kept, uriEncode(segment))
		}
	}
	out := "/" + strings.Join(kept, "/")
	if strings.HasSuffix(path, "/") && out != "/" {
		out += "/"
	}
	return out
}

// canonicalQuery: "URI-encode each parameter name and value … Sort the parameter names by character code point in
// ascending order. Parameters with duplicate names should be sorted by value."
func canonicalQuery(raw string) (string, error) {
	var pairs [][2]string
	for part := range strings.SplitSeq(raw, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		plainName, err1 := url.QueryUnescape(name)
		plainValue, err2 := url.QueryUnescape(value)
		if err := errors.Join(err1, err2); err != nil {
			return "", incomplete("the query cannot be read: %s", err)
		}
		pairs = append(pairs, [2]string{uriEncode(plainName), uriEncode(plainValue)})
	}
	slices.SortFunc(pairs, func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	parts := make([]string, len(pairs))
	for i, pair := range pairs {
		parts[i] = pair[0] + "=" + pair[1]
	}
	return strings.Join(parts, "&"), nil
}

// uriEncode: "URI encode every byte except the unreserved characters: 'A'-'Z', 'a'-'z', '0'-'9', '-', '.', '_', and '~'.
// … Each URI encoded byte is formed by a '%' and the two-digit hexadecimal value of the byte", in capitals.
func uriEncode(s string) string {
	var out strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0 {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "%%%02X", c)
		}
	}
	return out.String()
}

// canonicalHeaders: "Lowercase header names, trimmed values, sequential spaces converted to a single space, sorted". What
// has to be signed is "at least the host header, and any x-amz-* headers in the request".
func canonicalHeaders(r *http.Request, names []string) (string, error) {
	if !slices.IsSorted(names) || !slices.Contains(names, "host") {
		return "", incomplete("'SignedHeaders' must be sorted and have 'host': %s", strings.Join(names, ";"))
	}
	for name := range r.Header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-amz-") && !slices.Contains(names, name) {
			return "", incomplete("There were headers present in the request which were not signed: %s", name)
		}
	}
	var out strings.Builder
	for _, name := range names {
		values := slices.Clone(r.Header.Values(name))
		switch name {
		case "host":
			values = []string{r.Host}
		case "content-length":
			values = []string{strconv.FormatInt(r.ContentLength, 10)}
		}
		if len(values) == 0 {
			return "", awsError{"InvalidSignatureException", "a signed header did not come: " + name}
		}
		for i, v := range values {
			values[i] = strings.Join(strings.Fields(v), " ")
		}
		out.WriteString(name + ":" + strings.Join(values, ",") + "\n")
	}
	return out.String(), nil
}

// signature: the string to sign is the algorithm, the time, the scope and the hash of the canonical request; the key is
// HMAC(HMAC(HMAC(HMAC("AWS4"+secret, date), region), service), "aws4_request").
func (s SigV4) signature(secret, date, canonical string) string {
	day := date[:8]
	sum := sha256.Sum256([]byte(canonical))
	scope := strings.Join([]string{day, s.Region, s.Service, "aws4_request"}, "/")
	key := []byte("AWS4" + secret)
	for _, part := range []string{day, s.Region, s.Service, "aws4_request"} {
		key = mac(key, part)
	}
	return hex.EncodeToString(mac(key, strings.Join([]string{"AWS4-HMAC-SHA256", date, scope, hex.EncodeToString(sum[:])}, "\n")))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
