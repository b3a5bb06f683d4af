package processor

import (
	"strings"
	"testing"
	"time"

	"understudy/pkg/chain/budget"
	"understudy/pkg/token"
)

func TestAJobIsPaidForByItsTenantsBudget(t *testing.T) {
	yaml := "tenant: {header: x-team, trusted_header: true}\n" + strings.Replace(moneyYAML, "%s", "budget: {usd: 1, window: 1h, per: tenant}", 1)
	paidYAML(t, yaml, func(b *bench, _ *bucket) {
		b.p.SetKey(ourKey)
		c, rest := b.keyed("json", "x1", "k", 1, "x-llm-internal", token.Sign(ourKey, token.Job, token.JobName("chat", "team; one"), time.Now()))
		c.tell(rest...)
		contains(t, "told", c.heard(), "x-llm-target=a/sonnet")
		c.hangUp()
		terms := b.p.Book().Config.ChainNamed("chat").Budget
		for tenant, some := range map[string]bool{"team; one": true, "": false} {
			got := b.p.money.Meter.Spent(budget.Key{Chain: "chat", Tenant: tenant}, terms)
			if (got > 0) != some {
				t.Errorf("tenant %q has spent %s, want something: %t", tenant, got, some)
			}
		}
	})
}
