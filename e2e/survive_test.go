//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// surviving are the chains of the tests below.
func surviving() []chain {
	whole := chain{name: "whole", api: "anthropic", on: []string{"a", "b"}, breaker: sturdy}
	whole.more.Commit, whole.more.Hold = "complete", map[string]string{"bytes": "16MiB", "time": "60s"}
	return []chain{whole, {name: "flow", api: "anthropic", on: []string{"a", "b"}, breaker: sturdy}}
}

func TestOneEnvoySurvivesALot(t *testing.T) { // alone: it is heavy
	s := startStack(t, plan{chains: surviving()})
	pid := s.envoy.pid()
	for _, load := range []struct {
		name string
		run  func(*testing.T, *Stack)
	}{
		{"20 answers of 5 MB at once", bigAnswers},
		{"20 slow readers", func(t *testing.T, s *Stack) { slowReaders(t, s, 20) }},
		{"40 slow readers", func(t *testing.T, s *Stack) { slowReaders(t, s, 40) }},
		{"10 requests of 20 MB failing over", bigRequests},
		{"hang-ups at random", randomHangUps},
		{"the service frozen under 400 streams", frozen},
	} {
		t.Run(load.name, func(t *testing.T) {
			load.run(t, s)
			s.survives(t)
			c := call{path: messages, chain: "flow", script: "a=529; b=ok", id: t.Name() + " after"}
			eventually(t, patience, func() error { return s.sdk(within(t, patience), t, c).err })
		})
	}
	if s.envoy.pid() != pid || !s.envoy.alive() {
		t.Error("it is not the same Envoy any more")
	}
	s.reads(t, is(0), "understudy_held_bytes")
}

func bigAnswers(t *testing.T, s *Stack) {
	of := func(i int) call {
		return call{path: messages, stream: i%4 < 2, chain: []string{"flow", "whole"}[i%2], script: "a=529; b=ok n=50 size=100000", id: fmt.Sprint(t.Name(), i)}
	}
	for i, a := range s.all(t, time.Minute, 20, of) {
		served{by: "b", target: of(i).chain + "/b", rung: 1, attempts: 2, reason: "overloaded", n: 50, size: 100000}.check(t, of(i), a)
	}
}

// slowReaders: each takes the first bytes of 5 MB and then nothing, until ten fast requests have been served.
func slowReaders(t *testing.T, s *Stack, n int) {
	ctx := within(t, 2*time.Minute)
	release, started := make(chan struct{}), make(chan struct{}, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			c := call{path: messages, stream: true, chain: "flow", script: "a=ok n=50 size=100000", id: fmt.Sprint(t.Name(), i)}
			s.slowReader(ctx, t, c, started, release)
		})
	}
	for range n {
		select {
		case <-started:
		case <-ctx.Done():
			t.Fatal("the slow readers have not all begun: ", ctx.Err())
		}
	}
	fast := func(i int) call {
		return call{path: messages, chain: "flow", script: "a=529; b=ok", id: fmt.Sprint(t.Name(), " fast ", i)}
	}
	for i, a := range s.all(t, patience, 10, fast) {
		served{by: "b", target: "flow/b", rung: 1, attempts: 2, reason: "overloaded"}.check(t, fast(i), a)
	}
	close(release)
	wg.Wait()
}

func (s *Stack) slowReader(ctx context.Context, t *testing.T, c call, started chan<- struct{}, release <-chan struct{}) {
	resp, err := s.http.Do(s.request(ctx, t, c, strings.NewReader(requestBody(c.path, true))))
	if err != nil {
		t.Error(err)
		started <- struct{}{}
		return
	}
	defer resp.Body.Close()
	first := make([]byte, 1024)
	_, err = io.ReadFull(resp.Body, first)
	started <- struct{}{}
	<-release
	rest, restErr := io.ReadAll(resp.Body)
	if all := string(first) + string(rest); err != nil || restErr != nil || strings.Count(all, "[a m-a ") != 50 || !strings.Contains(all, endMarker[messages]) {
		t.Errorf("a slow reader got %d bytes with %d of 50 events, %v, %v", len(all), strings.Count(all, "[a m-a "), err, restErr)
	}
}

func bigRequests(t *testing.T, s *Stack) {
	body := sized(messages, 20_000_000)
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			c := call{path: messages, chain: "flow", script: "a=529; b=ok", id: fmt.Sprint(t.Name(), i)}
			if a := s.do(s.request(within(t, 2*time.Minute), t, c, bytes.NewReader(body))); a.status != 200 || a.header.Get("x-llm-target") != "flow/b" {
				t.Errorf("request %d got %d %.200s, %v, want 200 from flow/b", i, a.status, a.body, a.err)
				return
			}
			if r := s.providers["b"].Requests(c.id); len(r) != 1 || r[0].SHA256 != sum(forModel(body, "b")) {
				t.Errorf("request %d did not arrive intact once", i)
			}
		})
	}
	wg.Wait()
}

