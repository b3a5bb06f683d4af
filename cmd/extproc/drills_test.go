package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"understudy/pkg/admin"
	"understudy/pkg/chain"
	"understudy/pkg/config"
	"understudy/pkg/drill"
	"understudy/pkg/processor"
	"understudy/pkg/token"
)

func TestATallySaysOnceThatTooManyRequestsFail(t *testing.T) {
	at := time.Unix(1_000_000, 0)
	for _, row := range []struct {
		name  string
		most  float64
		play  func(add func(second int, failed bool))
		wants int // how often it says so
	}{
		{"all is well", 0.05, func(add func(int, bool)) { times(100, func(i int) { add(0, false) }) }, 0},
		{"one of a few", 0.05, func(add func(int, bool)) { times(judgedFrom-1, func(i int) { add(0, i == 3) }) }, 0},
		{"a few that all fail", 0.05, func(add func(int, bool)) { times(2, func(i int) { add(0, true) }) }, 1},
		{"a few that all fail where many may", 0.5, func(add func(int, bool)) { times(judgedFrom/2, func(i int) { add(0, true) }) }, 0},
		{"the first failure, where none may be", 0, func(add func(int, bool)) { times(1, func(i int) { add(0, true) }) }, 1},
		{"all fail", 0.05, func(add func(int, bool)) { times(3*judgedFrom, func(i int) { add(0, true) }) }, 1},
		{"as many as may", 0.5, func(add func(int, bool)) { times(100, func(i int) { add(0, i%2 == 1) }) }, 0},
		{"one more", 0.5, func(add func(int, bool)) {
			times(100, func(i int) { add(0, i%2 == 1) })
			times(1, func(i int) { add(1, true) })
		}, 1},
		{"failures that are long over", 0.5, func(add func(int, bool)) {
			times(judgedFrom/2, func(i int) { add(0, true) })
			times(judgedFrom, func(i int) { add(judgedOver, false) })
		}, 0},
		{"a few at a time", 0.05, func(add func(int, bool)) { times(30, func(i int) { add(i/3, true) }) }, 1},
		{"seldom", 0.05, func(add func(int, bool)) { times(60, func(i int) { add(3*i, i%9 == 0) }) }, 1},
		{"seldom, and seldom failing", 0.05, func(add func(int, bool)) { times(60, func(i int) { add(3*i, i%judgedFrom == 0) }) }, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			tally, told := &tally{}, 0
			row.play(func(second int, failed bool) {
				if tally.add(at.Add(time.Duration(second)*time.Second), failed, row.most) {
					told++
				}
			})
			if told != row.wants {
				t.Errorf("told %d times, want %d", told, row.wants)
			}
		})
	}
}

func times(n int, f func(i int)) {
	for i := range n {
		f(i)
	}
}

// rehearsing is a service that plays faults.
func rehearsing(t *testing.T) *service {
	t.Helper()
	dir := folder(t)
	s := beginWith(t, dir, embedded(dir), "drill: {listen: \"unix://DIR/drill.sock\"}\n"+serviceYAML)
	t.Cleanup(s.end)
	return s
}

