package degrade

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"

	"understudy/pkg/classify"
)

// heard is what the caller of an SDK has of an answer.
type heard struct {
	id, model, role, text, stop string
	created                     int64 // Unix time; 0 in dialects without
	tokens                      int64
	job                         string // its JSON
}

// hear asks for an answer and reads it as the SDK's own callers do, with its accumulator where it was streamed.
func (s *sdks) hear(api classify.API, stream bool) (heard, error) {
	switch api {
	case classify.AnthropicMessages:
		return s.hearMessage(stream)
	case classify.OpenAIResponses:
		return s.hearResponse(stream)
	}
	return s.hearCompletion(stream)
}

func (s *sdks) hearMessage(stream bool) (heard, error) {
	m, err := new(anthropic.Message), error(nil)
	if stream {
		events := s.anthropic.Messages.NewStreaming(s.ctx, message)
		for events.Next() && err == nil {
			err = m.Accumulate(events.Current())
		}
		if err == nil {
			err = events.Err()
		}
	} else {
		m, err = s.anthropic.Messages.New(s.ctx, message)
	}
	if err != nil || len(m.Content) != 1 {
		return heard{}, err
	}
	return heard{id: m.ID, model: string(m.Model), role: string(m.Role), text: m.Content[0].AsText().Text, stop: string(m.StopReason),
		tokens: m.Usage.InputTokens + m.Usage.OutputTokens, job: m.JSON.ExtraFields["job"].Raw()}, nil
}

func (s *sdks) hearCompletion(stream bool) (heard, error) {
	c, job, err := new(openai.ChatCompletion), "", error(nil)
	if stream {
		acc, chunks := openai.ChatCompletionAccumulator{}, s.openai.Chat.Completions.NewStreaming(s.ctx, completion)
		for first := true; chunks.Next(); first = false {
			if first {
				job = chunks.Current().JSON.ExtraFields["job"].Raw()
			}
			if !acc.AddChunk(chunks.Current()) {
				return heard{}, chunks.Err()
			}
		}
		c, err = &acc.ChatCompletion, chunks.Err()
	} else if c, err = s.openai.Chat.Completions.New(s.ctx, completion); err == nil {
		job = c.JSON.ExtraFields["job"].Raw()
	}
	if err != nil || len(c.Choices) != 1 {
		return heard{}, err
	}
	choice := c.Choices[0]
	return heard{id: c.ID, model: c.Model, role: string(choice.Message.Role), text: choice.Message.Content, stop: choice.FinishReason,
		created: c.Created, tokens: c.Usage.TotalTokens, job: job}, nil
}

func (s *sdks) hearResponse(stream bool) (heard, error) {
	r, err := new(responses.Response), error(nil)
	if stream {
		events := s.openai.Responses.NewStreaming(s.ctx, response)
		for events.Next() {
			if e := events.Current(); e.Type == "response.completed" {
				r = &e.Response
			}
		}
		err = events.Err()
	} else {
		r, err = s.openai.Responses.New(s.ctx, response)
	}
	if err != nil || len(r.Output) != 1 {
		return heard{}, err
	}
	return heard{id: r.ID, model: string(r.Model), role: string(r.Output[0].Role), text: r.OutputText(), stop: string(r.Status),
		created: int64(r.CreatedAt), tokens: r.Usage.TotalTokens, job: r.JSON.ExtraFields["job"].Raw()}, nil
}

var (
	created = time.Unix(1_790_000_000, 0)
	queued  = &Job{ID: "j1", Location: "/jobs/j1", State: "queued", ExpectedSeconds: 90}
	jobJSON = `{"id":"j1","location":"/jobs/j1","state":"queued","expected_seconds":90}`
)

// sentences are what an owner may want to say, each a way to break a body made by hand.
var sentences = []struct{ name, text string }{
	{"a plain sentence is lost", "AI assist is temporarily unavailable."},
	{"quotes and brackets end the text early", `It is "down" \ <b>back</b> soon}]}`},
	{"a line end ends the event", "One.\n\ndata: [DONE]\r\n\r\nevent: error\rTwo."},
	{"other scripts are mangled", "Gleich zurück, 少々お待ちください 🫖\u2028."},
	{"an empty sentence is no answer", ""},
	{"a long sentence is cut", strings.Repeat("Please wait. ", 10_000)},
}

