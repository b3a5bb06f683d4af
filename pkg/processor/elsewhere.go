package processor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"understudy/pkg/chain"
	"understudy/pkg/classify"
	"understudy/pkg/config"
	"understudy/pkg/degrade"
	"understudy/pkg/provider"
	"understudy/pkg/provider/credential"
)

// What is different where the same model is served elsewhere: which targets an exchange can go to, how a call is proved,
// and how its answer comes back in the client's dialect.

const (
	// amazonStream is the content type of AWS's binary frames.
	amazonStream = "application/vnd.amazon.eventstream"
	// maxFrame is the largest frame that is turned into an event; the classifier takes no larger one either.
	maxFrame = 1 << 20
	// keptWhole is the largest body that is kept only to judge further targets by. A larger one is judged for all of them
	// before it goes, which costs microseconds, while there are as many bodies to keep as streams.
	keptWhole = 4 << 10
	// findTime bounds the look for where a response was made.
	findTime = 500 * time.Millisecond
)

// outbound is what an attempt's call to its target comes to.
type outbound struct {
	reads  classify.API     // how the answer is to be read
	tier   string           // the asked one, as the answer will tell the served one
	signed string           // x-amz-date of a signed call
	frames *provider.Frames // turns the answer into the client's events; nil: it is as the client wants it
}

// reads is the dialect of the answer.
func (a *attempt) reads() classify.API {
	if a.call.reads != classify.APIUnknown {
		return a.call.reads
	}
	return a.api
}

// prove adds what shows the provider who is calling, where that is more than a key of the config. body is the request's
// as it would go unchanged.
func (a *attempt) prove(p *config.Provider, rw *provider.Rewrite, body []byte) error {
	if p.Auth.FromClient || a.creds == nil {
		return nil
	}
	for _, name := range a.creds.Names() {
		if !slices.Contains(rw.Remove, name) {
			rw.Remove = append(rw.Remove, name)
		}
	}
	if p.Auth.AWS == "" && p.Auth.GCP == "" && p.Auth.Entra == "" {
		return nil
	}
	if rw.Body != nil {
		body = rw.Body
	}
	headers, err := a.creds.Sign(a.ctx, p.Name, credential.Request{Method: a.head.method, Host: rw.Authority, Path: rw.Path, Body: body})
	for _, h := range headers {
		rw.Set = append(rw.Set, provider.Header(h))
		if h.Name == "x-amz-date" {
			a.call.signed = h.Value
		}
	}
	return err
}

// skewed says that a signed call was refused because of this machine's clock, which is corrected now, and that the front
// can make another one.
func (a *attempt) skewed(v classify.Verdict) bool {
	refused := a.answer.status == http.StatusForbidden || a.answer.status == http.StatusUnauthorized
	return refused && v.Class == classify.Auth && a.call.signed != "" &&
		a.creds.Skewed(a.try.Target.Provider.Name, a.call.signed, a.answer.header["date"]) && a.head.exchange.Attempt > 0
}

// again gives the exchange back to the front without a word of this attempt in the memo: beyond the last slot the
// chain is walked once more then.
func (a *attempt) again(v classify.Verdict) {
	a.replace(a.shown(v), a.next())
}

// fits says why the exchange cannot go to a target; its text may be shown. It answers alike when the body is gone.
func (a *attempt) fits(t *config.Target) error {
	if err, known := a.judged[t.Name]; known {
		return err
	}
	if a.judged == nil {
		a.judged = make(map[string]error, 4)
	}
	err := provider.Eligible(t, a.chain.Rungs[0].Target, a.home, &a.body)
	a.judged[t.Name] = err
	return err
}

// judge asks of all targets whether they fit, while the body is here.
func (a *attempt) judge() {
	for _, r := range a.chain.Rungs {
		for _, m := range r.All() {
			_ = a.fits(m.Target)
		}
	}
}

// choice says that the chain has more than one target to judge.
func (a *attempt) choice() bool { return len(a.chain.Rungs) > 1 || len(a.chain.Rungs[0].Members) > 1 }

// obstacles tells which targets the client's own request kept out, as far as it was asked.
func (a *attempt) obstacles() string {
	var why []string
	for _, r := range a.chain.Rungs {
		for _, m := range r.All() {
			if err := a.judged[m.Target.Name]; errors.Is(err, provider.ErrIneligible) {
				why = append(why, m.Target.Name+": "+err.Error())
			}
		}
	}
	return strings.Join(why, "; ")
}

// reframe prepares an answer in frames to leave as the events that the client asked for.
func (a *attempt) reframe(m *mutation) {
	if a.call.reads != classify.BedrockInvoke || !strings.HasPrefix(a.answer.contentType, amazonStream) {
		return
	}
	a.call.frames = provider.NewFrames(maxFrame)
	a.answer.contentType = "text/event-stream"
	m.set("content-type", a.answer.contentType)
	m.remove("content-length")
}

// reframed is a piece of the answer as the client wants it. What is no frame the verdict tells of.
func (a *attempt) reframed(p []byte) []byte {
	if a.call.frames == nil {
		return p
	}
	out, _ := a.call.frames.Convert(nil, p)
	return out
}

// foreign says that the target's errors may be in another dialect than the client's.
func (a *attempt) foreign() bool {
	p := a.try.Target.Provider.Platform
	return p != config.Native && p != "" && a.api != classify.APIUnknown
}

