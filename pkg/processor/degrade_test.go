package processor

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"understudy/pkg/config"
	"understudy/pkg/degrade"
	"understudy/pkg/degrade/queue"
	"understudy/pkg/store"
)

// fullStore has no room for a record.
type fullStore struct{ queue.Records }

func (fullStore) Create(context.Context, string, []byte, time.Duration) (uint64, error) {
	return 0, store.ErrFull
}

func TestAQueueWithoutRoomIsToldInsteadOfTheProvidersFailure(t *testing.T) {
	in(t, `degrade: ["queue"]`, func(b *bench) {
		b.p.Degrade(degrade.New(nil, &queue.Queue{
			Parts: queue.Parts{Records: fullStore{}}, Config: func() *config.Config { return b.p.Book().Config },
		}, slog.New(slog.DiscardHandler)), nil)
		c, rest := b.attempt("529", "x1", 2)
		c.tell(rest...)
		got := c.heard()
		contains(t, "last answer", got, "immediate 503", "the queue has no room for another request")
		if strings.Contains(got, "x-llm-degraded") {
			t.Errorf("last answer = %s, want no label of a degraded mode", got)
		}
		c.hangUp()
	})
}
