package admin

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestWhoMayReadThePages(t *testing.T) {
	rows := []struct {
		name, host string
		edit       func(*http.Request)
		want       int
	}{
		{"by address", "127.0.0.1:9003", nil, 200},
		{"by address of the network", "10.1.2.3:9003", nil, 200},
		{"by IPv6 address", "[::1]:9003", nil, 200},
		{"by localhost", "localhost:9003", nil, 200},
		{"through a socket", "", nil, 200},
		{"by a name that the config has", "Status.example.com", nil, 200},
		{"by a name that was made to lead here", "evil.example:9003", nil, 421},
		{"by a name that begins like ours", "status.example.com.evil.example", nil, 421},
		{"by a name that begins like an address", "127.0.0.1.evil.example", nil, 421},
		{"by a name that a certificate vouches for", "any.example:9003", func(r *http.Request) { r.TLS = &tls.ConnectionState{} }, 200},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			s := serve(sample(4, 2), func(o *Options) { o.Names = []string{"status.example.com"}; o.Local = false })
			for _, path := range []string{"/", "/operate", "/api/status", "/events"} {
				r := httptest.NewRequestWithContext(ended(t), http.MethodGet, "http://127.0.0.1:9003"+path, nil)
				r.Host = row.host
				if row.edit != nil {
					row.edit(r)
				}
				if resp, body := s.do(t, r); resp.StatusCode != row.want {
					t.Errorf("GET %s as %s = %d %.200s, want %d", path, row.host, resp.StatusCode, body, row.want)
				}
			}
		})
	}
}

// ended is a context that is over: what would follow for long ends at once.
func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// form is one as the page would send it.
type form struct {
	fields url.Values
	header map[string]string
	host   string
	mark   string // "": the page's
}

// sendForm fetches the page of forms and sends f from it.
func (s *served) sendForm(t *testing.T, f form) (*http.Response, string) {
	t.Helper()
	_, page := s.get(t, "/operate")
	if f.mark == "" {
		f.mark = attribute(page, `name="form" value`)
	}
	f.fields.Set("form", f.mark)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:9003/operate", strings.NewReader(f.fields.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for name, value := range f.header {
		r.Header.Set(name, value)
	}
	if f.host != "" {
		r.Host = f.host
	}
	return s.do(t, r)
}

func TestWhichFormsAreBelieved(t *testing.T) {
	own := map[string]string{"Origin": "http://127.0.0.1:9003", "Sec-Fetch-Site": "same-origin"}
	rows := []struct {
		name  string
		token string
		local bool
		form  form
		want  int
	}{
		{"the page's own, on this machine", "", true, form{header: own}, 303},
		{"a browser that says nothing of where it comes from", "", true, form{}, 303},
		{"without its mark", "", true, form{header: own, mark: "-"}, 403},
		{"with another process's mark", "", true, form{header: own, mark: anotherMark()}, 403},
		{"with half a mark", "", true, form{header: own, mark: "00"}, 403},
		{"from another site", "", true, form{header: map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}}, 403},
		{"from another port of this machine", "", true, form{header: map[string]string{"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:8080"}}, 403},
		{"from an old browser on another site", "", true, form{header: map[string]string{"Origin": "https://evil.example"}}, 403},
		{"from a frame without an origin", "", true, form{header: map[string]string{"Origin": "null"}}, 403},
		{"by a name that was made to lead here", "", true, form{host: "evil.example:9003", header: map[string]string{"Origin": "http://evil.example:9003", "Sec-Fetch-Site": "same-origin"}}, 421},
		{"without a token over the network", "", false, form{header: own, mark: "-"}, 403},
		{"without the token that is configured", "secret", true, form{header: own}, 401},
		{"with a wrong token", "secret", false, form{header: own, fields: url.Values{"token": {"secre"}}}, 401},
		{"with the token", "secret", false, form{header: own, fields: url.Values{"token": {"secret"}}}, 303},
		{"with the token but from another site", "secret", false, form{header: map[string]string{"Sec-Fetch-Site": "cross-site"}, fields: url.Values{"token": {"secret"}}}, 403},
		{"with the token but without the mark", "secret", false, form{header: own, mark: "-", fields: url.Values{"token": {"secret"}}}, 403},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			s := serve(sample(4, 2), func(o *Options) { o.Token = func() string { return row.token }; o.Local = row.local })
			if row.form.fields == nil {
				row.form.fields = url.Values{}
			}
			row.form.fields.Set("do", "open")
			row.form.fields.Set("target", "a/b c")
			resp, body := s.sendForm(t, row.form)
			if resp.StatusCode != row.want {
				t.Errorf("POST /operate = %d, want %d\n%s", resp.StatusCode, row.want, body)
			}
			if acted := len(s.asked) > 0; acted != (row.want == 303) {
				t.Errorf("asked for %q", s.asked)
			}
			if row.token != "" && (strings.Contains(body, row.token) || strings.Contains(resp.Header.Get("Location"), row.token)) {
				t.Error("the answer repeats the token")
			}
		})
	}
}

func anotherMark() string {
	k := newFormKey()
	return k.mark()
}

func TestWithoutATokenOverTheNetworkThereAreNoForms(t *testing.T) {
	s := serve(sample(4, 2), func(o *Options) { o.Local = false })
	if _, page := s.get(t, "/operate"); strings.Contains(page, "<form") || !strings.Contains(page, "server.admin_token") {
		t.Errorf("GET /operate = %s, want no form and what is missing", page)
	}
}

