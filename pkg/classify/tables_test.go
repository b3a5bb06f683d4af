package classify

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"understudy/pkg/classify/jsonscan"
)

func TestClassesAreThoseOfTheContract(t *testing.T) {
	const contract = "ok overloaded! server_error! timeout! transport! truncated! malformed! rate_limited> capacity> quota> auth> invalid context_length refusal filtered canceled"
	for i, word := range strings.Fields(contract) {
		c, name := Class(i+1), strings.TrimRight(word, "!>")
		trips, advances := strings.HasSuffix(word, "!"), name != word
		if c.String() != name || c.Trips() != trips || c.Advances() != advances {
			t.Errorf("Class(%d) = %v, trips %v, advances %v, want %s, %v, %v", c, c, c.Trips(), c.Advances(), name, trips, advances)
		}
		if got, ok := ParseClass(name); got != c || !ok {
			t.Errorf("ParseClass(%q) = %v, %v, want %v, true", name, got, ok, c)
		}
		b, err := json.Marshal(c)
		var back Class
		if err != nil || string(b) != `"`+name+`"` || json.Unmarshal(b, &back) != nil || back != c {
			t.Errorf("json of %v = %s, %v, back %v", c, b, err, back)
		}
	}
	if got, ok := ParseClass("fine"); ok {
		t.Errorf("ParseClass(fine) = %v, true, want false", got)
	}
	var c Class
	if err := json.Unmarshal([]byte(`"fine"`), &c); err == nil {
		t.Error(`Unmarshal("fine") = nil, want an error`)
	}
	if c = Class(200); c.String() != "class(200)" || c.Trips() || c.Advances() {
		t.Errorf("Class(200) = %v, %v, %v, want class(200), false, false", c, c.Trips(), c.Advances())
	}
}

func TestRetryAfterIsReadInEveryForm(t *testing.T) {
	now := time.Date(2026, 10, 21, 7, 28, 0, 0, time.UTC)
	for _, tt := range []struct {
		name, after, ms, date string
		now                   time.Time
		want                  int64
	}{
		{"none", "", "", "", now, 0},
		{"seconds", "17", "", "", now, 17_000},
		{"seconds with spaces", " 17 ", "", "", now, 17_000},
		{"seconds, twice", "17, 17", "", "", now, 17_000},
		{"a fraction", "0.25", "", "", now, 250},
		{"a fraction of a millisecond rounds up", "0.0001", "", "", now, 1},
		{"milliseconds", "", "1500", "", now, 1500},
		{"milliseconds before seconds", "9", "1500.5", "", now, 1501},
		{"bad milliseconds, good seconds", "9", "soon", "", now, 9000},
		{"negative", "-5", "", "", now, 0},
		{"negative milliseconds", "", "-5", "", now, 0},
		{"not a number", "NaN", "", "", now, 0},
		{"infinite", "Inf", "", "", now, 86_400_000},
		{"beyond a float", "1e999", "", "", now, 86_400_000},
		{"absurd", "99999999", "", "", now, 86_400_000},
		{"a word", "later", "", "", now, 0},
		{"an IMF date", "Wed, 21 Oct 2026 07:28:42 GMT", "", "", now, 42_000},
		{"an IMF date with a zone", "Wed, 21 Oct 2026 09:28:42 +0200", "", "", now, 42_000},
		{"an RFC 850 date", "Wednesday, 21-Oct-26 07:28:42 GMT", "", "", now, 42_000},
		{"an asctime date", "Wed Oct 21 07:28:42 2026", "", "", now, 42_000},
		{"a date in the past", "Wed, 21 Oct 2026 07:27:42 GMT", "", "", now, 0},
		{"a date far off", "Wed, 21 Oct 2037 07:28:42 GMT", "", "", now, 86_400_000},
		{"a date against the Date header", "Wed, 21 Oct 2026 07:28:42 GMT", "", "Wed, 21 Oct 2026 07:28:30 GMT", time.Time{}, 12_000},
		{"a date without a clock", "Wed, 21 Oct 2026 07:28:42 GMT", "", "", time.Time{}, 0},
	} {
		get := headers("retry-after", tt.after, "retry-after-ms", tt.ms, "date", tt.date)
		if got := readHints(get, tt.now); got.pause(RateLimited, 0) != tt.want {
			t.Errorf("%s: pause with retry-after %q, retry-after-ms %q = %d, want %d", tt.name, tt.after, tt.ms, got.pause(RateLimited, 0), tt.want)
		}
	}
}

