package admin

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stream takes down what is sent, until its request ends.
type stream struct {
	*httptest.ResponseRecorder
	events chan string
	part   string
}

func (s *stream) Write(p []byte) (int, error) {
	s.part += string(p)
	for {
		event, rest, whole := strings.Cut(s.part, "\n\n")
		if !whole {
			return len(p), nil
		}
		s.part = rest
		s.events <- event
	}
}

func (s *stream) Flush() {}

// follow opens a page's events, which end with ctx.
func follow(ctx context.Context, h http.Handler, query, last string) (events <-chan string, status func() int) {
	w := &stream{ResponseRecorder: httptest.NewRecorder(), events: make(chan string)}
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:9003/events?"+query, nil)
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	go func() {
		defer close(w.events)
		h.ServeHTTP(w, r)
	}()
	return w.events, func() int { return w.Code }
}

// query is that of a page as it is now.
func query(t *testing.T, s *served) (q, since string) {
	t.Helper()
	_, page := s.get(t, "/")
	shape, since := attribute(page, "data-shape"), attribute(page, "data-since")
	return "shape=" + shape + "&since=" + since, since
}

func attribute(page, name string) string {
	_, rest, _ := strings.Cut(page, name+`="`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// events are the data of the first event of a page that has seen nothing.
func events(t *testing.T, s *served, since string) (data []string) {
	t.Helper()
	q, _ := query(t, s)
	shape, _, _ := strings.Cut(q, "&")
	ctx, cancel := context.WithCancel(t.Context())
	all, _ := follow(ctx, s, shape+"&since="+since, "")
	first := <-all
	cancel()
	for range all {
	}
	lines := bufio.NewScanner(strings.NewReader(first))
	lines.Buffer(nil, 10<<20)
	for lines.Scan() {
		if line, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			data = append(data, line)
		} else if !strings.HasPrefix(lines.Text(), "id: ") {
			t.Errorf("an event has the line %q", lines.Text())
		}
	}
	return data
}

func TestAnOpenPageHearsOnlyWhatHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(sample(4, 2), nil)
		q, _ := query(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		all, _ := follow(ctx, s, q, "")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		select {
		case event := <-all:
			t.Fatalf("an event without a change: %s", event)
		default:
		}
		next := sample(4, 2)
		next.Targets[2].State = "half-open"
		s.now(next)
		event := <-all
		for _, want := range []string{`"id":"t2"`, "half-open", `"id":"c0"`} {
			if !strings.Contains(event, want) {
				t.Errorf("the event after the change does not have %s: %s", want, event)
			}
		}
		for _, never := range []string{`"id":"t1"`, `"id":"envoys"`} {
			if strings.Contains(event, never) {
				t.Errorf("the event after the change has %s: %s", never, event)
			}
		}
	})
}

func TestAPageThatComesBackHearsWhatItHasMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(sample(4, 2), nil)
		q, since := query(t, s)
		next := sample(4, 2)
		next.Store = "up"
		s.now(next)
		time.Sleep(time.Minute)
		for name, missed := range map[string]struct {
			last string
			want bool
		}{"of the page": {"", true}, "of its last event": {since, true}, "of another process": {"OTHER.999", true}} {
			ctx, cancel := context.WithCancel(t.Context())
			all, _ := follow(ctx, s, q, missed.last)
			if event := <-all; strings.Contains(event, `"id":"summary"`) != missed.want || strings.Contains(event, `"id":"envoys"`) != strings.HasPrefix(missed.last, "OTHER") {
				t.Errorf("%s: the first event is %.300s", name, event)
			}
			cancel()
			for range all {
			}
		}
	})
}

func TestAPageOfAnotherConfigIsMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(sample(4, 2), nil)
		q, _ := query(t, s)
		all, _ := follow(t.Context(), s, q, "")
		s.now(sample(5, 2))
		if event := <-all; !strings.HasPrefix(event, "event: reload") {
			t.Errorf("the event after another config is %s, want reload", event)
		}
		if event, open := <-all; open {
			t.Errorf("after it comes %s, want the end", event)
		}
	})
}

func TestOpenPagesEndWithTheListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quiet := make(chan struct{})
		s := serve(sample(4, 2), func(o *Options) { o.Quiet = quiet })
		q, _ := query(t, s)
		all, _ := follow(t.Context(), s, q, "")
		synctest.Wait()
		close(quiet)
		if event, open := <-all; open {
			t.Errorf("the listener's end sends %s, want nothing", event)
		}
	})
}

func TestOpenPagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(sample(4, 2), nil)
		q, _ := query(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		var open []<-chan string
		for range maxListeners {
			all, _ := follow(ctx, s, q, "")
			open = append(open, all)
		}
		synctest.Wait()
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:9003/events?"+q, nil))
		if w.Code != http.StatusServiceUnavailable {
			t.Errorf("one page more than %d gets %d, want 503", maxListeners, w.Code)
		}
		cancel()
		for _, all := range open {
			for range all {
			}
		}
		ctx, cancel = context.WithCancel(t.Context())
		all, status := follow(ctx, s, q, "")
		synctest.Wait()
		cancel()
		for range all {
		}
		if status() != http.StatusOK {
			t.Errorf("a page after the others have left gets %d, want 200", status())
		}
	})
}

func TestManyOpenPagesAreOneLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		s := serve(sample(4, 2), nil)
		counting := serve(sample(4, 2), func(o *Options) {
			o.Status = func() Status { looks++; return *s.status.Load() }
		})
		q, _ := query(t, counting)
		ctx, cancel := context.WithCancel(t.Context())
		var open []<-chan string
		for range 50 {
			all, _ := follow(ctx, counting, q, "")
			open = append(open, all)
		}
		time.Sleep(10*time.Second + 1)
		cancel()
		for _, all := range open {
			for range all {
			}
		}
		if looks > 12 {
			t.Errorf("50 pages have looked %d times in 10 s, want about once a second", looks)
		}
	})
}
