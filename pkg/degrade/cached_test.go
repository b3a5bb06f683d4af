package degrade

import (
	"log/slog"
	"testing"

	"understudy/pkg/classify"
	"understudy/pkg/config"
	"understudy/pkg/degrade/cache"
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

func TestWhatDoesNotStandInTheBodyIsAskedToo(t *testing.T) {
	ask := func(path string, headers map[string]string) *Ask {
		return &Ask{Chain: &config.Chain{Name: "c"}, API: classify.OpenAIResponses, Endpoint: "/v1/responses", Path: path,
			Headers: headers, Body: []byte(`{"input":"hi"}`)}
	}
	rows := []struct {
		name string
		a, b *Ask
		same bool
	}{
		{"a content type makes another question", ask("/v1/responses", nil), ask("/v1/responses", map[string]string{"content-type": "application/json"}), true},
		{"a base path makes another question", ask("/v1/responses?x=1", nil), ask("/team/v1/responses?x=1", nil), true},
		{"a beta is not seen", ask("/v1/responses", nil), ask("/v1/responses", map[string]string{"openai-beta": "agents=v2"}), false},
		{"a version in the query is not seen", ask("/v1/responses?api-version=1", nil), ask("/v1/responses?api-version=2", nil), false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			a, errA := cache.KeyOf(row.a.request(), false)
			b, errB := cache.KeyOf(row.b.request(), false)
			if (a == b) != row.same || errA != nil || errB != nil {
				t.Errorf("KeyOf(%+v) == KeyOf(%+v) is %v, %v, %v; want %v", row.a.request(), row.b.request(), a == b, errA, errB, row.same)
			}
		})
	}
}
