package drill

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"understudy/pkg/config"
)

// Longest is the most that a plan may last from its start.
const Longest = time.Hour

// Any stands for all targets of the chain that a plan does not name.
const Any = "*"

// Plan says which attempts of a chain meet which faults. It is a value; nobody changes one that is in use.
type Plan struct {
	ID     string            `json:"id"`
	Chain  string            `json:"chain"`
	Faults map[string]string `json:"faults"` // target or Any → Fault.Name; "" is none
	Until  time.Time         `json:"until"`  // from then on it means nothing
	// Lasts is how long it was to last from its beginning: whoever hears of it lets it last no longer, whatever the clocks.
	Lasts time.Duration `json:"lasts,omitempty"`

	// Share is the part of the chain's traffic that a plan for clients' requests is for, 0 to 1; 0: it is for the requests
	// that carry it.
	Share float64 `json:"share,omitempty"`
	// MaxErrors ends a plan for clients' requests when a larger part of the chain's exchanges fails, 0 to 1.
	MaxErrors float64 `json:"max_errors,omitempty"`
}

// Fault is what an attempt at target meets, streamed or not, "" if it goes its ordinary way.
func (p *Plan) Fault(target string, streamed bool, now time.Time) string {
	name, ok := p.Faults[target]
	if !ok {
		name = p.Faults[Any]
	}
	f, known := Named(name)
	if !known || !now.Before(p.Until) || !f.strikes(streamed, now) {
		return ""
	}
	return name
}

// Heard is the plan as one goes by it who hears of it now: the clock of whoever made it may be ahead.
func (p *Plan) Heard(now time.Time) *Plan {
	most := p.Lasts
	if most <= 0 || most > Longest {
		most = Longest
	}
	if end := now.Add(most); end.Before(p.Until) {
		bound := *p
		bound.Until = end.UTC()
		return &bound
	}
	return p
}

// Shared says whether clients of a chain may meet faults. A plan that the store has may be older than the configuration.
func Shared(c *config.Config, ch *config.Chain) bool {
	return ch != nil && c.Drill.Listen != (config.Address{}) && ch.Commit != config.CommitHeaders && !ch.Observe
}

// Check tells every fault of a plan for c that is to begin now.
func (p *Plan) Check(c *config.Config, now time.Time) error {
	if c.Drill.Listen == (config.Address{}) {
		return errors.New("this configuration has no drill.listen: without it there is nowhere to play faults")
	}
	ch := c.ChainNamed(p.Chain)
	if ch == nil {
		return fmt.Errorf("chain: no chain is named %q", p.Chain)
	}
	var errs []error
	if p.Share > 0 && ch.Commit == config.CommitHeaders {
		errs = append(errs, fmt.Errorf("share: %s lets answers pass at once (commit: headers): its clients would see the faults", p.Chain))
	}
	if ch.Observe {
		errs = append(errs, fmt.Errorf("chain: %s only observes; there is no failover to rehearse", p.Chain))
	}
	if len(p.Faults) == 0 {
		errs = append(errs, errors.New("faults: say at least which fault one target meets, as {\"TARGET\": \"FAULT\"}"))
	}
	for _, target := range slices.Sorted(maps.Keys(p.Faults)) {
		if target != Any && !ch.Has(target) {
			errs = append(errs, fmt.Errorf("faults: chain %s has no target %q", p.Chain, target))
		}
		errs = append(errs, p.checkFault(ch, target))
	}
	if p.Until.Sub(now) > Longest || !now.Before(p.Until) {
		errs = append(errs, fmt.Errorf("until: a drill ends within %s of its start", Longest))
	}
	if !(p.Share >= 0 && p.Share <= 1) || !(p.MaxErrors >= 0 && p.MaxErrors <= 1) {
		errs = append(errs, errors.New("share, max_errors: must be between 0 and 1"))
	}
	return errors.Join(errs...)
}

func (p *Plan) checkFault(ch *config.Chain, target string) error {
	name := p.Faults[target]
	f, known := Named(name)
	switch {
	case name != "" && !known:
		return fmt.Errorf("faults: %s: no fault is named %q; there are %s", target, name, strings.Join(names(), ", "))
	case p.Share > 0 && known && !f.Hidden:
		return fmt.Errorf("faults: %s: %s is for marked requests only: a client would take what it plays for a model's answer", target, name)
	case p.Share > 0 && known && f.outlasts(ch):
		return fmt.Errorf("faults: %s: %s is for marked requests only: %s sends what it holds after hold.time, which is before deadlines.first_content", target, name, ch.Name)
	}
	return nil
}

// outlasts says that the fault still goes on when its chain's answer, held back for long enough, leaves for the client.
func (f Fault) outlasts(ch *config.Chain) bool {
	return f.Slow && f.Status != 0 && ch.Commit == config.CommitFirstContent && ch.Hold.Time < ch.Deadlines.FirstContent
}

func names() []string {
	var all []string
	for _, f := range Faults() {
		all = append(all, f.Name)
	}
	return all
}

// Name is the plan as the name of a token.Drill, which a marked request carries.
func (p *Plan) Name() (string, error) {
	js, err := json.Marshal(p)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(js), nil
}

// OfName undoes Name. The token around it has been checked, so it is ours.
func OfName(name string) (*Plan, error) {
	js, err := base64.RawURLEncoding.DecodeString(name)
	if err != nil {
		return nil, err
	}
	p := &Plan{}
	return p, json.Unmarshal(js, p)
}
