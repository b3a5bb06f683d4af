package processor

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"understudy/pkg/chain/budget"
	"understudy/pkg/classify"
)

// arrived is a reply as Envoy reads it.
func arrived(t testing.TB, r *extproc.ProcessingResponse) *extproc.ProcessingResponse {
	t.Helper()
	wire, err := proto.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	got := &extproc.ProcessingResponse{}
	if err := proto.Unmarshal(wire, got); err != nil {
		t.Fatalf("Envoy cannot read the reply: %v", err)
	}
	return got
}

// kept is the dynamic metadata that Envoy keeps of m.
func kept(t testing.TB, m metadata) *structpb.Struct {
	t.Helper()
	r := goOn()
	m.in(r)
	return arrived(t, r).GetDynamicMetadata()
}

func TestEnvoyReadsTheMetadata(t *testing.T) {
	long := strings.Repeat("x", 300) // whose size takes two bytes
	v := classify.Verdict{Class: classify.OK, Usage: classify.Usage{Input: 1, Output: 2, CacheRead: 3, CacheWrite: 4, Reasoning: 5}}
	for name, row := range map[string]struct {
		m    metadata
		want map[string]any
	}{
		"of nothing":  {nil, map[string]any{}},
		"an identity": {identityOf("r", "x1", 3, ""), map[string]any{"exchange": "x1", "attempt": "3 r", "target": ""}},
		"a usage": {usageOf("a/"+long, 2, v, budget.Bill{Amount: 1_500_000}), map[string]any{
			"target": "a/" + long, "rung": 2, "class": "ok", "cost_usd": budget.Money(1_500_000).USD(), "input_tokens": 1, "output_tokens": 2,
			"cache_read_tokens": 3, "cache_write_tokens": 4, "reasoning_tokens": 5, "total_tokens": 10}},
	} {
		want, err := structpb.NewStruct(map[string]any{"understudy": row.want})
		if err != nil {
			t.Fatal(err)
		}
		if got := kept(t, row.m); !proto.Equal(got, want) {
			t.Errorf("metadata %s = %v, want %v", name, got, want)
		}
	}
}

func TestMetadataOfOneExchangeIsNotToldWithTheNextsAnswer(t *testing.T) {
	p := benchProcessor(t)
	for i, messages := range []int{1, 2, 3, 2, 1, 3} { // whichever message is used again, and for whichever part
		target := "a/" + strconv.Itoa(i)
		var told []string
		stream := &fakeStream{ctx: t.Context(), out: make(chan string, messages), each: func(m *extproc.ProcessingResponse) {
			told = append(told, arrived(t, m).GetDynamicMetadata().GetFields()["understudy"].GetStructValue().GetFields()["target"].GetStringValue())
		}}
		a := newAttempt(t.Context(), p)
		for n := range messages {
			a.sendBody([]byte("some"), n == messages-1)
		}
		a.usage = usageOf(target, 0, classify.Verdict{Class: classify.OK}, budget.Bill{})
		if err := a.flush(stream); err != nil {
			t.Fatal(err)
		}
		want := make([]string, messages)
		want[messages-1] = target
		if !slices.Equal(told, want) {
			t.Errorf("targets told with the messages of %s = %q, want %q", target, told, want)
		}
	}
}
