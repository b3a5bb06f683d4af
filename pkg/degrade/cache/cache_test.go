package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"understudy/pkg/classify"
	"understudy/pkg/config"
	"understudy/pkg/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a bucket in memory. err, if set, is what every call fails with.
type memory struct {
	mu     sync.Mutex // mu guards the fields below.
	values map[string]store.Entry
	ttls   map[string]time.Duration
	rev    uint64
	err    error
	losses int // how many writes of a list another replica is to win
}

func newMemory() *memory {
	return &memory{values: map[string]store.Entry{}, ttls: map[string]time.Duration{}}
}

func (m *memory) Get(_ context.Context, key string) (store.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.values[key]
	if m.err == nil && !ok {
		return store.Entry{}, fmt.Errorf("get %s: %w", key, store.ErrNotFound)
	}
	return e, m.err
}

func (m *memory) GetBlob(ctx context.Context, key string) ([]byte, error) {
	e, err := m.Get(ctx, key)
	return e.Value, err
}

func (m *memory) PutBlob(_ context.Context, key string, value []byte, ttl time.Duration) error {
	_, err := m.put(key, value, ttl, func(store.Entry, bool) error { return nil })
	return err
}

func (m *memory) Create(_ context.Context, key string, value []byte, ttl time.Duration) (uint64, error) {
	return m.put(key, value, ttl, func(_ store.Entry, exists bool) error {
		if exists || m.lost() {
			return store.ErrExists
		}
		return nil
	})
}

func (m *memory) Update(_ context.Context, key string, value []byte, rev uint64, ttl time.Duration) (uint64, error) {
	return m.put(key, value, ttl, func(e store.Entry, _ bool) error {
		if e.Revision != rev || m.lost() {
			return store.ErrConflict
		}
		return nil
	})
}

func (m *memory) lost() bool { m.losses--; return m.losses >= 0 }

func (m *memory) put(key string, value []byte, ttl time.Duration, check func(store.Entry, bool) error) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, exists := m.values[key]
	if err := cmpErr(m.err, check(old, exists)); err != nil {
		return 0, fmt.Errorf("put %s: %w", key, err)
	}
	m.rev++
	m.values[key], m.ttls[key] = store.Entry{Key: key, Value: bytes.Clone(value), Revision: m.rev}, ttl
	return m.rev, nil
}

func cmpErr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// ask is a chat request that asks text.
func ask(text string) Request {
	return Request{Chain: "c", Tenant: "t", API: chat, Path: "/v1/chat/completions",
		Body: fmt.Appendf(nil, `{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":%q}]}`, text)}
}

func key(t testing.TB, r Request) Key {
	t.Helper()
	k, err := KeyOf(r, true)
	if err != nil {
		t.Fatalf("KeyOf(%s) = %v, want a key", r.Body, err)
	}
	return k
}

// saying is an answer.
func saying(text string) Entry {
	return Entry{Status: 200, ContentType: "application/json", Target: "openai/gpt", Model: "gpt", At: time.Now(),
		Body: fmt.Appendf(nil, `{"choices":[{"message":{"content":%q},"finish_reason":"stop"}]}`, text)}
}

var calling = []byte(`{"choices":[{"message":{"tool_calls":[{"id":"c"}]},"finish_reason":"tool_calls"}]}`)

var (
	exactly = config.Cache{TTL: time.Hour}
	nearly  = config.Cache{TTL: time.Hour, Near: 0.5}
)

func keep(t testing.TB, c *Cache, r Request, e Entry, o config.Cache) {
	t.Helper()
	if err := c.Keep(t.Context(), key(t, r), r.API, e, o); err != nil {
		t.Fatalf("Keep(%s) = %v, want nil", r.Body, err)
	}
}