// randomHangUps: clients leave at any moment of exchanges that fail over.
func randomHangUps(t *testing.T, s *Stack) {
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			ctx, leave := context.WithTimeout(within(t, patience), time.Duration(rand.IntN(400))*time.Millisecond)
			defer leave()
			s.sdk(ctx, t, call{path: messages, stream: true, chain: "flow", script: "a=error-start; b=ok n=50 delay=5ms", id: fmt.Sprint(t.Name(), i)})
		})
	}
	wg.Wait()
}

// frozen: nothing is promised to the streams of these three seconds but an end.
func frozen(t *testing.T, s *Stack) {
	var begun atomic.Int32
	half := make(chan struct{})
	thawed := make(chan struct{})
	go func() {
		defer close(thawed)
		select {
		case <-half:
		case <-t.Context().Done():
		}
		s.services[0].freeze()
		wait(t.Context(), 3*time.Second)
		s.services[0].thaw()
	}()
	s.all(t, 2*time.Minute, 400, func(i int) call {
		var once sync.Once
		begins := func(string) {
			once.Do(func() {
				if begun.Add(1) == 200 {
					close(half)
				}
			})
		}
		return call{path: messages, stream: true, chain: "flow", script: "a=ok n=20 delay=200ms", id: fmt.Sprint(t.Name(), i), onText: begins}
	})
	<-thawed
}

func TestWithTwoReplicasOneMayDie(t *testing.T) { // alone: Envoy gives a replica a second to answer its ping
	for name, hit := range map[string]func(*Stack){
		"by kill -9":           func(s *Stack) { s.services[0].kill() },
		"frozen for good":      func(s *Stack) { s.services[0].freeze() },
		"stopped as it should": func(s *Stack) { s.services[0].stop(patience) },
	} {
		t.Run(name, func(t *testing.T) {
			s := startStack(t, plan{replicas: 2, chains: surviving()})
			of := func(i int) call {
				return call{path: messages, stream: i%2 == 0, chain: "whole", script: "a=ok after=2s", id: fmt.Sprint(t.Name(), i)}
			}
			hitting := make(chan struct{})
			go func() {
				defer close(hitting)
				for i := range 20 {
					s.providers["a"].AwaitRequests(within(t, patience), of(i).id, 1)
				}
				hit(s)
			}()
			for i, a := range s.all(t, time.Minute, 20, of) {
				if a.err != nil || a.status != 200 || !strings.Contains(a.text, of(i).id) {
					t.Errorf("exchange %d got %d %q, %v, want a whole answer", i, a.status, a.text, a.err)
				}
			}
			<-hitting
			s.survives(t)
		})
	}
}

// underLoad keeps calling until the work is done, and returns every answer.
func (s *Stack) underLoad(t *testing.T, of func(i int) call, work func()) []answer {
	t.Helper()
	done := make(chan struct{})
	var mu sync.Mutex
	var answers []answer
	var wg sync.WaitGroup
	var next atomic.Int32
	for range 8 {
		wg.Go(func() {
			for {
				a := s.sdk(within(t, patience), t, of(int(next.Add(1))))
				mu.Lock()
				answers = append(answers, a)
				mu.Unlock()
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	work()
	close(done)
	wg.Wait()
	return answers
}

func TestOneReplicaRestartsUnderLoad(t *testing.T) { // alone: it is heavy
	s := startStack(t, plan{replicas: 2, chains: surviving()})
	of := func(i int) call {
		return call{path: messages, stream: i%2 == 0, chain: []string{"flow", "whole"}[i/2%2], script: "a=ok n=5 delay=20ms", id: fmt.Sprint(t.Name(), i)}
	}
	answers := s.underLoad(t, of, func() {
		for i := range s.services {
			s.services[i].stop(patience)
			wait(t.Context(), time.Second) // with nobody on its port, before Envoy's health check has seen that
			if err := s.startService(t, i); err != nil {
				t.Error(err)
			}
			wait(t.Context(), time.Second) // Envoy's health check has to find it again
		}
	})
	failed, passedOver := 0, 0
	for _, a := range answers {
		if a.err != nil || a.status != 200 {
			failed++
			t.Logf("a failed exchange: %d %v", a.status, a.err)
		} else if a.header.Get("x-llm-rung") != "0" {
			passedOver++
		}
	}
	if failed > 0 || passedOver > 0 {
		t.Errorf("of %d exchanges %d failed and %d passed a healthy primary over, want none", len(answers), failed, passedOver)
	}
	s.survives(t)
}
