package config

import (
	"encoding/base64"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// modes are the degraded modes, as the ladder of a chain names them.
func modes() []string { return []string{"cache", "queue", "downshift", "off"} }

// degrade checks the ladder of a chain and what each of its modes may do.
func (c *compiler) degrade(p string, f *fileChain, ch *Chain) {
	list := at(p, "degrade")
	c.distinct(list, f.Degrade)
	for i, mode := range f.Degrade {
		if mode != "" {
			c.oneOf(index(list, i), mode, modes()...)
		}
	}
	for _, mode := range []string{"cache", "queue", "off"} {
		if c.has(at(p, mode)) {
			c.inLadder(at(p, mode), mode, p, f)
		}
	}
	ch.Degrade = f.Degrade
	ch.Cache = c.cache(at(p, "cache"), &f.Cache)
	ch.Queue = c.queue(at(p, "queue"), &f.Queue)
	ch.Off = c.off(at(p, "off"), &f.Off)
	ch.Downshift = c.downshift(p, f)
	if on := at(at(p, "on"), "rate_limited"); f.On.RateLimited == "queue" {
		c.inLadder(on, "queue", p, f)
	}
}

// inLadder refuses what path says of a mode that the chain at p does not have.
func (c *compiler) inLadder(path, mode, p string, f *fileChain) {
	if !slices.Contains(f.Degrade, mode) && !c.ladderInDoubt(p, f) {
		c.fault(path, "says nothing without degrade: [%s]", mode)
	}
}

// ladderInDoubt reports whether a fault of the chain's ladder may hide any mode.
func (c *compiler) ladderInDoubt(p string, f *fileChain) bool {
	list := at(p, "degrade")
	if c.wrong[p] || c.wrong[list] {
		return true
	}
	for i := range f.Degrade {
		if c.wrong[index(list, i)] {
			return true
		}
	}
	return false
}

func (c *compiler) cache(p string, f *fileCache) Cache {
	if near := at(p, "near"); f.Near != 0 && !(f.Near >= 0.5 && f.Near <= 1) && !c.wrong[near] { // NaN is neither
		c.fault(near, "must be 0 (off), or 0.5 to 1, got %v: requests less alike are others", f.Near)
	}
	return Cache(*f)
}

func (c *compiler) queue(p string, f *fileQueue) Queue {
	c.required(at(p, "message"), f.Message)
	return Queue{MaxAge: f.MaxAge, Message: f.Message, Notify: c.webhook(at(p, "notify"), &f.Notify)}
}

// Key is what the webhook is signed with: the bytes that a secret of Standard Webhooks (whsec_ and base64) stands for, or
// those of any other secret. The error repeats nothing of it.
//
// https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md#signature-scheme
func (w *Webhook) Key() ([]byte, error) {
	value, err := w.Secret.Value()
	if err != nil {
		return nil, err
	}
	encoded, standard := strings.CutPrefix(value, "whsec_")
	if !standard {
		return []byte(value), nil
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(key) == 0 {
		return nil, w.Secret.fault("begins with whsec_, but what follows is not base64")
	}
	return key, nil
}

// webhook is nil when there is none, and after a fault.
func (c *compiler) webhook(p string, f *fileNotify) *Webhook {
	if !c.has(p) || c.wrong[p] {
		return nil
	}
	w := &Webhook{
		URL:     c.webhookURL(at(p, "webhook"), f),
		Secret:  c.secret(at(p, "secret"), f.Secret),
		Private: f.AllowPrivate,
	}
	if _, err := w.Secret.Value(); err != nil { // an absent secret is not the file's fault
		return w
	}
	if _, err := w.Key(); err != nil {
		c.fault(at(p, "secret"), "%s", err)
	}
	return w
}

func (c *compiler) webhookURL(p string, f *fileNotify) *url.URL {
	form := web("https://app.example.com/hooks/llm")
	form.login = ": the receiver knows us by the signature"
	u := c.url(p, f.Webhook, form)
	switch {
	case u == nil:
	case strings.Contains(f.Webhook, "#"):
		c.fault(p, "must have no fragment")
	case f.AllowPrivate:
	case u.Scheme == "http":
		c.fault(p, "plain http would show the news of a job to the network: use https, or insist with allow_private: true")
	case privateHost(u.Hostname()):
		c.fault(p, "is of this machine or a private network: insist with allow_private: true")
	}
	return u
}

// privateHost reports whether host is plainly not of the public network. What a name leads to is known when it is called.
func privateHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	ip = ip.Unmap()
	return host == "localhost" || err == nil && (!ip.IsGlobalUnicast() || ip.IsPrivate())
}

func (c *compiler) off(p string, f *fileOff) Off {
	status := at(p, "status")
	c.oneOf(at(p, "as"), f.As, "error", "answer")
	off := Off{Status: f.Status, Message: f.Message, Answer: f.As == "answer", Force: f.Force}
	switch {
	case off.Answer && c.has(status):
		c.fault(status, "says nothing with as: answer, which is always a 200: remove one")
	case off.Answer:
		off.Status = 200
	case off.Status < 400 || off.Status > 599:
		c.fault(status, "must be 400 to 599, got %d", off.Status)
	case off.Status == 507:
		c.fault(status, "507 is how Envoy says that this service is missing, and would be tried again: choose another")
	}
	c.required(at(p, "message"), f.Message)
	return off
}

// downshift is the first rung of the downshift mode, or 0.
func (c *compiler) downshift(p string, f *fileChain) int {
	key, mode := at(p, "downshift_from"), slices.Index(f.Degrade, "downshift")
	if !c.has(key) {
		if mode >= 0 {
			c.fault(index(at(p, "degrade"), mode), "needs downshift_from: the first of the targets that serve it")
		}
		return 0
	}
	if c.wrong[key] || !c.required(key, f.DownshiftFrom) {
		return 0
	}
	rung := slices.IndexFunc(f.Targets, func(r fileRung) bool { return slices.Contains(r.names(), f.DownshiftFrom) })
	switch {
	case rung < 0 && !c.wrong[at(p, "targets")]:
		c.fault(key, "the chain has no target %.80q%s", f.DownshiftFrom, didYouMean(f.DownshiftFrom, namesAfterFirst(f.Targets)))
	case rung == 0:
		c.fault(key, "%s is of the first rung: none would be left to try before the downshift", f.DownshiftFrom)
	}
	c.inLadder(key, "downshift", p, f)
	return max(rung, 0)
}

// ownAccounts refuses what would take an answer out of the account that it was asked of: a queued request runs without
// the client's credential, and a kept answer would be given to callers with another.
func (c *compiler) ownAccounts(p string, ch *Chain) {
	list, targets := at(p, "degrade"), ch.targets()
	i := slices.IndexFunc(targets, func(t *Target) bool { return t.Provider != nil && t.Provider.Auth.FromClient })
	if i < 0 {
		return
	}
	name := targets[i].Provider.Name
	if mode := slices.Index(ch.Degrade, "queue"); mode >= 0 {
		c.fault(index(list, mode), "provider %s takes the client's own credential (auth.from: client), which is not kept: "+
			"a queued request could not run", name)
	}
	const shared = "provider %s takes the client's own credential (auth.from: client), " +
		"so callers with accounts of their own would share answers: set tenant"
	if mode := slices.Index(ch.Degrade, "cache"); mode >= 0 && !c.tenantsTold() {
		c.fault(index(list, mode), shared, name)
	}
	if ch.Idempotency > 0 && !c.tenantsTold() {
		c.fault(at(p, "idempotency"), shared, name)
	}
}

// jobs comes after the chains: without a queue there are none.
func (c *compiler) jobs() {
	queues := slices.ContainsFunc(c.keys["chains"], func(name string) bool {
		p, f := at("chains", name), c.f.Chains[name]
		return slices.Contains(f.Degrade, "queue") || c.ladderInDoubt(p, f)
	})
	if c.has("jobs") && !c.wrong["jobs"] && !queues && !c.wrong["chains"] {
		c.fault("jobs", "says nothing, as no chain has queue in its degrade")
	}
	c.out.Jobs = Jobs(c.f.Jobs)
}