// find checks what a request finds: body "" is nothing.
func find(t testing.TB, c *Cache, r Request, o config.Cache, want Entry) Entry {
	t.Helper()
	got, ok, err := c.Find(t.Context(), key(t, r), o)
	if err != nil || ok != (want.Body != nil) || !bytes.Equal(got.Body, want.Body) {
		t.Errorf("Find(%s) = %s, %v, %v, want %s", r.Body, got.Body, ok, err, want.Body)
	}
	return got
}

func TestTheSameRequestGetsTheAnswer(t *testing.T) {
	c, r, e := New(newMemory()), ask("hi"), saying("a\nb")
	find(t, c, r, exactly, Entry{})
	keep(t, c, r, e, exactly)
	got := find(t, c, r, exactly, e)
	if got.Status != 200 || got.ContentType != e.ContentType || got.Target != e.Target || got.Model != e.Model || !got.At.Equal(e.At) ||
		got.Tools || got.Near || got.Similarity != 1 {
		t.Errorf("Find() = %+v, want %+v with similarity 1", got, e)
	}
	other := r
	other.Tenant = "u"
	find(t, c, other, nearly, Entry{})
	newer := saying("newer")
	keep(t, c, r, newer, exactly)
	find(t, c, r, exactly, newer)
}

func TestAnswersGrowOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, e := New(newMemory()), ask("What is it?"), saying("old")
		keep(t, c, r, e, nearly)
		time.Sleep(time.Hour)
		find(t, c, r, nearly, e)
		find(t, c, ask("what is it"), nearly, e)
		time.Sleep(time.Second)
		find(t, c, r, nearly, Entry{})
		find(t, c, ask("what is it"), nearly, Entry{})
		keep(t, c, ask("what is it?"), saying("new"), nearly)
		find(t, c, r, nearly, saying("new"))
	})
}

func TestNearlyTheSameRequest(t *testing.T) {
	long := "Please tell me in one sentence what the capital of France is and why it is not Lyon"
	r, e := ask(long), saying("Paris")
	rows := []struct {
		name string
		ask  Request
		o    config.Cache
		want bool
	}{
		{"politeness", ask(strings.TrimPrefix(long, "Please ")), nearly, true},
		{"politeness, where near is off", ask(strings.TrimPrefix(long, "Please ")), exactly, false},
		{"politeness, where it must be the same but for capitals", ask(strings.TrimPrefix(long, "Please ")), config.Cache{TTL: time.Hour, Near: 1}, false},
		{"a capital, where that is all that may differ", ask("please" + strings.TrimPrefix(long, "Please")), config.Cache{TTL: time.Hour, Near: 1}, true},
		{"another name", ask(strings.Replace(long, "Lyon", "Nice", 1)), nearly, false},
		{"a negation", ask(strings.Replace(long, "not ", "", 1)), nearly, false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			c := New(newMemory())
			keep(t, c, r, e, nearly)
			want := Entry{}
			if row.want {
				want = e
			}
			got := find(t, c, row.ask, row.o, want)
			if got.Near != row.want || row.want && (got.Similarity < row.o.Near || got.Similarity > 1) {
				t.Errorf("Find() = near %v, similarity %v, want near %v of at least %v", got.Near, got.Similarity, row.want, row.o.Near)
			}
		})
	}
}

