package degrade

import (
	"slices"
	"strings"

	"understudy/pkg/classify"
	"understudy/pkg/config"
)

// Ladder gives the degraded answer of a chain for which nothing answers, if its owner chose a mode that the
// caller accepts too. accepts is the caller's x-llm-degrade; empty means whatever the chain offers.
func Ladder(c *config.Chain, api classify.API, accepts string) (Answer, bool) {
	for _, mode := range c.Degrade {
		if mode == "off" && accepted(mode, accepts) {
			return off(c, api), true
		}
	}
	return Answer{}, false
}

func off(c *config.Chain, api classify.API) Answer {
	a := Error(api, c.Off.Status, "unavailable", c.Off.Message)
	a.Headers = map[string]string{"x-llm-degraded": "off"}
	return a
}

func accepted(mode, accepts string) bool {
	if strings.TrimSpace(accepts) == "" {
		return true
	}
	modes := strings.Split(accepts, ",")
	return slices.ContainsFunc(modes, func(m string) bool { return strings.TrimSpace(m) == mode })
}
