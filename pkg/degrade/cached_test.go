package degrade

import (
	"log/slog"
	"testing"

	"understudy/pkg/config"
)

func TestLargeRequestsDoNotPileUpBeforeASlowCache(t *testing.T) {
	l := New(nil, nil, slog.New(slog.DiscardHandler))
	body := make([]byte, 16<<20)
	for range keepBacklog {
		l.Keep(&Ask{Chain: &config.Chain{}, Body: body}, Good{Pieces: [][]byte{body[:1<<20]}})
	}
	if got := len(l.good); got != 3 {
		t.Errorf("answers that wait = %d, of 17 MiB with their requests; want the 3 that 64 MiB have room for", got)
	}
}
