package degrade

import (
	"strings"
	"testing"

	"understudy/pkg/classify"
	"understudy/pkg/config"
)

func TestWhichDegradedModeAnswers(t *testing.T) {
	off := config.Off{Status: 503, Message: "AI assist is temporarily unavailable."}
	rows := []struct {
		name    string
		offers  []string
		accepts string
		want    bool
	}{
		{"a chain's own off is not used", []string{"off"}, "", true},
		{"a chain without modes degrades", nil, "", false},
		{"a caller gets a mode that the chain does not offer", nil, "off", false},
		{"a caller's space is a mode", []string{"off"}, "  ", true},
		{"a caller that names off is refused it", []string{"off"}, "off", true},
		{"a caller's list is not split", []string{"off"}, "cache, off ,queue", true},
		{"a caller that accepts only others gets off", []string{"off"}, "cache,queue", false},
		{"a caller that accepts nothing known gets off", []string{"off"}, "none", false},
		{"a caller who writes OFF is refused it", []string{"off"}, "OFF", true},
		{"half a name is a name", []string{"off"}, "of,offf", false},
		{"an empty list accepts everything", []string{"off"}, ",", false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			for _, api := range apis {
				q := &Ask{Chain: &config.Chain{Degrade: row.offers, Off: off}, API: api, Accepts: row.accepts}
				a, mode, err := new(Ladder).Answer(t.Context(), q, row.offers)
				ok := mode == "off"
				if ok != row.want || ok != (a.Status != 0) || err != nil {
					t.Fatalf("Answer(%v, %q) = %d %q, %v, want off: %v", row.offers, row.accepts, a.Status, mode, err, row.want)
				}
				if ok && (a.Status != 503 || a.Headers["x-llm-degraded"] != "off" || !strings.Contains(string(a.Body), off.Message)) {
					t.Errorf("Answer(%v, %q) = %d %v %s, want the configured off", row.offers, row.accepts, a.Status, a.Headers, a.Body)
				}
			}
		})
	}
}

func TestOffAsAnAnswerIsOneOfTheOfficialSDKs(t *testing.T) {
	c := &config.Chain{Off: config.Off{Status: 200, Message: "closed", Answer: true}}
	for _, api := range []classify.API{classify.AnthropicMessages, classify.OpenAIChat, classify.OpenAIResponses} {
		a := Off(&Ask{Chain: c, API: api, Exchange: "x"})
		if err := newSDKs(t, a.Status, a.Headers["content-type"], a.Body).ask(api); err != nil || !strings.Contains(string(a.Body), "closed") {
			t.Errorf("the SDK reads %v of %s, want the message", err, a.Body)
		}
		a = Off(&Ask{Chain: c, API: api, Exchange: "x", Stream: true})
		if n, err := newSDKs(t, a.Status, a.Headers["content-type"], a.Body).listen(api); err != nil || n == 0 || a.Headers["x-llm-degraded"] != "off" {
			t.Errorf("the SDK reads %d events and %v of %s, want a labelled stream", n, err, a.Body)
		}
	}
}

func TestOffIsAnErrorOfTheOfficialSDKs(t *testing.T) {
	c := &config.Chain{Degrade: []string{"off"}, Off: config.Off{Status: 418, Message: "closed"}}
	for _, api := range []classify.API{classify.AnthropicMessages, classify.OpenAIChat, classify.OpenAIResponses} {
		a := Off(&Ask{Chain: c, API: api})
		if err := newSDKs(t, a.Status, "application/json", a.Body).ask(api); err == nil || !strings.Contains(err.Error(), "418") {
			t.Errorf("the SDK reads %v of %s, want an error with the configured status", err, a.Body)
		}
	}
}