// TestOnlyTheLastTextMayDiffer keeps an answer to the first request, and lets the second ask.
func TestOnlyTheLastTextMayDiffer(t *testing.T) {
	rows := []struct {
		name string
		api  classify.API
		kept string
		asks string
		near bool
	}{
		{"the last message", anthropic, `{"messages":[{"role":"user","content":"What is it?"}]}`, `{"messages":[{"content":"what is it","role":"user"}]}`, true},
		{"the last part", anthropic, `{"messages":[{"role":"user","content":[{"type":"image","source":{"data":"x"}},{"type":"text","text":"What is it?"}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"image","source":{"data":"x"}},{"type":"text","text":"what is it"}]}]}`, true},
		{"a text before an image", chat, `{"messages":[{"role":"user","content":[{"type":"text","text":"What is it?"},{"type":"image_url","image_url":{"url":"x"}}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"what is it"},{"type":"image_url","image_url":{"url":"x"}}]}]}`, true},
		{"the same text twice, the last of them", chat, `{"messages":[{"role":"user","content":[{"type":"text","text":"What is it?"},{"type":"text","text":"What is it?"}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"What is it?"},{"type":"text","text":"what is it"}]}]}`, true},
		{"the same text twice, the first of them", chat, `{"messages":[{"role":"user","content":[{"type":"text","text":"What is it?"},{"type":"text","text":"What is it?"}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"what is it"},{"type":"text","text":"What is it?"}]}]}`, false},
		{"an input that is a text", responses, `{"input":"What is it?","instructions":"What is it?"}`, `{"input":"what is it","instructions":"What is it?"}`, true},
		{"an input of items", responses, `{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"What is it?"}]}]}`,
			`{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"what is it"}]}]}`, true},
		{"a turn without a role", gemini, `{"contents":[{"parts":[{"text":"What is it?"}]}]}`, `{"contents":[{"parts":[{"text":"what is it"}]}]}`, true},
		{"another image", chat, `{"messages":[{"role":"user","content":[{"type":"text","text":"What is it?"},{"type":"image_url","image_url":{"url":"x"}}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"what is it"},{"type":"image_url","image_url":{"url":"y"}}]}]}`, false},
		{"an earlier message", chat, `{"messages":[{"role":"user","content":"What is it?"},{"role":"assistant","content":"x"},{"role":"user","content":"What?"}]}`,
			`{"messages":[{"role":"user","content":"what is it"},{"role":"assistant","content":"x"},{"role":"user","content":"what"}]}`, false},
		{"the system prompt", anthropic, `{"system":"Be it.","messages":[{"role":"user","content":"What is it?"}]}`, `{"system":"be it","messages":[{"role":"user","content":"what is it"}]}`, false},
		{"a tool", anthropic, `{"tools":[{"name":"a"}],"messages":[{"role":"user","content":"What is it?"}]}`, `{"tools":[{"name":"b"}],"messages":[{"role":"user","content":"what is it"}]}`, false},
		{"sampling", chat, `{"temperature":0,"messages":[{"role":"user","content":"What is it?"}]}`, `{"temperature":1,"messages":[{"role":"user","content":"what is it"}]}`, false},
		{"a prefill", anthropic, `{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"What is it?"}]}`, `{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"what is it"}]}`, false},
		{"a tool's result", anthropic, `{"messages":[{"role":"user","content":[{"type":"tool_result","content":"What is it?"}]}]}`, `{"messages":[{"role":"user","content":[{"type":"tool_result","content":"what is it"}]}]}`, false},
		{"a text of another kind", anthropic, `{"messages":[{"role":"user","content":[{"type":"x","text":"What is it?"}]}]}`, `{"messages":[{"role":"user","content":[{"type":"x","text":"what is it"}]}]}`, false},
		{"a call's output", responses, `{"input":[{"type":"function_call_output","output":"What is it?"}]}`, `{"input":[{"type":"function_call_output","output":"what is it"}]}`, false},
		{"one digit", chat, `{"messages":[{"role":"user","content":"What is 7 times 8?"}]}`, `{"messages":[{"role":"user","content":"what is 7 times 9"}]}`, false},
	}
	answers := map[classify.API]string{
		anthropic: `{"content":[{"type":"text","text":"x"}]}`, chat: `{"choices":[]}`, responses: `{"output":[]}`, gemini: `{"candidates":[]}`,
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			c := New(newMemory())
			e := saying("")
			e.Body = []byte(answers[row.api])
			keep(t, c, Request{API: row.api, Body: []byte(row.kept)}, e, nearly)
			want := Entry{}
			if row.near {
				want = e
			}
			find(t, c, Request{API: row.api, Body: []byte(row.kept)}, nearly, e)
			find(t, c, Request{API: row.api, Body: []byte(row.asks)}, nearly, want)
		})
	}
}

