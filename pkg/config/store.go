package config

import "strings"

func (c *compiler) store() {
	embedded, nats := c.has("store.embedded"), c.has("store.nats")
	switch {
	case embedded && nats:
		c.fault("store", "needs one of embedded and nats: remove the other")
	case nats && !c.wrong["store.nats"]:
		c.out.Store = c.cluster("store.nats", &c.f.Store.NATS)
	case !nats:
		dir := c.f.Store.Embedded.Dir
		c.required("store.embedded.dir", dir)
		c.out.Store = Store{Dir: dir, Replicas: 1}
	}
	s, f := &c.out.Store, &c.f.Store
	s.Encrypt, s.MaxCache, s.MaxJobs = c.encrypt("store.encrypt", f.Encrypt), int64(f.MaxCache), int64(f.MaxJobs)
}

// encrypt refuses keys that cannot be used: without them nothing of what is stored could be read or, worse, it would be
// stored in the clear.
func (c *compiler) encrypt(p, ref string) Secret {
	if !c.has(p) {
		return Secret{}
	}
	s := c.secret(p, ref)
	if c.wrong[p] {
		return Secret{}
	}
	if _, err := s.Keys(); err != nil {
		c.fault(p, "%s", err)
	}
	return s
}

func (c *compiler) cluster(p string, f *fileNATS) Store {
	list := at(p, "urls")
	if len(f.URLs) == 0 && !c.wrong[list] {
		c.fault(list, "needs at least one server")
	}
	c.distinct(list, f.URLs)
	s := Store{Creds: c.creds(at(p, "creds"), f.Creds), Replicas: f.Replicas}
	for i, address := range f.URLs {
		s.URLs = append(s.URLs, c.natsURL(index(list, i), address))
	}
	if f.Replicas < 1 || f.Replicas > 5 { // nats.go, jetstream.KeyValueConfig: "Defaults to 1, maximum is 5."
		c.fault(at(p, "replicas"), "must be 1 to 5, got %d", f.Replicas)
	}
	return s
}

func (c *compiler) natsURL(p, s string) string {
	form := urlForm{[]string{"nats", "tls"}, "nats://n1.example.com:4222 or tls://n1.example.com:4222", ": use creds"}
	u := c.plainURL(p, s, form)
	switch {
	case u == nil:
		return ""
	case u.Path != "":
		c.fault(p, "must have no path")
	}
	return u.String()
}

// creds is the path of a file. Nothing of a refused one is repeated, and a word without a slash is refused: it may be
// the credential itself.
func (c *compiler) creds(p, s string) string {
	if !c.has(p) || !c.required(p, s) {
		return ""
	}
	path, isFile := strings.CutPrefix(s, "file:")
	if path == "" || strings.ContainsAny(path, "\x00\r\n") || !isFile && !strings.Contains(path, "/") || strings.HasPrefix(s, "env:") {
		c.fault(p, "expected file:PATH (credentials themselves do not belong in this file)")
	}
	return path
}

func (c *compiler) recovery() {
	f := &c.f.Recovery
	c.share("recovery.retry_budget", f.RetryBudget)
	c.share("recovery.jitter", f.Jitter)
	c.positive("recovery.probe_tokens", f.ProbeTokens)
	c.out.Recovery = Recovery{
		Floor:       float64(f.Floor),
		RetryBudget: f.RetryBudget,
		Rate:        float64(f.Rate),
		Jitter:      f.Jitter,
		ProbeTokens: f.ProbeTokens,
	}
}