func TestOurSentencesAreAnswersOfTheOfficialSDKs(t *testing.T) {
	want := map[classify.API]heard{
		classify.AnthropicMessages: {id: "msg_x1", role: "assistant", stop: "end_turn"},
		classify.OpenAIChat:        {id: "chatcmpl-x1", role: "assistant", stop: "stop", created: 1_790_000_000},
		classify.OpenAIResponses:   {id: "resp_x1", role: "assistant", stop: "completed", created: 1_790_000_000},
	}
	rows := []struct {
		name string
		s    Saying
		job  string
	}{
		{"a body", Saying{}, ""},
		{"a stream", Saying{Stream: true}, ""},
		{"a stream with usage", Saying{Stream: true, Usage: true}, ""},
		{"a body of a queued request", Saying{Status: 202, Job: queued}, jobJSON},
		{"a stream of a queued request", Saying{Status: 202, Stream: true, Job: queued}, jobJSON},
	}
	for _, sentence := range sentences {
		for _, row := range rows {
			t.Run(sentence.name+" in "+row.name, func(t *testing.T) {
				for api, want := range want {
					s := row.s
					s.Model, s.ID, s.Text, s.Created = "model-1", "x1", sentence.text, created
					want.model, want.text, want.job = s.Model, s.Text, row.job
					a := Say(api, s)
					got, err := newSDKs(t, a.Status, a.Headers["content-type"], a.Body).hear(api, s.Stream)
					if err != nil || got != want {
						t.Errorf("the SDK of api %d reads %.200v, %v of %d %.2000s, want %.200v", api, got, err, a.Status, a.Body, want)
					}
				}
			})
		}
	}
}

// TestOurSentencesAreGoodAnswersToOurselves also because a stage in front may be one of us.
func TestOurSentencesAreGoodAnswersToOurselves(t *testing.T) {
	for api := range sayers {
		for _, told := range []classify.API{api, classify.APIUnknown} {
			for _, s := range []Saying{{}, {Stream: true}, {Stream: true, Usage: true}, {Status: 202, Job: queued}, {Status: 202, Stream: true, Job: queued}} {
				s.Model, s.ID, s.Text, s.Created = "model-1", "x1", `Back "soon": 🫖`+"\n.", created
				a := Say(api, s)
				for cut := range len(a.Body) + 1 {
					v := judge(told, a, a.Body[:cut], a.Body[cut:])
					if v.Class != classify.OK || !v.Complete || v.Model != "model-1" || v.Status != a.Status {
						t.Fatalf("cut at %d of %s, api %d = %+v, want a complete ok", cut, a.Body, told, v)
					}
				}
			}
		}
	}
}

// judge classifies an answer that comes in pieces.
func judge(api classify.API, a Answer, pieces ...[]byte) classify.Verdict {
	r := classify.New(classify.Options{API: api})
	r.Header(a.Status, func(name string) string { return a.Headers[name] })
	for _, p := range pieces {
		r.Feed(p)
	}
	return r.End(true)
}

func TestACutSentenceOfOursIsNotWhole(t *testing.T) {
	for api := range sayers {
		a := Say(api, Saying{Text: "Back soon.", Stream: true})
		half := a.Body[:len(a.Body)*2/3]
		if v := judge(api, a, half); v.Class != classify.Truncated {
			t.Errorf("class of %s = %s, want truncated", half, v.Class)
		}
	}
}

func TestHeadOfASentence(t *testing.T) {
	rows := []struct {
		name   string
		api    classify.API
		s      Saying
		status int
		kind   string
	}{
		{"a good answer has no status", classify.OpenAIChat, Saying{}, 200, "application/json"},
		{"a queued request is as good as answered", classify.OpenAIChat, Saying{Status: 202}, 202, "application/json"},
		{"a stream is taken for JSON", classify.OpenAIResponses, Saying{Stream: true}, 200, "text/event-stream"},
		{"a queued stream is taken for JSON", classify.AnthropicMessages, Saying{Status: 202, Stream: true}, 202, "text/event-stream"},
		{"a stream of Gemini is taken for JSON", classify.Gemini, Saying{Stream: true}, 200, "text/event-stream"},
		{"an unknown API gets events", classify.APIUnknown, Saying{Stream: true}, 200, "application/json"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			a := Say(row.api, row.s)
			if a.Status != row.status || a.Headers["content-type"] != row.kind || len(a.Headers) != 1 {
				t.Errorf("Say() = %d %v, want %d %s", a.Status, a.Headers, row.status, row.kind)
			}
		})
	}
}

func TestUsageOfAChatStreamIsOnlyForWhoAskedForIt(t *testing.T) {
	for _, asked := range []bool{false, true} {
		a := Say(classify.OpenAIChat, Saying{Text: "Back soon.", Stream: true, Usage: asked})
		chunks := newSDKs(t, 200, "text/event-stream", a.Body).openai.Chat.Completions.NewStreaming(t.Context(), completion)
		var last openai.ChatCompletionChunk
		for chunks.Next() {
			last = chunks.Current()
		}
		if told := last.JSON.Usage.Valid(); chunks.Err() != nil || told != asked || (len(last.Choices) == 0) != asked {
			t.Errorf("the last chunk is %s, %v, want usage without a choice: %v", last.RawJSON(), chunks.Err(), asked)
		}
		if !strings.HasSuffix(string(a.Body), "data: [DONE]\n\n") {
			t.Errorf("Say() = %s, want [DONE] at its end", a.Body)
		}
	}
}