func TestAnswersThatCallTools(t *testing.T) {
	c, r, e := New(newMemory()), ask("What is it?"), saying("")
	e.Body = calling
	with := nearly
	with.ToolCalls = true
	keep(t, c, r, e, nearly)
	find(t, c, r, nearly, Entry{})
	find(t, c, ask("what is it"), nearly, Entry{})
	if got := find(t, c, r, with, e); !got.Tools {
		t.Errorf("Find() = %+v, want Tools", got)
	}
	find(t, c, ask("what is it"), with, e)
}

func TestAnswersThatAreRefused(t *testing.T) {
	rows := []struct {
		name   string
		change func(*Entry)
	}{
		{"an error", func(e *Entry) { e.Status = 529 }},
		{"a promise", func(e *Entry) { e.Status = 202 }},
		{"nothing", func(e *Entry) { e.Body = nil }},
		{"too much", func(e *Entry) { e.Body = fmt.Appendf(nil, `{"a":%q}`, strings.Repeat("x", AnswerMost)) }},
		{"half an answer", func(e *Entry) { e.Body = e.Body[:10] }},
		{"a page", func(e *Entry) { e.ContentType = "text/html" }},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			m, e := newMemory(), saying("x")
			row.change(&e)
			if err := New(m).Keep(t.Context(), key(t, ask("hi")), chat, e, nearly); !errors.Is(err, ErrAnswer) || len(m.values) != 0 {
				t.Errorf("Keep(%s) = %v with %d values kept, want %v and none", row.name, err, len(m.values), ErrAnswer)
			}
		})
	}
}

func TestNothingThatWasAskedIsStored(t *testing.T) {
	m := newMemory()
	keep(t, New(m), ask("My password is hunter2, is it good?"), saying("no"), nearly)
	for k, e := range m.values {
		if strings.Contains(k+string(e.Value), "hunter2") {
			t.Errorf("the store has %s = %s, want nothing of the request", k, e.Value)
		}
		if m.ttls[k] != time.Hour {
			t.Errorf("%s lives for %v, want %v", k, m.ttls[k], time.Hour)
		}
	}
}

func TestTheStoreFails(t *testing.T) {
	m := newMemory()
	c, r := New(m), ask("hi")
	m.err = store.ErrDown
	if err := c.Keep(t.Context(), key(t, r), chat, saying("x"), nearly); !errors.Is(err, store.ErrDown) {
		t.Errorf("Keep() = %v, want %v", err, store.ErrDown)
	}
	if _, ok, err := c.Find(t.Context(), key(t, r), nearly); ok || !errors.Is(err, store.ErrDown) {
		t.Errorf("Find() = %v, %v, want %v", ok, err, store.ErrDown)
	}
}

func TestADamagedAnswerIsNotServed(t *testing.T) {
	m := newMemory()
	c, r := New(m), ask("hi")
	keep(t, c, r, saying("x"), exactly)
	place := answerKey(key(t, r).exact)
	good := m.values[place].Value
	elsewhere := bytes.Replace(good, []byte(key(t, r).exact.String()), []byte(key(t, ask("ho")).exact.String()), 1)
	for _, value := range [][]byte{nil, []byte("x"), []byte("{}\n"), good[:len(good)-1], append(bytes.Clone(good), ' '), elsewhere} {
		m.values[place] = store.Entry{Value: value}
		if e, ok, err := c.Find(t.Context(), key(t, r), exactly); ok || err == nil {
			t.Errorf("Find() of %.60q = %+v, %v, %v, want an error", value, e, ok, err)
		}
	}
}

func TestADamagedListIsReplaced(t *testing.T) {
	m := newMemory()
	c, r := New(m), ask("What is it?")
	m.values[nearKey(key(t, r).near.id)] = store.Entry{Value: []byte(`[{"Exact":"0"}]`), Revision: 7}
	find(t, c, ask("what is it"), nearly, Entry{})
	keep(t, c, r, saying("x"), nearly)
	find(t, c, ask("what is it"), nearly, saying("x"))
}