func TestALowerTierThanAskedIsADowngrade(t *testing.T) {
	for _, tt := range []struct {
		asked, served string
		want          bool
	}{
		{"priority", "priority", false}, {"priority", "default", true}, {"priority", "standard", true}, {"priority", "flex", true},
		{"fast", "priority", false}, {"fast", "fast", false}, {"fast", "default", true}, {"fast", "standard", true},
		{"scale", "default", true}, {"ultrafast", "priority", true}, {"ultrafast", "ultrafast", false},
		{"auto", "default", false}, {"auto", "flex", false}, {"", "default", false}, {"standard_only", "standard", false},
		{"default", "default", false}, {"flex", "flex", false}, {"flex", "default", false},
		{"priority", "", false}, {"priority", "auto", false}, {"priority", "brand_new", false}, {"brand_new", "default", false},
	} {
		if got := downgraded(tt.asked, tt.served); got != tt.want {
			t.Errorf("downgraded(%q, %q) = %v, want %v", tt.asked, tt.served, got, tt.want)
		}
	}
}

func TestEveryFactHasItsSourceAndCanDecide(t *testing.T) {
	for i, w := range rows {
		if w.source == "" || w.class == None {
			t.Errorf("row %d %+v: no source or class", i, w)
		}
		in := trouble{status: w.status, code: w.token, text: w.text, tier: w.tier, origin: w.origin}
		for k := range rows {
			if rows[k].fits(in) {
				if k != i && rows[k].class != w.class {
					t.Errorf("row %d %+v: row %d %+v decides before it", i, w, k, rows[k])
				}
				break
			}
		}
	}
	for reason, s := range stops {
		if s.source == "" || s.class == None {
			t.Errorf("stop reason %q: no source or class", reason)
		}
	}
}

func TestOnePathIsOneFactInAllDialects(t *testing.T) {
	seen := map[string]jsonscan.Field{}
	for _, paths := range anyPaths {
		for path, field := range paths {
			if was, ok := seen[path]; ok && was != field {
				t.Errorf("path %q is fact %d and fact %d: a body of an unknown dialect would be misread", path, was, field)
			}
			seen[path] = field
		}
	}
}

func TestAStatusAloneHasItsClass(t *testing.T) {
	for status, want := range map[int]Class{
		0: ServerError, 100: Malformed, 199: Malformed, 204: Malformed, 302: Malformed, 304: Malformed, 400: Invalid, 401: Auth,
		402: Quota, 403: Auth, 404: Invalid, 408: Timeout, 409: Invalid, 413: Invalid, 418: Invalid, 422: Invalid, 429: RateLimited,
		499: Invalid, 500: ServerError, 502: ServerError, 503: Overloaded, 504: ServerError, 507: ServerError, 520: ServerError,
		529: Overloaded, 530: ServerError, 600: Malformed, 999: Malformed,
	} {
		if got := statusClass(status); got != want {
			t.Errorf("statusClass(%d) = %v, want %v", status, got, want)
		}
	}
}

func TestEveryClassHasAnHonestStatus(t *testing.T) {
	for c := OK; c <= Canceled; c++ {
		got := anthropic.honest(c)
		if failed := c.Trips() || c.Advances(); failed != (got >= 400) && c != Invalid && c != ContextLength && c != Filtered && c != Canceled {
			t.Errorf("honest(%v) = %d", c, got)
		}
	}
	if a, o := anthropic.honest(Overloaded), chat.honest(Overloaded); a != 529 || o != 503 {
		t.Errorf("honest(overloaded) = %d and %d, want 529 and 503", a, o)
	}
}

