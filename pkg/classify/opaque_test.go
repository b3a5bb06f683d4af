package classify

import "testing"

func TestAnAnswerInNoDialectIsReadByItsStatus(t *testing.T) {
	rows := []struct {
		name   string
		status int
		body   string
		clean  bool
		want   Class
	}{
		{"an embedding is malformed", 200, `{"object":"list","data":[{"embedding":[0.1]}]}`, true, OK},
		{"sound is malformed", 200, "ID3\x00\x01", true, OK},
		{"an error in the body of a good answer counts", 200, `{"error":{"type":"overloaded_error"}}`, true, OK},
		{"an empty answer is good", 200, "", true, Truncated},
		{"a cut answer is good", 200, `{"obj`, false, Transport},
		{"an overload is not told", 503, `{"error":{"message":"busy"}}`, true, Overloaded},
		{"a spent budget is a rate limit", 429, `{"error":{"code":"insufficient_quota","message":"x"}}`, true, Quota},
		{"a redirect is an answer", 302, "moved", true, Malformed},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r := New(Options{Opaque: true})
			r.Header(row.status, func(string) string { return "" })
			for i := range len(row.body) {
				r.Feed([]byte(row.body[i : i+1]))
			}
			if v := r.End(row.clean); v.Class != row.want || v.Complete != (row.want == OK) {
				t.Errorf("End() = %s, complete %v, want %s", v.Class, v.Complete, row.want)
			}
		})
	}
}
