package rehearse

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"understudy/pkg/classify"
	"understudy/pkg/config"
	"understudy/pkg/drill"
)

// scene is one marked request, and what the config promises of it.
type scene struct {
	name      string
	where     string // path in the config file
	call      call
	faults    map[string]string
	accept    string // x-llm-degrade
	promise   promise
	needs     []string // targets that must be fit for it
	providers []string // of the targets that answer
	skip      string   // why it cannot be played
	overtaken *promise // what comes where a reset overtakes the content before it, which TCP allows; nil: it cannot
}

// policyOf reads a chain.
func policyOf(cfg *config.Config, ch *config.Chain) policy {
	return policy{ch, len(cfg.Envoy.Services)}
}

// scenes are all of a chain that one request shows, for one way to call it: the slow ones first.
func (p policy) scenes(c call) []scene {
	all := p.rungScenes(c)
	for _, f := range drill.Faults() {
		if f.Name != "flapping" && (c.stream || !f.Streamed) {
			all = append(all, p.faultScene(f, c))
		}
	}
	all = append(all, p.endScenes(c)...)
	for i := range all {
		p.fill(&all[i], c)
	}
	slices.SortStableFunc(all, func(a, b scene) int { return int(p.slow(&b) - p.slow(&a)) })
	return all
}

// slow is how long a scene waits for deadlines.
func (p policy) slow(s *scene) time.Duration {
	for _, name := range s.faults { // which are all the same
		if f, ok := drill.Named(name); ok {
			return p.waits(f, s.call.stream)
		}
	}
	return 0
}

// fill adds what follows from the rest.
func (p policy) fill(s *scene, c call) {
	if s.call.path == "" {
		s.call = c
	}
	s.call.prompt = usual
	last := len(p.Rungs)
	if s.promise.rung != nobody {
		last = s.promise.rung + 1
		for _, m := range p.Rungs[s.promise.rung].All() {
			if name := m.Target.Provider.Name; !slices.Contains(s.providers, name) {
				s.providers = append(s.providers, name)
			}
		}
	}
	s.needs = p.names(0, last)
}

// usual is what a drill asks: as little as it can.
const usual = "This is a drill. Answer with the one word: ready."

func (p policy) at(key string) string { return "chains." + p.Name + "." + key }

// rungScenes let each target answer when all before it fail.
func (p policy) rungScenes(c call) []scene {
	var all []scene
	for i, r := range p.Rungs {
		for _, m := range r.All() {
			all = append(all, p.rungScene(i, m.Target.Name, c))
		}
	}
	return all
}

func (p policy) rungScene(rung int, target string, c call) scene {
	f := p.failing()
	s := scene{
		name: fmt.Sprintf("rung %d serves: %s", rung, target), where: fmt.Sprintf("%s[%d]", p.at("targets"), rung),
		faults: p.all(rung, f.Name), promise: p.serves(rung, reason(f), c.stream),
	}
	if p.down(rung) {
		s.where, s.accept = p.at("downshift_from"), "downshift"
	}
	others := slices.DeleteFunc(p.rung(rung), func(name string) bool { return name == target })
	if len(others) > 0 { // by lot they come before it, or not
		for _, name := range others {
			s.faults[name] = f.Name
		}
		s.promise.targets, s.promise.attempts, s.promise.silent = []string{target}, 0, true
		s.promise.reason = reason(f)
	}
	return s
}

// faultScene lets the primary meet a fault.
func (p policy) faultScene(f drill.Fault, c call) scene {
	s := scene{
		name: fmt.Sprintf("the primary meets %s (%s)", f.Name, f.Means), where: p.policyOn(f), faults: p.all(1, f.Name), call: c,
	}
	s.promise, s.accept = p.meets(f, c.stream)
	if next := p.next(f); next > 0 && f.Name == "cut" && p.Commit == config.CommitFirstContent {
		w := p.serves(next, reason(f), c.stream)
		w.silent, s.overtaken = true, &w
	}
	switch silence := p.waits(f, c.stream); {
	case silence > 0 && silence+time.Second > p.Deadlines.Total:
		s.skip = fmt.Sprintf("%s.total (%s) is over before another rung could be asked", p.at("deadlines"), p.Deadlines.Total)
	case f.Name == "tier_downgrade":
		s.skip = p.untiered(c)
		s.call.tier = map[classify.API]string{classify.AnthropicMessages: "standard_only"}[c.api]
		if s.call.tier == "" {
			s.call.tier = "default"
		}
		if !p.Rungs[0].Target.Provider.TierCheck { // nobody looks
			s.promise = p.serves(0, "", c.stream)
		}
	}
	return s
}

// untiered says why a lower tier cannot be played, "" where it can.
func (p policy) untiered(c call) string {
	for _, m := range p.Rungs[0].All() {
		switch t := m.Target; {
		case c.api == classify.Gemini || t.Provider.Platform != config.Native:
			return fmt.Sprintf("how %s on %s tells tiers is not played", t.Provider.API, t.Provider.Platform)
		case config.Discounted(t.Tier) || t.Speed != "":
			return fmt.Sprintf("%s asks for a tier of its own, than which none lower is played", t.Name)
		}
	}
	return ""
}

// policyOn is where the config says what becomes of a fault.
func (p policy) policyOn(f drill.Fault) string {
	switch {
	case f.Name == "tier_downgrade", f.Class == classify.Refusal, f.Class == classify.RateLimited:
		return p.at("on." + strings.ReplaceAll(reason(f), " ", "_"))
	case f.Slow && late(f):
		return p.at("deadlines.idle")
	case f.Slow && f.Streamed:
		return p.at("deadlines.first_content")
	case f.Slow:
		return p.at("deadlines")
	case late(f):
		return p.at("commit")
	}
	return p.at("targets")
}

// endScenes let every target fail: with no degraded mode, and with the one that is a sentence.
func (p policy) endScenes(c call) []scene {
	f := p.failing()
	everyone := p.all(len(p.Rungs), f.Name)
	all := []scene{{
		name: "all targets fail, and the caller accepts no degraded mode", where: p.at("targets"),
		faults: everyone, accept: "none", promise: p.spent(0),
	}}
	if slices.Contains(p.Degrade, "off") {
		all = append(all, scene{
			name: "all targets fail, and the mode off answers", where: p.at("off"), faults: everyone, accept: "off", promise: p.off(),
		})
	}
	return all
}
