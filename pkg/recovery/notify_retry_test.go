package recovery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"understudy/pkg/config"
	"understudy/pkg/degrade/queue"
)

func TestReceiverThatFailsInEveryWayIsToldUntilItTakesIt(t *testing.T) {
	receiver := script(status(500), hang, status(302, "Location", "http://elsewhere/"), status(429, "Retry-After", "1200"), status(204))
	inTown(t, hookTo(t, "hook"), receiver, func(t *testing.T, w *town) {
		w.down.Store(true)
		job := ended(t, w.queue, "hook", "key-1")
		w.run(func() {
			time.Sleep(3 * time.Second)
			w.down.Store(false)
			time.Sleep(24 * time.Hour)
		})
		w.wantCounts("map[hook delivered:1 hook retried:5]")
		calls := w.called()
		if got, want := fmt.Sprint(gaps(calls)), "[30s 2m15s 10m0s 1h0m0s]"; got != want {
			t.Errorf("pauses between calls = %s, want %s", got, want)
		}
		for _, c := range calls {
			if c.host != "hook" {
				t.Errorf("%s was called, want only hook", c.host)
			}
			if got, want := c.header.Get("webhook-id"), job.ID; got != want {
				t.Errorf("webhook-id = %s, want the job's, %s, every time", got, want)
			}
			if got := c.header.Get("Idempotency-Key"); got != "key-1" {
				t.Errorf("Idempotency-Key = %q, want the job's, key-1", got)
			}
			if !bytes.Equal(c.body, calls[0].body) {
				t.Errorf("body = %s, want what it was the first time, %s", c.body, calls[0].body)
			}
		}
	})
}

func TestBodySaysWhatEndedAndWhereItsResultIs(t *testing.T) {
	inTown(t, hookTo(t, "hook"), status(200), func(t *testing.T, w *town) {
		job := ended(t, w.queue, "hook", "key-1")
		at := job.Created.Format(time.RFC3339Nano)
		w.run(func() { time.Sleep(time.Second) })
		want := fmt.Sprintf(`{"type":"job.done","timestamp":%q,"data":{"id":%q,"chain":"hook","state":"done",`+
			`"idempotency_key":"key-1","created":%[1]q,"finished":%[1]q,"location":"/jobs/%[2]s"}}`, at, job.ID)
		if calls := w.called(); len(calls) != 1 || string(calls[0].body) != want {
			t.Errorf("calls = %v, want one with the body %s", calls, want)
		}
	})
}

