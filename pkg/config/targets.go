package config

func (c *compiler) targets() {
	c.out.Targets = map[string]*Target{}
	for _, name := range c.keys["targets"] {
		path := at("targets", name)
		c.name(path, name)
		c.out.Targets[name] = c.target(path, name)
	}
}

func (c *compiler) target(path, name string) *Target {
	f := c.f.Targets[name]
	t := &Target{
		Name:     name,
		Provider: c.lookupProvider(at(path, "provider"), f.Provider),
		Model:    f.Model,
		Family:   f.ModelFamily,
	}
	c.required(at(path, "model"), f.Model)
	if t.Family == "" {
		t.Family = t.Model
	}
	c.tiers(path, f, t)
	t.Limits = c.limits(at(path, "limits"), &f.Limits, t.Provider)
	t.Breaker = c.breaker(at(path, "breaker"), &f.Breaker)
	t.Probe = c.probe(path, f)
	t.Price = c.price(at(path, "price"), &f.Price, t.Provider)
	t.MaxRamp = c.maxRamp(at(path, "max_ramp"), f.MaxRamp)
	return t
}

func (c *compiler) breaker(p string, f *fileBreaker) Breaker {
	if f.Failures < 1 || f.Failures > 1000 {
		c.fault(at(p, "failures"), "must be 1 to 1000, got %d", f.Failures)
	}
	c.oneOf(at(p, "half_open"), f.HalfOpen, "request", "probe")
	c.someShare(at(at(p, "ramp"), "share"), f.Ramp.Share)
	b := Breaker{
		Failures:   f.Failures,
		Ratio:      c.ratio(at(p, "ratio"), &f.Ratio),
		OpenFor:    f.OpenFor,
		MaxOpenFor: f.MaxOpenFor,
		Probe:      f.HalfOpen == "probe",
		Ramp:       Ramp(f.Ramp),
	}
	switch first, longest := at(p, "open_for"), at(p, "max_open_for"); {
	case !c.has(longest): // a long open_for alone is no contradiction
		b.MaxOpenFor = max(b.MaxOpenFor, b.OpenFor)
	case b.MaxOpenFor < b.OpenFor && !c.wrong[first] && !c.wrong[longest]:
		c.fault(longest, "must be at least open_for (%s), got %s", b.OpenFor, b.MaxOpenFor)
	}
	return b
}

func (c *compiler) ratio(p string, f *fileRatio) Ratio {
	if !c.has(p) || c.wrong[p] {
		return Ratio{}
	}
	if share := at(p, "share"); c.present(share) {
		c.someShare(share, f.Share)
	}
	c.positive(at(p, "min_calls"), f.MinCalls)
	return Ratio(*f)
}

// probe has the defaults where it has no use: a target whose breaker does not probe.
func (c *compiler) probe(path string, f *fileTarget) Probe {
	p, halfOpen := at(path, "probe"), at(at(path, "breaker"), "half_open")
	if c.has(p) && f.Breaker.HalfOpen != "probe" && !c.wrong[halfOpen] {
		c.fault(p, "says nothing without breaker.half_open: probe")
	}
	model := f.Model
	if key := at(p, "model"); c.has(key) && c.required(key, f.Probe.Model) {
		model = f.Probe.Model
	}
	c.positive(at(p, "max_tokens"), f.Probe.MaxTokens)
	return Probe{Model: model, MaxTokens: f.Probe.MaxTokens}
}
