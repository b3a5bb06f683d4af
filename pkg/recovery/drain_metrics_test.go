package recovery

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"understudy/pkg/degrade/queue"
	"understudy/pkg/store"
)

func TestAQueueIsLookedAtOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards looks while some are taken
		looks := map[string]int{}
		chains := []string{"down", "empty", "full"}
		c := NewQueueCollector(t.Context(), func() []string { return chains }, func(ctx context.Context, chain string) (queue.Stats, error) {
			mu.Lock()
			looks[chain]++
			mu.Unlock()
			switch chain {
			case "down":
				return queue.Stats{}, store.ErrDown
			case "full":
				return queue.Stats{Waiting: 7, Running: 2, Oldest: time.Now().Add(-90 * time.Second)}, nil
			}
			return queue.Stats{}, nil
		})
		reg := prometheus.NewPedanticRegistry()
		reg.MustRegister(c)
		want := `# HELP understudy_queue_jobs Queued requests of a chain that are not finished: queued, or running.
# TYPE understudy_queue_jobs gauge
understudy_queue_jobs{chain="empty",state="queued"} 0
understudy_queue_jobs{chain="empty",state="running"} 0
understudy_queue_jobs{chain="full",state="queued"} 7
understudy_queue_jobs{chain="full",state="running"} 2
# HELP understudy_queue_oldest_seconds Age of a chain's oldest queued request that is not finished; 0 when there is none.
# TYPE understudy_queue_oldest_seconds gauge
understudy_queue_oldest_seconds{chain="empty"} 0
understudy_queue_oldest_seconds{chain="full"} 90
`
		for range 5 {
			if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "understudy_queue_jobs"); err != nil {
				t.Error(err)
			}
		}
		if looks["full"] != 1 || looks["down"] != 1 {
			t.Errorf("looks %v in a moment, want one a chain", looks)
		}
		time.Sleep(time.Second)
		chains = []string{"full"}
		if _, err := reg.Gather(); err != nil || looks["full"] != 2 || looks["down"] != 1 || len(c.looks) != 1 {
			t.Errorf("looks %v, %v, want a new one of the chain that is left", looks, err)
		}
		if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
			t.Errorf("GatherAndLint = %v, %v, want none", problems, err)
		}
	})
}