func TestReplicasListAtOnce(t *testing.T) {
	m := newMemory()
	c, r := New(m), ask("What is it?")
	m.losses = listTries - 1
	keep(t, c, r, saying("x"), nearly)
	find(t, c, ask("what is it"), nearly, saying("x"))
	m.losses = listTries
	if err := c.Keep(t.Context(), key(t, r), chat, saying("x"), nearly); !errors.Is(err, store.ErrConflict) {
		t.Errorf("Keep() against %d others = %v, want %v", listTries, err, store.ErrConflict)
	}
}

func TestTheMostAlikeOfTheNewestIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(newMemory())
		base := "what is the capital of the country of France"
		ways := []string{"Please, " + base, "Hello, " + base, base + ", please", base + ". Thanks!", base + ".", base + "?", "Hi! " + base, "Hey. " + base, "Hi, " + base + ". Thanks"}
		for _, way := range ways {
			time.Sleep(time.Second)
			keep(t, c, ask(way), saying(way), nearly)
		}
		all, _, err := c.wordings(t.Context(), key(t, ask(base)).near.id)
		if err != nil || len(all) != wordingsMost || all[0].Exact != key(t, ask(ways[len(ways)-1])).exact {
			t.Errorf("wordings() = %d, %v, want %d, the newest first", len(all), err, wordingsMost)
		}
		if got := find(t, c, ask(base), nearly, saying(base+"?")); got.Similarity != 1 || !got.Near {
			t.Errorf("Find() = near %v, similarity %v, want near and 1", got.Near, got.Similarity)
		}
	})
}

func TestAnAnswerThatMadeRoomIsSkipped(t *testing.T) {
	m := newMemory()
	c := New(m)
	keep(t, c, ask("what is it?"), saying("kept"), nearly)
	keep(t, c, ask("what is it."), saying("gone"), nearly)
	delete(m.values, answerKey(key(t, ask("what is it.")).exact))
	find(t, c, ask("What is it"), nearly, saying("kept"))
}

// openStore is a real bucket.
func openStore(t testing.TB) Bucket {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	s, err := store.Open(ctx, store.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	b := s.Bucket(store.BucketOptions{Name: "answers", TTL: time.Hour})
	for {
		if _, err := b.Get(ctx, "x"); errors.Is(err, store.ErrNotFound) {
			return b
		} else if ctx.Err() != nil {
			t.Fatalf("the store does not open: %v", err)
		}
	}
}

func TestARealStore(t *testing.T) {
	c, r := New(openStore(t)), ask("What is it?")
	large := saying(strings.Repeat("x", 3<<20))
	large.At = large.At.Round(0)
	for _, e := range []Entry{saying("x"), large} {
		find(t, c, ask("what is it"), exactly, Entry{})
		keep(t, c, r, e, nearly)
		find(t, c, r, exactly, e)
		find(t, c, ask("what is it"), nearly, e)
	}
	var wg sync.WaitGroup
	ways := []string{"Please, what is it", "Hello, what is it", "What is it.", "what is it, please"}
	for _, way := range ways {
		wg.Go(func() {
			if err := c.Keep(t.Context(), key(t, ask(way)), chat, saying(way), nearly); err != nil {
				t.Errorf("Keep(%s) at once with others = %v, want nil", way, err)
			}
		})
	}
	wg.Wait()
	all, _, err := c.wordings(t.Context(), key(t, r).near.id)
	if err != nil || len(all) != len(ways)+1 {
		t.Errorf("wordings() = %d, %v, want %d", len(all), err, len(ways)+1)
	}
	if !slices.ContainsFunc(all, func(w wording) bool { return w.Exact == key(t, r).exact }) {
		t.Error("wordings() has lost the first request")
	}
}