func TestPlansOfCallers(t *testing.T) {
	d := rehearsing(t).drills
	for _, row := range []struct {
		name   string
		marked bool
		js     string
		want   string // in the error; "" is none
	}{
		{"one for clients", false, `{"chain":"main","faults":{"a/m":"reset"},"share":0.5,"for":"5m"}`, ""},
		{"another one for clients meanwhile", false, `{"chain":"main","faults":{"a/m":"hang"},"share":1}`, "stop that first"},
		{"one for marked requests", true, `{"chain":"main","faults":{"a/m":"cut"}}`, ""},
		{"no JSON", false, `chain: main`, "this is no plan"},
		{"no time", false, `{"chain":"main","faults":{"a/m":"reset"},"share":1,"for":"soon"}`, "for: "},
		{"for ever", false, `{"chain":"main","faults":{"a/m":"reset"},"share":1,"for":"25h"}`, "within 1h0m0s"},
		{"no share of clients", false, `{"chain":"main","faults":{"a/m":"reset"}}`, "say which part of the traffic"},
		{"a share of marked requests", true, `{"chain":"main","faults":{"a/m":"reset"},"share":1}`, "for the requests that carry it"},
		{"a word that means nothing", false, `{"chain":"main","faults":{"a/m":"reset"},"share":0.5,"max_error":0.01}`, `unknown field "max_error"`},
		{"another chain", true, `{"chain":"man","faults":{"a/m":"reset"}}`, `no chain is named "man"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			ask := d.Begin
			if row.marked {
				ask = d.Token
			}
			_, err := ask(t.Context(), []byte(row.js))
			if (err == nil) != (row.want == "") || err != nil && (!errors.Is(err, admin.ErrRefused) || !strings.Contains(err.Error(), row.want)) {
				t.Errorf("plan %s: %v, want ErrRefused with %q", row.js, err, row.want)
			}
		})
	}
}

func TestATokenHoldsThePlanUntilItEnds(t *testing.T) {
	s := rehearsing(t)
	out, err := s.drills.Token(t.Context(), []byte(`{"chain":"main","faults":{"*":"hang"},"for":"2m"}`))
	var got struct {
		ID, Token string
		Expires   time.Time
	}
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil {
		t.Fatal(err)
	}
	purpose, name, err := token.Check(s.processor.Key(), got.Token, got.Expires.Add(-time.Second))
	if err != nil || purpose != token.Drill {
		t.Fatalf("Check() = %s, %v, want a drill's", purpose, err)
	}
	if plan, err := drill.OfName(name); err != nil || plan.ID != got.ID || plan.Chain != "main" || !plan.Until.Equal(got.Expires) {
		t.Errorf("OfName() = %+v, %v, want plan %s of main until %s", plan, err, got.ID, got.Expires)
	}
	if _, _, err := token.Check(s.processor.Key(), got.Token, got.Expires.Add(2*time.Second)); err == nil {
		t.Error("the token holds after its plan's end")
	}
}

// begun lets all requests of main meet a fault, and waits until they do.
func begun(t *testing.T, s *service, more string) *drill.Plan {
	t.Helper()
	out, err := s.drills.Begin(t.Context(), []byte(`{"chain":"main","faults":{"*":"reset"},"share":1,"for":"10m"`+more+`}`))
	plan := &drill.Plan{}
	if err == nil {
		err = json.Unmarshal(out, plan)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.soon(t, func() bool { got := s.processor.Drilling("main"); return got != nil && got.ID == plan.ID })
	return plan
}

func (s *service) soon(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("it does not come true; the service says\n%s", s.log)
		}
	}
}

func TestADrillIsStoppedOnceAndForAll(t *testing.T) {
	s := rehearsing(t)
	plan := begun(t, s, "")
	if err := s.drills.Stop(t.Context(), "another"); !errors.Is(err, admin.ErrUnknown) {
		t.Errorf("Stop(another) = %v, want ErrUnknown", err)
	}
	if s.processor.Drilling("main") == nil {
		t.Error("the stop of another drill has stopped this one")
	}
	if err := s.drills.Stop(t.Context(), plan.ID); err != nil || s.processor.Drilling("main") != nil {
		t.Errorf("Stop() = %v, then the drill runs: %v, want that it is over at once", err, s.processor.Drilling("main"))
	}
	e, err := s.drills.plans.Get(t.Context(), "main")
	kept := &drill.Plan{}
	if err == nil {
		err = json.Unmarshal(e.Value, kept)
	}
	if err != nil || kept.Until.After(time.Now()) {
		t.Errorf("the store has %+v, %v, want what tells other replicas that it is over", kept, err)
	}
}

// A drill is stopped through any replica, also one that hears of it a moment later.
func TestADrillIsStoppedWhereNobodyHasHeardOfIt(t *testing.T) {
	s := rehearsing(t)
	plan := begun(t, s, "")
	deaf := &drills{processor: s.processor, plans: s.drills.plans, log: s.drills.log, known: map[string]*drill.Plan{}}
	if err := deaf.Stop(t.Context(), "another"); !errors.Is(err, admin.ErrUnknown) {
		t.Errorf("Stop(another) = %v, want ErrUnknown", err)
	}
	if err := deaf.Stop(t.Context(), plan.ID); err != nil {
		t.Errorf("Stop() = %v, want nil", err)
	}
	s.soon(t, func() bool { p := s.drills.heard(plan.ID); return p != nil && !p.Until.After(time.Now()) })
}

// The store was away when a drill was stopped here: what it still has must not begin the drill again, neither here nor on
// other replicas.
func TestADrillThatHasEndedHereIsNotBegunAgainByTheStore(t *testing.T) {
	s := rehearsing(t)
	plan := begun(t, s, "")
	old, err := json.Marshal(plan)
	if err == nil {
		err = s.drills.Stop(t.Context(), plan.ID)
	}
	if err == nil {
		_, err = s.drills.plans.Put(t.Context(), "main", old, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.soon(t, func() bool {
		if s.processor.Drilling("main") != nil {
			t.Fatal("the drill has begun again")
		}
		e, err := s.drills.plans.Get(t.Context(), "main")
		kept := &drill.Plan{}
		return err == nil && json.Unmarshal(e.Value, kept) == nil && !kept.Until.After(time.Now())
	})
}

func TestWhatCallersSayOfErrorsHolds(t *testing.T) {
	for more, want := range map[string]float64{"": 0.05, `,"max_errors":0`: 0, `,"max_errors":0.2`: 0.2} {
		if got := begun(t, rehearsing(t), more).MaxErrors; got != want {
			t.Errorf("a plan with %q ends at %v, want %v", more, got, want)
		}
	}
}

func TestWhichExchangesOfADrillHaveFailed(t *testing.T) {
	for _, row := range []struct {
		name string
		r    processor.Record
		want bool
	}{
		{"an error", processor.Record{Outcome: "failed"}, true},
		{"a client that left while a fault hung", processor.Record{Outcome: "canceled", Drill: "D", Fault: "hang"}, true},
		{"a client that left after a fault", processor.Record{Outcome: "canceled", Drill: "D", Past: []chain.Past{{}}}, true},
		{"a client that left though nothing was played", processor.Record{Outcome: "canceled"}, false},
		{"a client that left within an answer", processor.Record{Outcome: "canceled", Drill: "D", Past: []chain.Past{{}}, Committed: time.Now()}, false},
		{"a degraded answer, which was promised", processor.Record{Outcome: "degraded", Drill: "D", Fault: "hang"}, false},
	} {
		if got := failed(&row.r); got != row.want {
			t.Errorf("%s: failed() = %t, want %t", row.name, got, row.want)
		}
	}
}

func TestADrillEndsByItselfWhereClientsFail(t *testing.T) {
	s := rehearsing(t)
	plan := begun(t, s, `,"max_errors":0.5`)
	tell := func(edit func(*processor.Record)) {
		r := &processor.Record{Chain: "main", Outcome: "failed", End: time.Now()}
		edit(r)
		s.drills.Exchange(r)
	}
	times(3*judgedFrom, func(int) { // none of these is a client of this drill
		tell(func(r *processor.Record) { r.Job = true })
		tell(func(r *processor.Record) { r.Chain = "other" })
		tell(func(r *processor.Record) { r.Drill = "marked" })
	})
	if got := s.processor.Drilling("main"); got == nil {
		t.Fatal("the drill has ended for jobs, other chains, or marked requests")
	}
	times(judgedFrom, func(int) { tell(func(r *processor.Record) { r.Drill = plan.ID }) })
	s.soon(t, func() bool { return s.processor.Drilling("main") == nil })
	if !strings.Contains(s.log.String(), "too many requests fail") {
		t.Errorf("the log does not say why the drill ended:\n%s", s.log)
	}
}

func TestADrillsTimesAreShortenedWithABound(t *testing.T) {
	cfg, err := config.Parse("f", []byte(strings.NewReplacer("DIR", "/d", "STORE", "{}").Replace(serviceYAML)))
	if err != nil {
		t.Fatal(err)
	}
	d := &cfg.Chains[0].Deadlines
	d.Idle, d.Answer = 100*time.Millisecond, 100*time.Second
	hurry(cfg, 0.05)
	if d.Answer != 5*time.Second || d.Idle != 100*time.Millisecond || d.FirstContent != 1500*time.Millisecond {
		t.Errorf("hurry(0.05) makes %+v, want 5s of an answer's 100s, 1.5s of 30s, and what was short as it was", *d)
	}
	if got := cfg.Targets["a/m"].Breaker.OpenFor; got != 3*time.Second {
		t.Errorf("open_for = %s, want 3s of 60s", got)
	}
}

func TestDrillRefusesWhatMeansNothing(t *testing.T) {
	for _, args := range []string{
		"", "-c f --self --gateway http://x", "-c f --self --admin http://x", "-c f --envoy e", "-c f --deadline-scale 0.5", "-c f --self --deadline-scale 0",
		"-c f --self --deadline-scale 2", "-c f --share 2", "-c f --share -1", "-c f --for 2h", "-c f --for 0s", "-c f --header novalue", "-c f more",
	} {
		if _, err := readDrill(strings.Fields(args)); !errors.Is(err, errUsage) {
			t.Errorf("extproc drill %s = %v, want wrong usage", args, err)
		}
	}
	a, err := readDrill(strings.Fields("-c f --header x-tenant:a --chain one --chain two --share 0.1"))
	if err != nil || a.options.Header.Get("x-tenant") != "a" || len(a.options.Chains) != 2 {
		t.Errorf("readDrill() = %+v, %v, want the header and both chains", a, err)
	}
}
