//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// rolling are the dialects that take turns in the tests below.
var rolling = []string{messages, chats, responsed}

// eventsEach is how many content events a stream has, one a second.
const eventsEach = 20

// rollingChains are never charged, and have time.
func rollingChains() []chain {
	var chains []chain
	for _, api := range []string{"anthropic", "openai"} {
		chains = append(chains, chain{name: "rolling-" + api, api: api, on: []string{"a", "b"}, breaker: sturdy})
	}
	return chains
}

func long(t *testing.T, i int) call {
	path := rolling[i%len(rolling)]
	return call{path: path, stream: true, chain: "rolling-" + apiOf(path),
		script: fmt.Sprintf("a=ok n=%d delay=1s", eventsEach), id: fmt.Sprint(t.Name(), " ", i)}
}

// follow reads a raw stream to its end, and calls begun once its first content is there.
func (s *Stack) follow(ctx context.Context, t *testing.T, c call, begun func()) (body string, err error) {
	resp, err := s.http.Do(s.request(ctx, t, c, strings.NewReader(requestBody(c.path, true))))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var all bytes.Buffer
	buffer := make([]byte, 4096)
	for {
		n, err := resp.Body.Read(buffer)
		all.Write(buffer[:n])
		if begun != nil && bytes.Contains(all.Bytes(), []byte("[a m-a ")) {
			begun()
			begun = nil
		}
		if err != nil {
			return all.String(), ended(err)
		}
		if resp.StatusCode != http.StatusOK {
			rest, _ := io.ReadAll(resp.Body)
			return "", fmt.Errorf("status %d: %.300s%.300s", resp.StatusCode, all.String(), rest)
		}
	}
}

// contentMarker is in each content event of a dialect's stream once.
var contentMarker = map[string]string{messages: "event: content_block_delta", chats: `"content":"[a m-a `, responsed: "event: response.output_text.delta"}

// whole says what a stream of all its events lacks.
func whole(path, body string, err error) error {
	n, ends := strings.Count(body, contentMarker[path]), strings.Count(body, endMarker[path])
	if err != nil || n != eventsEach || ends != 1 {
		return fmt.Errorf("%d of %d content events, %d ends, %v: …%s", n, eventsEach, ends, err, tail(body, 300))
	}
	return nil
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// streaming keeps n streams open, for two rounds: when one of the first round ends, its client begins another.
type streaming struct {
	rounds [2]sync.WaitGroup // done when all of a round have begun
	over   sync.WaitGroup
	broken atomic.Int32
}

func (s *Stack) streams(t *testing.T, n int) *streaming {
	st := &streaming{}
	for round := range st.rounds {
		st.rounds[round].Add(n)
	}
	ctx := within(t, 2*time.Minute)
	for i := range n {
		st.over.Go(func() {
			for round := range st.rounds {
				begun := sync.OnceFunc(st.rounds[round].Done)
				c := long(t, round*n+i)
				body, err := s.follow(ctx, t, c, begun)
				begun()
				if err := whole(c.path, body, err); err != nil {
					st.broken.Add(1)
					t.Logf("a broken stream of %s in round %d: %v", c.path, round+1, err)
				}
			}
		})
	}
	return st
}

// restart ends replica i by SIGTERM, sees that it is draining, and starts it again.
func (s *Stack) restart(t *testing.T, i int) {
	t.Helper()
	service := s.services[i]
	service.signal(syscall.SIGTERM)
	// It says so as long as it still has streams: without any, it would be gone.
	eventually(t, patience, func() error {
		return s.is(t.Context(), "http://"+service.admin+"/readyz", http.StatusServiceUnavailable)
	})
	select {
	case <-service.exited:
	case <-within(t, time.Minute).Done():
		t.Fatalf("replica %d does not end", i)
	}
	if service.exitErr != nil {
		t.Errorf("replica %d ended with %v", i, service.exitErr)
	}
	if err := s.startService(t, i); err != nil {
		t.Fatal(err)
	}
}

func TestARollingRestartBreaksNoneOf300Streams(t *testing.T) { // alone: it is heavy
	s := startStack(t, plan{replicas: 2, chains: rollingChains(), edit: func(f *file) { f.Server.Drain = 30 * time.Second }})
	st := s.streams(t, 300)
	short := func(i int) call {
		return call{path: messages, stream: i%2 == 0, chain: "rolling-anthropic", script: "a=ok n=5 delay=20ms", id: fmt.Sprint(t.Name(), " short ", i)}
	}
	answers := s.underLoad(t, short, func() {
		for i := range s.services {
			st.rounds[i].Wait()
			s.restart(t, i)
		}
	})
	st.over.Wait()
	failed, passedOver := 0, 0
	for _, a := range answers {
		switch {
		case a.err != nil || a.status != 200:
			failed++
			t.Logf("a failed exchange: %d %v", a.status, a.err)
		case a.header.Get("x-llm-rung") != "0":
			passedOver++
		}
	}
	t.Logf("%d short exchanges beside the streams", len(answers))
	if broken := st.broken.Load(); broken > 0 || failed > 0 || passedOver > 0 {
		t.Errorf("%d of 600 streams broke; of %d short exchanges %d failed and %d passed a healthy primary over; want none",
			broken, len(answers), failed, passedOver)
	}
	s.survives(t)
}

// honest is what a stream must hold when we end it, and what it must not.
var honest = map[string][2]string{
	messages:  {"event: error", `"type":"message_stop"`},
	chats:     {`data: {"error":{`, "data: [DONE]"},
	responsed: {"event: response.failed", "event: response.completed"},
}

func TestBeyondTheDrainLimitAStreamEndsHonestly(t *testing.T) {
	t.Parallel()
	s := startStack(t, plan{chains: rollingChains(), edit: func(f *file) { f.Server.Drain = time.Second }})
	var begun, over sync.WaitGroup
	begun.Add(len(rolling))
	for i, path := range rolling {
		over.Go(func() {
			once := sync.OnceFunc(begun.Done)
			defer once()
			body, err := s.follow(within(t, time.Minute), t, long(t, i), once)
			want := honest[path]
			if err != nil || !strings.Contains(body, want[0]) || strings.Contains(body, want[1]) {
				t.Errorf("a stream of %s ended with %v and without %q, or with %q: …%s", path, err, want[0], want[1], tail(body, 400))
			}
		})
	}
	begun.Wait()
	s.services[0].stop(patience)
	over.Wait()
	s.survives(t)
}

// What nothing has been shown of is not broken by the limit: another replica makes it whole.
func TestBeyondTheDrainLimitAnUnseenAnswerMovesToAnotherReplica(t *testing.T) {
	t.Parallel()
	hold := chain{name: "held", api: "anthropic", on: []string{"a", "b"}, breaker: sturdy}
	hold.more.Commit = "complete"
	s := startStack(t, plan{replicas: 2, chains: []chain{hold}, edit: func(f *file) { f.Server.Drain = time.Second }})
	of := func(i int) call {
		return call{path: messages, stream: i%2 == 0, chain: "held", script: "a=ok after=6s", id: fmt.Sprint(t.Name(), i)}
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for i := range 10 {
			s.providers["a"].AwaitRequests(within(t, patience), of(i).id, 1)
		}
		s.services[0].stop(patience)
	}()
	for i, a := range s.all(t, time.Minute, 10, of) {
		if a.err != nil || a.status != 200 || !strings.Contains(a.text, of(i).id) {
			t.Errorf("exchange %d got %d %q, %v, want a whole answer", i, a.status, a.text, a.err)
		}
	}
	<-stopped
	s.survives(t)
}