func TestWhatFormsAskFor(t *testing.T) {
	drill := url.Values{"do": {"drill"}, "chain": {"chain-0"}, "target": {"*"}, "fault": {"reset"}, "share": {"5"}, "seconds": {"60"}, "max_errors": {"10"}}
	words := url.Values{"do": {"drill"}, "share": {"a"}, "seconds": {""}, "max_errors": {"1"}}
	nan := url.Values{"do": {"drill"}, "share": {"NaN"}, "seconds": {"Inf"}, "max_errors": {"1"}}
	rows := []struct {
		fields      url.Values
		want        int
		asked, says string
	}{
		{url.Values{"do": {"open"}, "target": {"a/b"}}, 303, "force a/b open", "/?done=open"},
		{url.Values{"do": {"closed"}, "target": {"a/b"}}, 303, "force a/b closed", "/?done=closed"},
		{url.Values{"do": {"release"}, "target": {"a/b"}}, 303, "force a/b release", "/?done=release"},
		{url.Values{"do": {"off"}, "chain": {"chain-1"}}, 303, "switch chain-1 true", "/?done=off"},
		{url.Values{"do": {"on"}, "chain": {"chain-1"}}, 303, "switch chain-1 false", "/?done=on"},
		{drill, 303, `begin {"chain":"chain-0","faults":{"*":"reset"},"share":0.05,"for":"1m0s","max_errors":0.1}`, "/?done=drill"},
		{url.Values{"do": {"stop"}, "drill": {"DRILL1"}}, 303, "stop DRILL1", "/?done=stop"},
		{words, 400, "", "share: must be a number"},
		{nan, 400, "", "share: must be a number"},
		{url.Values{"do": {""}}, 400, "", "choose what is to be done"},
		{url.Values{"do": {"<b>"}}, 400, "", "choose what is to be done"},
	}
	for _, row := range rows {
		s := serve(sample(4, 2), nil)
		resp, body := s.sendForm(t, form{fields: row.fields})
		if resp.StatusCode != row.want || !strings.Contains(resp.Header.Get("Location")+body, row.says) || strings.Join(s.asked, ",") != row.asked {
			t.Errorf("POST /operate %v = %d %s %s, asked %q, want %d %s, %q", row.fields, resp.StatusCode, resp.Header.Get("Location"), body, s.asked, row.want, row.says, row.asked)
		}
	}
}

func TestAFormThatIsTooLongIsNotRead(t *testing.T) {
	s := serve(sample(4, 2), nil)
	resp, _ := s.sendForm(t, form{fields: url.Values{"do": {"open"}, "target": {strings.Repeat("x", maxForm)}}})
	if resp.StatusCode != http.StatusForbidden || len(s.asked) > 0 {
		t.Errorf("POST /operate = %d, asked %q, want 403 and nothing", resp.StatusCode, s.asked)
	}
}

func TestNoTwoMarksAreAlike(t *testing.T) {
	k := newFormKey()
	if a, b := k.mark(), k.mark(); a == b || !k.made(a) || !k.made(b) || k.made(a[:len(a)-2]) || k.made("") {
		t.Errorf("marks %s and %s: want different ones, believed whole only", a, b)
	}
}

func TestTheFormsAskForTheTokenWhereThereIsOne(t *testing.T) {
	s := serve(sample(4, 2), nil)
	if _, page := s.get(t, "/operate"); strings.Contains(page, "password") {
		t.Error("GET /operate asks for a token where none is configured")
	}
	s = serve(sample(4, 2), func(o *Options) { o.Token = func() string { return "secret" } })
	_, page := s.get(t, "/operate?target=provider-1/model-with-a-usual-name-1")
	if got := strings.Count(page, `type="password"`); got != 4 || strings.Contains(page, "secret") {
		t.Errorf("GET /operate has %d fields for the token, want 4: breaker, chain, drill, and the running drill's", got)
	}
	if !strings.Contains(page, `<option value="provider-1/model-with-a-usual-name-1" selected>`) {
		t.Error("GET /operate?target= does not choose the target")
	}
}

// Who sends half a form, or reads no answer, would otherwise keep a connection, and the end of the process.
func TestABodyThatDoesNotComeAndAnAnswerThatIsNotReadAreBounded(t *testing.T) {
	for _, row := range []struct {
		name, method, path, body string
		reads                    bool
	}{
		{"a form", http.MethodPost, "/operate", "form=", true},
		{"a call whose body nobody reads", http.MethodPost, "/chains/x/off", "x", true},
		{"a page", http.MethodGet, "/", "", false},
		{"metrics", http.MethodGet, "/metrics", "", false},
		{"what there is not", http.MethodGet, "/none", "", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := serve(sample(4, 2), nil)
			w := &timed{ResponseRecorder: httptest.NewRecorder()}
			s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), row.method, "http://127.0.0.1:9003"+row.path, strings.NewReader(row.body)))
			if most := time.Now().Add(requestBound); w.write.IsZero() || w.write.After(most) || w.read.IsZero() == row.reads {
				t.Errorf("deadlines = %v to write, %v to read, want one to write, and one to read: %t", w.write, w.read, row.reads)
			}
		})
	}
}

// timed notes deadlines.
type timed struct {
	*httptest.ResponseRecorder
	read, write time.Time
}

func (w *timed) SetReadDeadline(t time.Time) error  { w.read = t; return nil }
func (w *timed) SetWriteDeadline(t time.Time) error { w.write = t; return nil }