// failure is the target's own failing answer, in the client's dialect.
func (a *attempt) failure() chain.Answer {
	w := &a.answer
	ans := chain.Answer{Status: honest(w.status), ContentType: w.contentType, ContentEncoding: w.contentEncoding, Body: a.heldBody()}
	if !a.foreign() {
		return ans
	}
	header := make(http.Header, len(w.header))
	for name, value := range w.header {
		header.Set(name, value)
	}
	body := provider.ErrorIn(a.api, ans.Status, header, ans.Body)
	if !bytes.Equal(body, ans.Body) {
		ans.ContentType, ans.ContentEncoding, ans.Body = "application/json", "", body
	}
	return ans
}

// carried are the headers that go on with an error whose body is written anew: when to come again, and what the
// platform's support wants to know.
var carried = []string{
	"retry-after", "retry-after-ms", "x-ms-retry-after-ms",
	"request-id", "x-request-id", "x-amzn-requestid", "apim-request-id",
}

// tell answers with ans, the target's own failing answer in the client's dialect.
func (a *attempt) tell(ans chain.Answer, v classify.Verdict, m *mutation) {
	for _, name := range carried {
		if value := a.answer.header[name]; value != "" && !slices.Contains(m.m.RemoveHeaders, name) {
			m.set(name, value)
		}
	}
	a.label(m)
	outcome := a.outcome(v)
	told := degrade.Answer{Status: ans.Status, Body: ans.Body, Headers: map[string]string{"content-type": ans.ContentType}}
	a.replace(told, m)
	a.concludeOwn(told)
	a.report(v)
	a.p.account(a, v, outcome)
}

// conversations are the headers by which sticky chains of cfg know conversations.
func conversations(cfg *config.Config, h *corev3.HeaderMap) map[string]string {
	var found map[string]string
	for _, ch := range cfg.Chains {
		if ch.Sticky.For <= 0 {
			continue
		}
		for _, f := range h.GetHeaders() {
			if f.Key == ch.Sticky.Header {
				if found == nil {
					found = map[string]string{}
				}
				found[f.Key] = value(f)
			}
		}
	}
	return found
}

// conversation is the key of the request's conversation, "" when it is in none.
func (a *attempt) conversation() string {
	if a.p.hints == nil || a.chain.Sticky.For <= 0 || a.head.conversations[a.chain.Sticky.Header] == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(a.chain.Name + "\x00" + a.head.tenant + "\x00" + a.head.conversations[a.chain.Sticky.Header]))
	return hex.EncodeToString(sum[:16])
}

// settleDown lets a conversation stay with a target that is not the first that it would have had.
func (a *attempt) settleDown(v classify.Verdict) {
	key := a.conversation()
	if key == "" || a.drill.marked || v.Class != classify.OK || a.try.Downshift || a.try.Index == 0 && a.p.hints.Get(key) == "" {
		return
	}
	a.p.hints.Put(key, a.try.Target.Name, a.chain.Sticky.For)
}

// findHome is the provider that holds what the request names, as far as that is known.
func (a *attempt) findHome() string {
	if a.p.homes == nil || a.api != classify.OpenAIResponses || !a.choice() {
		return ""
	}
	for _, b := range a.body.Bound() {
		if home := a.find(b.Value); a.book.Config.Providers[home] != nil {
			return home
		}
	}
	return ""
}

func (a *attempt) find(id string) string {
	if a.p.homes == nil || !strings.HasPrefix(id, "resp_") {
		return ""
	}
	ctx, cancel := context.WithTimeout(a.ctx, findTime)
	defer cancel()
	return a.p.homes.Find(ctx, id)
}

// responseID is the id of an answer of the Responses API, whole or in its first event.
var responseID = regexp.MustCompile(`"id"\s*:\s*"(resp_[A-Za-z0-9_-]+)"`)

const maxResponseID = 205 // bytes

// homing says that it is worth remembering which provider made an answer that may be referred to: it is not plain.
func (a *attempt) homing() bool {
	if a.p.homes == nil || a.api != classify.OpenAIResponses || a.answer.status >= 300 || a.drill.fault != "" {
		return false
	}
	first := a.book.Config.Primary(a.head.path())
	return a.choice() || first == nil || first.Provider != a.try.Target.Provider
}

// noteHome remembers which provider made the answer, once its id is among what is about to leave: an event leaves whole,
// and the first one has it.
func (a *attempt) noteHome() {
	w := &a.answer
	var start []byte
	for _, p := range w.held[w.next:] {
		start = append(start, p[:min(len(p), maxChunk-len(start))]...)
	}
	if m := responseID.FindSubmatch(start); m != nil && len(m[1]) <= maxResponseID {
		a.p.homes.Put(string(m[1]), a.try.Target.Provider.Name)
		w.homing = false
	}
	if w.sent > maxChunk {
		w.homing = false
	}
}

// stored takes a request for a response that a provider keeps: to where it was made, else to the first that would make
// one. It is false for another request.
func (a *attempt) stored() bool {
	made, id := provider.StoredResponse(a.head.method, a.head.path())
	if id == "" {
		return false
	}
	first := a.book.Config.Primary(made)
	if first == nil {
		return false
	}
	p := a.book.Config.Providers[a.find(id)]
	if p == nil {
		p = first.Provider
	}
	rw, err := provider.ForStored(p, a.head.target)
	a.sendPast(p, rw, err)
	return true
}
