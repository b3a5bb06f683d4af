package processor

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"understudy/pkg/config"
)

const atLeast = "min_rate: {bytes_per_second: 2, window: 10s}"

// delta is a piece of content: 11 bytes, in about 100.
const delta = "event: content_block_delta\ndata: " +
	`{"type":"content_block_delta","delta":{"text":"xxxxx xxxxx"}}` + "\n\n"

// crawl sends n pieces of content, one each pause, until something else than content is heard.
func (c *call) crawl(n int, pause time.Duration) string {
	for range n {
		c.body(delta, false)
		time.Sleep(pause)
		if got := c.heard(); strings.Contains(got, "immediate") || strings.Contains(got, "event: error") {
			return got
		}
	}
	return ""
}

func TestAStreamThatCrawls(t *testing.T) {
	rows := []struct {
		name, chain string
		pause       time.Duration
		want        string
	}{
		{"is cut honestly once it is committed", atLeast, 9 * time.Second, "event: error"},
		{"is replaced while it is held", atLeast + "\n    commit: complete", 9 * time.Second, "immediate 504 x-llm-failover=next"},
		{"passes where nothing is asked of it", "", 9 * time.Second, ""},
		{"passes when it is fast enough", atLeast, 2 * time.Second, ""},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			in(t, r.chain, func(b *bench) {
				c, rest := b.attempt("stream", "x1", 1)
				c.tell(rest[:2]...)
				got := c.crawl(20, r.pause)
				want := 0.
				if r.want == "" {
					expect(t, "answer", got, "")
				} else {
					contains(t, "answer", got, r.want)
					want = 1
				}
				c.hangUp()
				if got := b.attempts("timeout"); got != want {
					t.Errorf("attempts timeout = %v, want %v", got, want)
				}
			})
		})
	}
}

func TestWhatFramesContentIsNoContent(t *testing.T) {
	in(t, atLeast, func(b *bench) {
		c, rest := b.attempt("stream", "x1", 1)
		c.tell(rest[:3]...)
		for range 30 {
			c.body("event: ping\ndata: {\"type\":\"ping\"}\n\n", false)
			time.Sleep(time.Second)
			if got := c.heard(); strings.Contains(got, "event: error") {
				c.hangUp()
				return
			}
		}
		t.Error("after 30 s of nothing but pings the stream still goes on, want it cut")
		c.hangUp()
	})
}

func TestASlowStartIsNotASlowStream(t *testing.T) {
	in(t, atLeast, func(b *bench) {
		c, rest := b.attempt("stream", "x1", 1)
		c.tell(rest[:2]...)
		c.heard()
		time.Sleep(25 * time.Second) // first_content has not come, nor is it due
		expect(t, "before the first content", c.crawl(20, time.Second), "")
		c.hangUp()
	})
}

func TestAWholeAnswerHasNoRate(t *testing.T) {
	in(t, atLeast, func(b *bench) {
		c, rest := b.attempt("json", "x1", 1)
		c.tell(rest[0])
		c.body("{", false)
		time.Sleep(50 * time.Second)
		expect(t, "after 50 s with one byte", c.heard(), requested)
		c.hangUp()
	})
}

func TestASlowClientIsNotASlowProvider(t *testing.T) {
	in(t, "min_rate: {bytes_per_second: 20, window: 10s}\n    deadlines: {first_content: 20s, answer: 90s, idle: 15s, total: 2000s}", func(b *bench) {
		c, rest := b.attempt("stream", "x1", 1)
		c.tell(rest[:2]...)
		c.heard()
		c.s.out = make(chan string) // takes a piece when the client does
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for range 100 {
				select {
				case c.s.in <- bodyOf(delta): // there is always more to take
				case <-c.s.ctx.Done():
				}
			}
		}()
		var got []string
		for pieces := 0; pieces < 100; { // the client takes one every 900 ms, later every 30 s
			pause := 900 * time.Millisecond
			if pieces > 50 {
				pause = 30 * time.Second
			}
			time.Sleep(pause)
			m := <-c.s.out
			got = append(got, m)
			pieces += strings.Count(m, "xxxxx xxxxx")
			if strings.Contains(m, "event: error") {
				break
			}
		}
		if last := got[len(got)-1]; strings.Contains(last, "event: error") {
			t.Errorf("the client got %d messages, the last of them %s; want no error", len(got), last)
		}
		c.hangUp()
		<-sent
		if n := testutil.ToFloat64(b.p.metrics.attempts.WithLabelValues("chat", "a/sonnet", "timeout")); n != 0 {
			t.Errorf("attempts timeout = %v, want 0", n)
		}
	})
}

func TestAWindowLastsForAsLongAsWeListen(t *testing.T) {
	now := time.Now()
	c := clock{least: config.MinRate{BytesPerSecond: 10, Window: 10 * time.Second}}
	c.window(now, 1000)
	for range 8 { // a client that takes a second for each piece
		c.blocked(time.Second)
	}
	if got, want := c.due(), now.Add(18*time.Second); !got.Equal(want) {
		t.Errorf("due after 8 s in flushes = %s, want %s", got.Sub(now), want.Sub(now))
	}
	for received, want := range map[int64]bool{1099: true, 1100: false} {
		if got := c.slow(received); got != want {
			t.Errorf("slow(%d) with 1000 at the window's begin = %t, want %t", received, got, want)
		}
	}
}