func TestExpiredJobIsToldAsExpired(t *testing.T) {
	inTown(t, hookTo(t, "hook"), status(200), func(t *testing.T, w *town) {
		if _, err := w.queue.Accept(t.Context(), queue.Request{Chain: "hook", Key: "k", Body: []byte(`{}`), MaxAge: time.Minute}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := w.queue.Next(ctx, "hook"); err == nil {
			t.Error("a job ran that is too old")
		}
		w.run(func() { time.Sleep(time.Second) })
		var e event
		if calls := w.called(); len(calls) != 1 || json.Unmarshal(calls[0].body, &e) != nil || e.Type != "job.expired" || e.Data.State != queue.Expired {
			t.Errorf("calls = %v, want one of type job.expired", calls)
		}
	})
}

func TestReceiverThatNeverTakesItIsGivenUpAfterAboutADay(t *testing.T) {
	inTown(t, hookTo(t, "hook"), status(500), func(t *testing.T, w *town) {
		job := ended(t, w.queue, "hook", "key-1")
		w.run(func() { time.Sleep(48 * time.Hour) })
		w.wantCounts("map[hook dead:1 hook retried:9]")
		if got, want := fmt.Sprint(gaps(w.called())), "[5s 30s 2m0s 10m0s 1h0m0s 3h0m0s 6h0m0s 6h0m0s 6h0m0s]"; got != want {
			t.Errorf("pauses between calls = %s, want %s", got, want)
		}
		if got := w.dead.keys(); !slices.Equal(got, []string{job.ID}) {
			t.Errorf("dead letters = %q, want the job's, %s", got, job.ID)
		}
		e, _ := w.dead.Get(t.Context(), job.ID)
		if !strings.Contains(string(e.Value), "the receiver answered 500") {
			t.Errorf("dead letter = %s, want why", e.Value)
		}
	})
}

func TestReceiverThatIsGoneIsNotCalledAgain(t *testing.T) {
	inTown(t, hookTo(t, "hook"), status(410), func(t *testing.T, w *town) {
		ended(t, w.queue, "hook", "key-1")
		w.run(func() { time.Sleep(48 * time.Hour) })
		w.wantCounts("map[hook dead:1]")
	})
}

func TestTriesThatCrashesSpentDoNotGiveANoticeUp(t *testing.T) {
	inTown(t, hookTo(t, "hook"), script(status(500), status(200)), func(t *testing.T, w *town) {
		job := ended(t, w.queue, "hook", "key-1")
		<-w.outbox.topic("hook")
		w.outbox.deliver("hook", []byte(job.ID), 40) // taken 39 times by processes that died
		w.run(func() { time.Sleep(24 * time.Hour) })
		w.wantCounts("map[hook delivered:1 hook retried:1]")
	})
}

func TestReceiverThatHangsHoldsUpNobodyElse(t *testing.T) {
	answer := func(rw http.ResponseWriter, r *http.Request) {
		if r.Host == "slow" {
			hang(rw, r)
		}
	}
	inTown(t, hookTo(t, "slow", "quick"), answer, func(t *testing.T, w *town) {
		for i := range 100 {
			ended(t, w.queue, "slow", fmt.Sprint(i))
			ended(t, w.queue, "quick", fmt.Sprint(i))
		}
		w.run(func() {
			synctest.Wait() // with no time for any call to end by its bound
			w.wantCounts("map[quick delivered:100]")
			if n := len(w.called()) - 100; n != tellersPerChain {
				t.Errorf("calls that hang = %d, want %d at once", n, tellersPerChain)
			}
		})
	})
}

func TestWebhookThatIsTakenAwayIsNotCalledUntilItIsBack(t *testing.T) {
	cfg := hookTo(t, "hook")
	inTown(t, cfg, script(status(500), status(200)), func(t *testing.T, w *town) {
		ended(t, w.queue, "hook", "key-1")
		w.run(func() {
			time.Sleep(time.Second)
			w.conf.Store(&config.Config{Jobs: cfg.Jobs})
			time.Sleep(24 * time.Hour)
			w.wantCounts("map[hook retried:1]")
			if n := len(w.outbox.puts()); n > 3 {
				t.Errorf("taken and put back %d times, want that nobody takes notices of a chain without a webhook", n)
			}
			w.conf.Store(cfg)
			time.Sleep(time.Minute)
			w.wantCounts("map[hook delivered:1 hook retried:1]")
		})
	})
}

func TestNoticeTakenAsItsWebhookGoesIsPutBack(t *testing.T) {
	cfg := hookTo(t, "hook")
	inTown(t, cfg, status(200), func(t *testing.T, w *town) {
		ended(t, w.queue, "hook", "key-1")
		notice, err := w.queue.Notices().Next(t.Context(), "hook")
		if err != nil {
			t.Fatal(err)
		}
		w.conf.Store(&config.Config{Jobs: cfg.Jobs})
		w.tell(t.Context(), notice)
		if n := len(w.outbox.puts()); n != 1 || len(w.called()) != 0 {
			t.Errorf("put back %d times and called %d times, want 1 and 0", n, len(w.called()))
		}
	})
}

func TestCallThatAStopCutsIsMadeAgain(t *testing.T) {
	inTown(t, hookTo(t, "hook"), script(hang, status(200)), func(t *testing.T, w *town) {
		ended(t, w.queue, "hook", "key-1")
		w.run(func() { time.Sleep(time.Second) })
		w.wantCounts("map[]")
		if n := len(w.outbox.puts()); n != 1 {
			t.Errorf("given back %d times, want once, for another replica", n)
		}
		w.run(func() { time.Sleep(time.Minute) })
		w.wantCounts("map[hook delivered:1]")
	})
}

func TestWebhookIsToldAgainIfTheQueueDidNotHearThatItWas(t *testing.T) {
	inTown(t, hookTo(t, "hook"), status(200), func(t *testing.T, w *town) {
		var failed atomic.Bool
		w.outbox.fail = func(what string) error {
			if what == "done" && failed.CompareAndSwap(false, true) {
				return errors.New("the store is down")
			}
			return nil
		}
		ended(t, w.queue, "hook", "key-1")
		w.run(func() { time.Sleep(time.Minute) })
		calls := w.called()
		if len(calls) != 2 || calls[0].header.Get("webhook-id") != calls[1].header.Get("webhook-id") {
			t.Errorf("calls = %v, want two with one webhook-id", calls)
		}
		if !strings.Contains(w.log.String(), "will come again") {
			t.Errorf("log = %s, want that the notice will come again", w.log.String())
		}
	})
}

func TestStoreThatIsDownIsLoggedOnceAndWaitedFor(t *testing.T) {
	inTown(t, hookTo(t, "hook"), status(200), func(t *testing.T, w *town) {
		var down atomic.Bool
		down.Store(true)
		w.outbox.fail = func(what string) error {
			if what == "pull" && down.Load() {
				return errors.New("the store is down")
			}
			return nil
		}
		ended(t, w.queue, "hook", "key-1")
		w.run(func() {
			time.Sleep(time.Hour)
			down.Store(false)
			time.Sleep(time.Minute)
		})
		w.wantCounts("map[hook delivered:1]")
		if n := strings.Count(w.log.String(), "queue does not answer"); n != 1 {
			t.Errorf("said %d times that the queue does not answer, want once\n%s", n, w.log.String())
		}
	})
}

func TestAnswerThatNeverEndsIsNotReadToItsEnd(t *testing.T) {
	var wrote atomic.Int64
	endless := func(rw http.ResponseWriter, _ *http.Request) {
		for {
			n, err := rw.Write(make([]byte, 1<<10))
			if wrote.Add(int64(n)); err != nil {
				return
			}
		}
	}
	inTown(t, hookTo(t, "hook"), endless, func(t *testing.T, w *town) {
		ended(t, w.queue, "hook", "key-1")
		w.run(func() { synctest.Wait() })
		w.wantCounts("map[hook delivered:1]")
		if n := wrote.Load(); n > 64<<10 {
			t.Errorf("the receiver wrote %d bytes, want no more than buffers hold", n)
		}
	})
}

func TestAnswerThatDripsIsCut(t *testing.T) {
	drip := func(rw http.ResponseWriter, r *http.Request) {
		for pause(r.Context(), time.Second) {
			_, _ = rw.Write([]byte("."))
			_ = http.NewResponseController(rw).Flush()
		}
	}
	inTown(t, hookTo(t, "hook"), drip, func(t *testing.T, w *town) {
		ended(t, w.queue, "hook", "key-1")
		w.run(func() { time.Sleep(16 * time.Second) })
		w.wantCounts("map[hook delivered:1]") // its status had come
	})
}

func TestSecretThatCannotSignIsNoReasonToGiveUp(t *testing.T) {
	for name, value := range map[string]string{
		"it is absent":               "",
		"it is not base64":           "whsec_not base64",
		"it is empty after whsec_":   "whsec_",
		"it is the receiver's prose": "whsec_€€€",
	} {
		t.Run(name, func(t *testing.T) {
			hookTo(t, "hook")
			t.Setenv("HOOK_SECRET", value)
			bad := &config.Config{Chains: []*config.Chain{chainTo(t, "http://hook/", true)}, Jobs: config.Jobs{Keep: 48 * time.Hour}}
			good := hookTo(t, "hook")
			inTown(t, bad, status(200), func(t *testing.T, w *town) {
				ended(t, w.queue, "hook", "key-1")
				w.run(func() {
					time.Sleep(time.Second)
					w.wantCounts("map[hook retried:1]")
					w.conf.Store(good)
					time.Sleep(time.Minute)
				})
				w.wantCounts("map[hook delivered:1 hook retried:1]")
				if log := w.log.String(); !strings.Contains(log, "env:HOOK_SECRET") || len(value) > len("whsec_") && strings.Contains(log, value) {
					t.Errorf("log = %s, want the secret's name and not its value", log)
				}
			})
		})
	}
}

func TestSecretOfAnotherFormSignsByItsBytes(t *testing.T) {
	const secret = "not whsec, and no base64!"
	t.Setenv("HOOK_SECRET", secret)
	ref, err := config.ReadSecret("env:HOOK_SECRET")
	if err != nil {
		t.Fatal(err)
	}
	hook := &config.Webhook{URL: &url.URL{Scheme: "https", Host: "hook"}, Secret: ref}
	req, err := webhook(t.Context(), hook, &queue.Notice{ID: "1", State: queue.Failed}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(req.Body)
	verifier, err := standardwebhooks.NewWebhookRaw([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	if err := verifier.Verify(body, req.Header); err != nil {
		t.Errorf("Verify(%s, %v) = %v, want nil", body, req.Header, err)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		status int
		header string
		want   time.Duration
	}{
		"seconds of a 429":               {429, "90", 90 * time.Second},
		"seconds of a 503":               {503, "90", 90 * time.Second},
		"a date":                         {503, now.Add(time.Minute).Format(http.TimeFormat), time.Minute},
		"a date that is past":            {503, now.Add(-time.Minute).Format(http.TimeFormat), 0},
		"a date of next year":            {503, now.AddDate(1, 0, 0).Format(http.TimeFormat), time.Hour},
		"a day":                          {429, "86400", time.Hour},
		"more than a number holds":       {429, "99999999999999999999999", time.Hour},
		"less than nothing":              {429, "-5", 0},
		"no number":                      {429, "soon", 0},
		"none":                           {429, "", 0},
		"a status that gives no meaning": {500, "90", 0},
	} {
		t.Run(name, func(t *testing.T) {
			resp := &http.Response{StatusCode: c.status, Header: http.Header{"Retry-After": {c.header}}}
			if got := retryAfter(resp, now); got != c.want {
				t.Errorf("retryAfter(%d, %q) = %s, want %s", c.status, c.header, got, c.want)
			}
		})
	}
}

func TestPausesAreJitteredAndNoShorterThanAskedFor(t *testing.T) {
	for range 1000 {
		if got := waitAfter(errors.New("broke"), 5, 0.2); got < 54*time.Minute || got > 66*time.Minute {
			t.Fatalf("waitAfter(fifth call, jitter 0.2) = %s, want an hour give or take a tenth", got)
		}
		if got := waitAfter(answered{429, 20 * time.Second}, 1, 1); got != 20*time.Second {
			t.Fatalf("waitAfter(first call, Retry-After 20 s) = %s, want 20s", got)
		}
		if got := waitAfter(answered{429, time.Second}, 2, 0); got != 30*time.Second {
			t.Fatalf("waitAfter(second call, Retry-After 1 s) = %s, want the schedule's 30s", got)
		}
	}
}
