package degrade

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"understudy/pkg/classify"
	"understudy/pkg/config"
	"understudy/pkg/degrade/queue"
	"understudy/pkg/degrade/queue/queuetest"
)

// queueing is a ladder with a queue in memory, and a request to a chain that queues.
func queueing(fault func(op, key string) queuetest.Fault) (*Ladder, *Ask) {
	m := queuetest.New()
	m.Fault = fault
	c := &config.Chain{Name: "later", Degrade: []string{"queue", "off"}, Off: config.Off{Status: 503, Message: "Off."},
		Queue: config.Queue{MaxAge: time.Hour, Message: "Later."}}
	cfg := &config.Config{Jobs: config.Jobs{Keep: time.Hour}, Recovery: config.Recovery{Rate: 5}, Chains: []*config.Chain{c}}
	q := &queue.Queue{Parts: m.Parts(), Config: func() *config.Config { return cfg }, Count: func(_, _ string) {}}
	return New(nil, q, slog.New(slog.DiscardHandler)), &Ask{
		Chain: c, API: classify.OpenAIChat, Path: "/v1/chat/completions", Endpoint: "/v1/chat/completions", Key: "k", Exchange: "x",
		Model: "m", Body: []byte(`{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}],"stream_options":{"include_usage":true},"n":1}`),
	}
}

func TestWhichRequestsAreQueued(t *testing.T) {
	rows := []struct {
		name  string
		edit  func(*Ask)
		fault func(op, key string) queuetest.Fault
		want  string // mode, "" for none
		code  int
		err   string
	}{
		{"a request is not queued", nil, nil, "queue", 202, ""},
		{"a request that must not be stored is", func(q *Ask) { q.NoStore = true }, nil, "off", 503, ""},
		{"a request of nobody known is", func(q *Ask) { q.Private = true }, nil, "off", 503, ""},
		{"a request that cannot be read is", func(q *Ask) { q.Broken = true }, nil, "off", 503, ""},
		{"a request with store: false is", func(q *Ask) { q.Body = []byte(`{"model":"m","store":false,"messages":[]}`) }, nil, "off", 503, ""},
		{"a background request is", func(q *Ask) { q.Body = []byte(`{"model":"m","background":true,"messages":[]}`) }, nil, "off", 503, ""},
		{"a credential of a tool is stored", func(q *Ask) {
			q.Body = []byte(`{"model":"m","messages":[],"tools":[{"type":"mcp","server_url":"https://x.example","authorization":"s3cret"}]}`)
		}, nil, "off", 503, ""},
		{"a full store accepts", func(q *Ask) { q.Chain.Degrade = []string{"queue"} },
			func(op, _ string) queuetest.Fault {
				return map[bool]queuetest.Fault{true: queuetest.Full}[op == "put blob"]
			}, "", 0, "the queue has no room for another request"},
		{"what a store that is down says is told to the client", func(q *Ask) { q.Chain.Degrade = []string{"queue"} },
			func(string, string) queuetest.Fault { return queuetest.Refused }, "", 0, "the queue cannot keep the request now"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			l, q := queueing(row.fault)
			if row.edit != nil {
				row.edit(q)
			}
			a, mode, err := l.Answer(t.Context(), q, q.Chain.Degrade)
			told := ""
			if err != nil {
				told = err.Error()
			}
			if mode != row.want || a.Status != row.code || told != row.err {
				t.Errorf("Answer() = %d %q, %q, want %d %q, %q", a.Status, mode, told, row.code, row.want, row.err)
			}
		})
	}
}

func TestAKeyIsOneJobAndOneRequest(t *testing.T) {
	l, q := queueing(nil)
	first, _, _ := l.Answer(t.Context(), q, q.Chain.Degrade)
	again, _, _ := l.Answer(t.Context(), q, q.Chain.Degrade)
	if first.Headers["location"] == "" || first.Headers["location"] != again.Headers["location"] {
		t.Errorf("Answer() twice = %q and %q, want one job", first.Headers["location"], again.Headers["location"])
	}
	other := *q
	other.Body = []byte(`{"model":"m","messages":[]}`)
	if a, mode, _ := l.Answer(t.Context(), &other, q.Chain.Degrade); a.Status != 422 || mode != "" {
		t.Errorf("Answer() for another request under the key = %d %q, want 422", a.Status, mode)
	}
	id := strings.TrimPrefix(first.Headers["location"], "/jobs/")
	var job jobView
	if a := l.Job(t.Context(), id, ""); a.Status != 200 || json.Unmarshal(a.Body, &job) != nil || job.ID != id || job.State != queue.Queued {
		t.Errorf("Job(%s) = %d %s, want the job", id, a.Status, a.Body)
	}
	for _, row := range [][2]string{{id, "another tenant"}, {"nosuch", ""}, {"", ""}, {"../" + id, ""}} {
		if a := l.Job(t.Context(), row[0], row[1]); a.Status != 404 {
			t.Errorf("Job(%q, %q) = %d, want 404", row[0], row[1], a.Status)
		}
	}
}

func TestAQueuedRequestAsksForAnAnswerInOnePiece(t *testing.T) {
	_, q := queueing(nil)
	want := `{"model":"m","messages":[{"role":"user","content":"hi"}],"n":1}`
	if got := string(whole(q.Body)); got != want {
		t.Errorf("whole() = %s, want %s", got, want)
	}
	if got := string(whole([]byte(`{ "stream" : true }`))); got != "{}" {
		t.Errorf("whole() = %s, want {}", got)
	}
}

func TestAResultIsShownAsItCame(t *testing.T) {
	rows := []struct{ name, body, json, text string }{
		{"JSON is quoted", `{"a":1}`, `{"a":1}`, ""},
		{"what is no JSON breaks the view", "<html>", "", "<html>"},
		{"nothing is null", "", "", ""},
	}
	for _, row := range rows {
		v := viewOf(&queue.Result{Status: 200, ContentType: "x/y", Headers: map[string]string{"x-llm-target": "t"}, Body: []byte(row.body)})
		if string(v.Body) != row.json || v.Text != row.text || v.Headers["content-type"] != "x/y" || v.Headers["x-llm-target"] != "t" {
			t.Errorf("%s: viewOf(%q) = %+v", row.name, row.body, v)
		}
	}
}
