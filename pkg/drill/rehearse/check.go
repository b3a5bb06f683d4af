package rehearse

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"understudy/pkg/classify"
)

// compare tells all in which an answer is not as promised.
func (p promise) compare(a *answer) []string {
	if a.status == 0 {
		return []string{fmt.Sprintf("no answer began within %s: %v", p.begins, a.err)}
	}
	var all []string
	if p.end == honest && a.status >= 400 && a.fault != "" { // it was found out before the headers had left
		return nil
	}
	differs := func(what, got, want string) {
		if got != want {
			all = append(all, fmt.Sprintf("%s is %s, not %s", what, or(got, "missing"), or(want, "left out")))
		}
	}
	if p.status > 0 {
		differs("the status", strconv.Itoa(a.status), strconv.Itoa(p.status))
	} else if a.status < 400 {
		all = append(all, fmt.Sprintf("the status is %d, which tells of no failure", a.status))
	}
	if p.rung != nobody {
		differs("x-llm-rung", a.header.Get("x-llm-rung"), strconv.Itoa(p.rung))
		if got := a.header.Get("x-llm-target"); !slices.Contains(p.targets, got) {
			differs("x-llm-target", got, strings.Join(p.targets, " or "))
		}
		if got := a.header.Get("x-llm-fallback-reason"); got != "" || !p.silent {
			differs("x-llm-fallback-reason", got, p.reason)
		}
	}
	if p.attempts > 0 {
		differs("x-llm-attempts", a.header.Get("x-llm-attempts"), strconv.Itoa(p.attempts))
	}
	if got := a.header.Get("x-llm-degraded"); p.mode == "" || !strings.HasPrefix(got, p.mode) {
		differs("x-llm-degraded", got, p.mode)
	}
	return append(append(all, p.misends(a)...), p.misspeaks(a)...)
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// misends tells how an answer's end is not as promised.
func (p promise) misends(a *answer) []string {
	inBand := a.err == nil && a.fault != "" && a.verdict.Class != classify.Truncated
	ok := true
	switch p.end {
	case whole:
		ok = a.err == nil && a.verdict.Class == classify.OK && a.verdict.Complete
	case refused:
		ok = a.err == nil && a.verdict.Class == classify.Refusal && a.verdict.Complete
	case failure:
		ok = a.err == nil && a.status >= 400 && a.fault != ""
	case told:
		ok = inBand && a.text != ""
	case honest:
		ok = inBand || a.err != nil
	}
	var all []string
	switch {
	case !ok && p.end == honest:
		all = append(all, fmt.Sprintf("it ends cleanly, read as %s", a.verdict.Class))
	case !ok:
		all = append(all, fmt.Sprintf("it is not %s, but read as %s%s", p.end, a.verdict.Class, aborted(a.err)))
	}
	if a.flat && (p.end == whole || p.end == refused) {
		all = append(all, "it is not streamed, as was asked, but "+or(a.header.Get("content-type"), "of no type"))
	}
	if p.ends > 0 && a.ends > p.ends {
		all = append(all, fmt.Sprintf("it was not over after %s, but %s", p.ends, a.ends))
	}
	return all
}

func aborted(err error) string {
	if err != nil {
		return " (the transfer was aborted)"
	}
	return ""
}

// misspeaks tells whether an answer's text is not as promised. A queued request's has its job's id at its end.
func (p promise) misspeaks(a *answer) []string {
	want, got := p.text, a.text
	if p.end == failure {
		got = a.fault
	}
	if _, job, ok := strings.Cut(a.header.Get("x-llm-degraded"), "queue; job="); ok && strings.HasPrefix(p.mode, "queue") {
		want += " Job: " + job
	}
	if p.text == "" || got == want {
		return nil
	}
	return []string{fmt.Sprintf("it says %s, not %s", quoted(got), quoted(want))}
}

// foreign says that an answer has nothing of the service.
func foreign(a *answer) bool {
	for name := range a.header {
		if strings.HasPrefix(name, "X-Llm-") {
			return false
		}
	}
	return true
}

// hint is what an operator may do about an answer that is not as promised.
func (s *scene) hint(a *answer) string {
	switch got := a.header.Get("x-llm-fallback-reason"); {
	case errors.Is(a.err, errLate):
		return "is the deadline of the configuration in use longer?"
	case a.status == 0:
		return "does the gateway run, and is this its address?"
	case strings.Contains(a.fault, "x-llm-internal is not for clients"):
		return "the gateway does not take this admin listener's tokens: do both belong to one installation?"
	case strings.Contains(a.fault, "what x-llm-internal names"):
		return "the configuration in use does not have this chain as the file has it: load the file"
	case strings.HasSuffix(a.fault, "is not tried"), strings.HasSuffix(a.fault, "the next one is tried"):
		return "Envoy's front did not ask again: its route has no retry policy, or num_retries is too small; extproc check --envoy tells which"
	case a.status >= 500 && a.header.Get("x-llm-attempts") == "" && a.fault != "":
		return "Envoy answered by itself: its configuration may be older than the file; write it again with extproc envoy, and look at it with extproc check --envoy"
	case got != "" && got != s.promise.reason && s.promise.rung != nobody:
		return s.blame(got)
	case foreign(a) && a.status == http.StatusNotFound:
		return "nobody serves this path: Envoy's configuration may be older than the file, or what stands before it does not pass it on"
	case foreign(a) && a.status < 500:
		return "what stands before the service has answered: does the gateway need a credential (--header), or is it another?"
	case a.status == http.StatusUnauthorized, a.status == http.StatusForbidden:
		return s.blame("auth")
	case a.status == http.StatusNotFound:
		return s.blame("invalid")
	}
	return "does the configuration in use say the same as the file?"
}

// blame is what may be wrong with the target that should have answered, and came to class.
func (s *scene) blame(class string) string {
	target := strings.Join(s.promise.targets, ", ")
	provider := strings.Join(s.providers, ", ")
	switch class {
	case "auth":
		return fmt.Sprintf("a provider refuses its credential: check providers.%s.auth", provider)
	case "quota":
		return fmt.Sprintf("an account has no money left: look at that of %s", provider)
	case "invalid":
		return fmt.Sprintf("a provider does not know what it is asked for: check targets.%s.model and providers.%s.endpoint", target, provider)
	case "malformed", "truncated":
		return fmt.Sprintf("a provider answers in another dialect: check providers.%s.api and endpoint", provider)
	case "transport":
		return fmt.Sprintf("a connection failed: check providers.%s.endpoint and that Envoy has its cluster; where every fault comes to this, Envoy lacks the cluster understudy-drill, or does not reach drill.listen", provider)
	case "timeout":
		return fmt.Sprintf("a provider does not answer in time: is %s down?", provider)
	}
	return fmt.Sprintf("a target came to %s: is %s down?", class, target)
}