// TestEventsOfAResponse reads the events as a client does that builds the answer itself, from each by its type.
func TestEventsOfAResponse(t *testing.T) {
	a := Say(classify.OpenAIResponses, Saying{ID: "x1", Text: "Back soon.", Stream: true, Job: queued, Created: created})
	events := newSDKs(t, 200, "text/event-stream", a.Body).openai.Responses.NewStreaming(t.Context(), response)
	var got []string
	for n := int64(0); events.Next(); n++ {
		e := events.Current()
		said := e.Type
		switch e := e.AsAny().(type) {
		case responses.ResponseCreatedEvent:
			said += " " + string(e.Response.Status) + e.Response.JSON.ExtraFields["job"].Raw()
		case responses.ResponseOutputItemAddedEvent:
			said += " " + e.Item.ID
		case responses.ResponseContentPartAddedEvent:
			said += " " + e.ItemID + e.Part.Text
		case responses.ResponseTextDeltaEvent:
			said += " " + e.ItemID + " " + e.Delta
		case responses.ResponseTextDoneEvent:
			said += " " + e.ItemID + " " + e.Text
		case responses.ResponseContentPartDoneEvent:
			said += " " + e.ItemID + " " + e.Part.Text
		case responses.ResponseOutputItemDoneEvent:
			said += " " + e.Item.ID + " " + e.Item.Content[0].Text
		}
		if e.SequenceNumber != n {
			t.Errorf("event %d has the number %d", n, e.SequenceNumber)
		}
		got = append(got, said)
	}
	want := []string{
		"response.created in_progress" + jobJSON, "response.in_progress", "response.output_item.added msg_x1",
		"response.content_part.added msg_x1", "response.output_text.delta msg_x1 Back soon.",
		"response.output_text.done msg_x1 Back soon.", "response.content_part.done msg_x1 Back soon.",
		"response.output_item.done msg_x1 Back soon.", "response.completed",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") || events.Err() != nil {
		t.Errorf("events = %s, %v, want %s", strings.Join(got, "\n"), events.Err(), strings.Join(want, "\n"))
	}
}

// TestEventsOfAMessage reads the events as a client does that frees what a block held when it stops.
func TestEventsOfAMessage(t *testing.T) {
	a := Say(classify.AnthropicMessages, Saying{Text: "Back soon.", Stream: true, Job: queued})
	events := newSDKs(t, 200, "text/event-stream", a.Body).anthropic.Messages.NewStreaming(t.Context(), message)
	var got []string
	for events.Next() {
		e := events.Current()
		got = append(got, e.Type+e.Message.JSON.ExtraFields["job"].Raw()+e.Delta.Text+string(e.Delta.StopReason))
	}
	want := []string{"message_start" + jobJSON, "content_block_start", "content_block_deltaBack soon.", "content_block_stop",
		"message_deltaend_turn", "message_stop"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") || events.Err() != nil {
		t.Errorf("events = %s, %v, want %s", strings.Join(got, "\n"), events.Err(), strings.Join(want, "\n"))
	}
}

func TestASentenceTellsThatItUsedNothing(t *testing.T) {
	rows := []struct {
		name string
		api  classify.API
		want string
	}{
		{"a message has no usage", classify.AnthropicMessages, `"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}`},
		{"a completion has no usage", classify.OpenAIChat, `"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`},
		{"a response has no usage", classify.OpenAIResponses, `"usage":{"input_tokens":0,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},` +
			`"output_tokens":0,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":0}`},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			for _, stream := range []bool{false, true} {
				a := Say(row.api, Saying{Text: "Back soon.", Stream: stream, Usage: true})
				if !strings.Contains(string(a.Body), row.want) {
					t.Errorf("Say() = %s, want %s", a.Body, row.want)
				}
			}
		})
	}
}

// TestASentenceInGemini reads by the documented fields: its SDK is not among our modules.
func TestASentenceInGemini(t *testing.T) {
	want := `{"candidates":[{"index":0,"content":{"role":"model","parts":[{"text":"Back soon."}]},"finishReason":"STOP"}],` +
		`"usageMetadata":{"promptTokenCount":0,"candidatesTokenCount":0,"totalTokenCount":0},` +
		`"modelVersion":"gemini-3.1-pro","responseId":"x1","job":` + jobJSON + `}`
	s := Saying{Model: "gemini-3.1-pro", ID: "x1", Text: "Back soon.", Job: queued, Created: created}
	if a := Say(classify.Gemini, s); string(a.Body) != want {
		t.Errorf("Say() = %s, want %s", a.Body, want)
	}
	s.Stream = true
	if a := Say(classify.Gemini, s); string(a.Body) != "data: "+want+"\r\n\r\n" {
		t.Errorf("Say() of a stream = %s, want one event with %s", a.Body, want)
	}
	s.Array = true
	if a := Say(classify.Gemini, s); string(a.Body) != "["+want+"]" || a.Headers["content-type"] != "application/json" {
		t.Errorf("Say() of an array = %v %s, want JSON: one element %s", a.Headers, a.Body, want)
	}
}

func TestASentenceForAnUnknownAPI(t *testing.T) {
	for _, api := range []classify.API{classify.APIUnknown, classify.BedrockConverse} {
		a := Say(api, Saying{Text: `Back "soon".`, Stream: true, Job: queued})
		var got struct {
			Message string
			Job     Job
		}
		if err := json.Unmarshal(a.Body, &got); err != nil || got.Message != `Back "soon".` || got.Job != *queued {
			t.Errorf("Say() = %s, %v, want the message and the job", a.Body, err)
		}
	}
}
