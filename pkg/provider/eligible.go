package provider

import (
	"errors"
	"fmt"

	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// ErrIneligible says that an exchange cannot go to a target; its text says why, and may be shown.
var ErrIneligible = errors.New("not for this exchange")

// Eligible says why a request cannot go to t of a chain whose first target is first, nil if it can. A request that is
// bound is so to home, the provider where what it names was made: that of the first target when it is "".
func Eligible(t, first *config.Target, home string, q *Request) error {
	if t == first && home == "" && len(t.Limits.Lacks) == 0 && t.Limits.MaxOutput == 0 || q.Broken {
		return nil
	}
	if home == "" {
		home = first.Provider.Name
	}
	if err := bound(t, home, q); err != nil {
		return err
	}
	for _, check := range []func(t, first *config.Target, q *Request) error{lacks, geography, budget, turn} {
		if err := check(t, first, q); err != nil {
			return err
		}
	}
	return nil
}

func lacks(t, _ *config.Target, q *Request) error {
	for _, name := range t.Limits.Lacks {
		if q.survey().needs[name] {
			return fmt.Errorf("%w: the request needs %s, which target %s lacks", ErrIneligible, name, t.Name)
		}
	}
	return nil
}

func bound(t *config.Target, home string, q *Request) error {
	if t.Provider.Name == home || len(q.Bound()) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s lives at provider %s", ErrIneligible, q.Bound()[0].Field, home)
}

// geography refuses what only Anthropic's own API keeps to: elsewhere the region of the endpoint decides.
func geography(t, first *config.Target, q *Request) error {
	native := t.Provider.Platform == "" || t.Provider.Platform == config.Native
	if native || t == first || q.route.api != classify.AnthropicMessages || !present(q.root().get("inference_geo")) {
		return nil
	}
	return fmt.Errorf("%w: inference_geo is not known to platform %s", ErrIneligible, t.Provider.Platform)
}

// budget refuses a thinking budget beyond what the target may answer: "budget_tokens must be less than max_tokens".
func budget(t, _ *config.Target, q *Request) error {
	most := t.Limits.MaxOutput
	if most == 0 || q.route.api != classify.AnthropicMessages {
		return nil
	}
	tokens := q.root().get("thinking", "budget_tokens")
	if !tokens.isNumber() || tokens.num() < float64(most) {
		return nil
	}
	return fmt.Errorf("%w: thinking.budget_tokens does not fit into the %d tokens that target %s may answer", ErrIneligible, most, t.Name)
}

// turn refuses to take the thinking out of the turn that is going on.
func turn(t, first *config.Target, q *Request) error {
	if t.Family == first.Family || q.route.api != classify.AnthropicMessages || !cutTurn(q.root()) {
		return nil
	}
	return fmt.Errorf("%w: the turn that calls tools has thinking of %s in it", ErrIneligible, first.Family)
}