func TestDetailsAreNamesAndNeverTexts(t *testing.T) {
	for _, tt := range []struct {
		in   trouble
		want string
	}{
		{trouble{code: "invalid_api_key", kind: "x"}, "invalid_api_key"},
		{trouble{code: "502", kind: "BadGateway"}, "BadGateway"},
		{trouble{code: "502"}, "502"},
		{trouble{code: "my secret prompt", kind: "also a text"}, "error"},
		{trouble{code: "my secret prompt", status: 400}, "status 400"},
		{trouble{code: strings.Repeat("a", 65), status: 500}, "status 500"},
	} {
		if got := tt.in.detail(); got != tt.want {
			t.Errorf("detail(%+v) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

func TestCountsAreNumbersOrNothing(t *testing.T) {
	for in, want := range map[string]int64{"0": 0, "12": 12, "12.0": 12, "1e3": 1000, "-5": 0, "x": 0, "": 0, "1e300": 1 << 53, "99999999999999999999": 1 << 53} {
		if got := number([]byte(in)); got != want {
			t.Errorf("number(%q) = %d, want %d", in, got, want)
		}
	}
	var f facts
	f.tokens = tokens{factInput: 5, factCacheRead: math.MaxInt32}
	if got := f.tokens.usage(true).Input; got != 0 {
		t.Errorf("input with more cached tokens than input = %d, want 0", got)
	}
}

func TestARecordingIsReadByteForByte(t *testing.T) {
	for _, tt := range []struct {
		name, in, body string
		status         int
	}{
		{"LF", "HTTP/1.1 200 OK\nA: b\n\nbody\r\n", "body\r\n", 200},
		{"CRLF", "HTTP/1.1 429 Too Many Requests\r\nA: b\r\n\r\n\nbody", "\nbody", 429},
		{"HTTP/2 without a reason", "HTTP/2 529\na: b\n\n", "", 529},
		{"an interim head comes first", "HTTP/1.1 100 Continue\n\nHTTP/1.1 200 OK\nA: b\n\nHTTP/", "HTTP/", 200},
		{"content-length is not applied", "HTTP/1.1 200 OK\nA: b\nContent-Length: 2\n\nbody", "body", 200},
	} {
		got, err := ReadHTTP(strings.NewReader(tt.in))
		if err != nil || got.Status != tt.status || string(got.Body) != tt.body || got.Get("a") != "b" {
			t.Errorf("%s: ReadHTTP = %+v, %v, want status %d, body %q", tt.name, got, err, tt.status, tt.body)
		}
	}
	if got, err := ReadHTTP(strings.NewReader("HTTP/1.1 204 No Content\n\n")); err != nil || len(got.Header)+len(got.Body) != 0 {
		t.Errorf("ReadHTTP without headers = %+v, %v, want none", got, err)
	}
	for in, want := range map[string]string{
		"":                              "status line: unexpected EOF",
		"GET / HTTP/1.1\n\n":            "status line: want",
		"HTTP/1.1 abc\n\n":              "status line: want",
		"HTTP/1.1 200 OK\nA: b":         "headers: unexpected EOF",
		"HTTP/1.1 200 OK\nno colon\n\n": "headers: ",

		strings.Repeat("H", maxHeads+1):                            "headers: more than 1048576 bytes",
		"HTTP/1.1 200 OK\n" + strings.Repeat("A: b\n", maxHeads/5): "headers: more than 1048576 bytes",
		strings.Repeat("HTTP/1.1 100 Continue\n\n", maxHeads/23+1): "headers: more than 1048576 bytes",
	} {
		if _, err := ReadHTTP(strings.NewReader(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ReadHTTP(%.80q) = %v, want %q", in, err, want)
		}
	}
}

func TestTheStartOfARecordingIsDecoded(t *testing.T) {
	long := strings.Repeat("0123456789", 10_000)
	for codings, want := range map[string]string{"": long, "identity": long, "gzip": long[:maxErrorBody], "identity, BR": long[:maxErrorBody], "zstd": long[:maxErrorBody]} {
		body := []byte(long)
		if name := coding(codings); name != "" {
			body = encoded(t, name, body)
		}
		rec := &Recording{Header: map[string][]string{"Content-Encoding": {codings}}, Body: body}
		if got := string(rec.Start()); got != want {
			t.Errorf("Start() of a body in %q = %d bytes, want %d", codings, len(got), len(want))
		}
	}
	rec := &Recording{Header: map[string][]string{"Content-Encoding": {"gzip"}}, Body: []byte("plain text")}
	if got := rec.Start(); len(got) != 0 {
		t.Errorf("Start() of plain text said to be gzip = %q, want none", got)
	}
}
