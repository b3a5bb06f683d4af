//go:build e2e

package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"understudy/internal/scripted"
	"understudy/internal/stage"
)

// receiver is the program that hears of jobs: as its owner would write it, with the library of Standard Webhooks.
type receiver struct {
	t      *testing.T
	key    *standardwebhooks.Webhook
	ill    func(w http.ResponseWriter, r *http.Request) // what the first call about each job gets; nil: it is well
	server *scripted.Server

	mu    sync.Mutex // guards the fields below
	heard map[string][]notice
	held  int // calls without an answer yet
}

// notice is one call about a job.
type notice struct {
	body      []byte
	timestamp string
	took      bool // it was answered well
}

func newReceiver(t *testing.T, key *standardwebhooks.Webhook, ill func(http.ResponseWriter, *http.Request)) *receiver {
	return &receiver{t: t, key: key, ill: ill, heard: map[string][]notice{}}
}

func (r *receiver) serve(address string) {
	r.t.Helper()
	server, err := scripted.Serve(r, address, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { server.Close() })
	r.server = server
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path != "/hook" {
		r.t.Errorf("the receiver was called at %s, want /hook", req.URL.Path)
	}
	body, err := io.ReadAll(req.Body)
	if err = errors.Join(err, r.key.Verify(body, req.Header)); err != nil {
		r.t.Errorf("a webhook does not verify: %v", err)
	}
	id := req.Header.Get(standardwebhooks.HeaderWebhookID)
	first := r.note(id, notice{body: body, timestamp: req.Header.Get(standardwebhooks.HeaderWebhookTimestamp)})
	if !first || r.ill == nil {
		r.took(id)
		return
	}
	r.hold(1)
	defer r.hold(-1)
	r.ill(w, req)
}

func (r *receiver) note(id string, n notice) (first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard[id] = append(r.heard[id], n)
	return len(r.heard[id]) == 1
}

func (r *receiver) took(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard[id][len(r.heard[id])-1].took = true
}

func (r *receiver) hold(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held += n
	return r.held
}

// knows is an error until the receiver has taken the news of an order's job.
func (r *receiver) knows(o order) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.heard[o.id]
	if len(calls) == 0 || !calls[len(calls)-1].took {
		return fmt.Errorf("chain %s: job %s was told in %d calls, and not taken", o.chain, o.id, len(calls))
	}
	var said struct {
		Type string
		Data struct {
			ID, State, Location string
			Key                 string `json:"idempotency_key"`
		}
	}
	if err := json.Unmarshal(calls[0].body, &said); err != nil {
		return err
	}
	if said.Type != "job.done" || said.Data.ID != o.id || said.Data.Key != o.key || said.Data.Location != "/jobs/"+o.id {
		r.t.Errorf("the news of job %s is %s", o.id, calls[0].body)
	}
	for _, again := range calls[1:] {
		if !bytes.Equal(again.body, calls[0].body) || again.timestamp == calls[0].timestamp {
			r.t.Errorf("job %s was told at %s as %s, and at %s as %s, want the same news at another time",
				o.id, calls[0].timestamp, calls[0].body, again.timestamp, again.body)
		}
	}
	return nil
}

// webhook is a chain whose jobs are told to an address.
func webhook(name, url, secret string, private bool) chain {
	notify := map[string]any{"webhook": url, "secret": secret}
	if private {
		notify["allow_private"] = true
	}
	return chain{name: name, api: "anthropic", on: []string{"a"}, breaker: fileBreaker{Failures: 1, OpenFor: time.Second, MaxOpenFor: time.Second},
		more: fileChain{Degrade: []string{"queue"}, Queue: map[string]any{"notify": notify}}}
}

// inside are addresses that only this machine can reach and that the config cannot know for such.
func inside(t *testing.T) map[string]string {
	t.Helper()
	hosts := map[string]string{"range": "198.18.0.1"} // of benchmarks, RFC 2544
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	ips, err := net.DefaultResolver.LookupNetIP(t.Context(), "ip", name)
	if err == nil && len(ips) > 0 && isInside(ips[0]) {
		hosts["name"] = name
	} else {
		t.Logf("this machine's name leads to %v, %v: no name to try", ips, err)
	}
	return hosts
}

func isInside(ip netip.Addr) bool { return ip.Unmap().IsLoopback() || ip.Unmap().IsPrivate() }

func TestWebhooksAreToldWhateverTheirReceiverDoes(t *testing.T) {
	t.Parallel()
	raw := []byte("a secret of the receivers' own")
	key, err := standardwebhooks.NewWebhookRaw(raw)
	if err != nil {
		t.Fatal(err)
	}
	keyFile := filepath.Join(t.TempDir(), "hook.key")
	write(t, keyFile, []byte("whsec_"+base64.StdEncoding.EncodeToString(raw)))
	secret := "file:" + keyFile

	receivers := map[string]*receiver{
		"down":  newReceiver(t, key, nil),
		"fails": newReceiver(t, key, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }),
		"slow":  newReceiver(t, key, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
		"redirects": newReceiver(t, key, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}),
	}
	addresses := map[string]string{"down": stage.Free(t)}
	var chains []chain
	for name, r := range receivers {
		if name != "down" {
			r.serve("127.0.0.1:0")
			addresses[name] = r.server.Addr()
		}
		chains = append(chains, webhook(name, "http://"+addresses[name]+"/hook", secret, true))
	}
	for name, host := range inside(t) {
		chains = append(chains, webhook("inside-"+name, "https://"+host+"/hook", secret, false))
	}
	s := startStack(t, plan{idle: true, chains: chains, edit: func(f *file) { f.Recovery = map[string]any{"rate": "100/s"} }})
	s.set(t, "a", "529")
	var orders []order
	for _, c := range chains {
		n := 3
		if c.name == "slow" {
			n = 6 // more than call at once
		}
		for i := range n {
			o := order{key: fmt.Sprint(orderKey, c.name, i), chain: c.name}
			if err := s.place(within(t, patience), t, &o); err != nil {
				t.Fatal(err)
			}
			orders = append(orders, o)
		}
	}
	s.set(t, "a", "ok")

	// The drain does not wait for any receiver.
	for _, o := range orders {
		eventually(t, patience, func() error {
			e, err := s.look(t.Context(), 0, o.id)
			if err == nil && e.State != "done" {
				err = fmt.Errorf("%s is %s", o.key, e.State)
			}
			return err
		})
	}
	if held := receivers["slow"].hold(0); held != 4 {
		t.Errorf("when all jobs were done the slow receiver had %d calls open, want 4", held)
	}
	s.reads(t, atLeast(3), "understudy_webhooks_total", "chain", "down", "result", "retried")
	receivers["down"].serve(addresses["down"])

	for _, o := range orders {
		if r := receivers[o.chain]; r != nil {
			eventually(t, time.Minute, func() error { return r.knows(o) })
		}
	}
	for _, c := range chains {
		if strings.HasPrefix(c.name, "inside-") {
			s.reads(t, is(3), "understudy_webhooks_total", "chain", c.name, "result", "dead")
			continue
		}
		s.reads(t, is(0), "understudy_webhooks_total", "chain", c.name, "result", "dead")
		s.reads(t, atLeast(3), "understudy_webhooks_total", "chain", c.name, "result", "retried")
	}
	log := s.services[0].tail(1 << 20)
	for name, host := range inside(t) {
		if want := "is not a public address; if it is meant, set notify.allow_private: true"; !strings.Contains(log, `"receiver":"`+host+`"`) || !strings.Contains(log, want) {
			t.Errorf("the log does not say of %s (%s) that it %s", host, name, want)
		}
	}
}
