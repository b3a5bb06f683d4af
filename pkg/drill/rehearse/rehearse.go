// Package rehearse is the game day itself: it derives from a config alone what each chain promises, asks a running stack
// for it with marked requests, and reports what was promised beside what was seen.
package rehearse

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"understudy/pkg/config"
)

// Options say what is promised, and by whom it is to be kept.
type Options struct {
	Config  *config.Config // what is promised
	Gateway string         // URL where clients call
	Admin   string         // URL of a replica's admin listener
	Token   string         // of the admin listener; "" is none
	Header  http.Header    // of every request to the gateway, such as a credential or a tenant
	Calls   *http.Client   // to the gateway; nil is the default
	Asks    *http.Client   // to the admin listener; nil is the default
	Chains  []string       // by name; empty: all

	Share float64       // of the chains' traffic that is to meet faults, after all else; 0: none
	For   time.Duration // how long at most

	Told func(*Result) // hears of each result, one at a time; nil: nobody
}

// atOnce bounds how many requests a drill makes at once.
const atOnce = 6

// runner is one game day.
type runner struct {
	o     Options
	stack *stack

	// mu guards the fields below and calls of o.Told.
	mu      sync.Mutex
	results []Result
	lost    error // why the admin listener could not be asked, the first time
}

// Run rehearses. The report is whole even where ctx ends early; an error says that there was nothing to rehearse with.
func Run(ctx context.Context, o Options) (*Report, error) {
	chains, err := chosen(o)
	if err != nil {
		return nil, err
	}
	r := &runner{o: o, stack: &stack{
		gateway: strings.TrimSuffix(o.Gateway, "/"), admin: strings.TrimSuffix(o.Admin, "/"), token: o.Token, header: o.Header,
		calls: client(o.Calls), asks: client(o.Asks),
	}}
	report := &Report{Began: time.Now(), File: o.Config.File, Hash: o.Config.Hash, Gateway: redacted(o.Gateway)}
	if err := r.ready(ctx); err != nil {
		return nil, err
	}
	r.compareHash(ctx, report)
	for _, ch := range chains {
		r.chain(ctx, ch)
	}
	r.accountable(ctx)
	report.Results, report.Ended, report.Interrupted = r.results, time.Now(), ctx.Err() != nil
	return report, nil
}

// redacted is a URL for a report, which has no password.
func redacted(gateway string) string {
	u, err := url.Parse(gateway)
	if err != nil {
		return ""
	}
	return u.Redacted()
}

func client(c *http.Client) *http.Client {
	if c == nil {
		return http.DefaultClient
	}
	return c
}

func chosen(o Options) ([]*config.Chain, error) {
	if len(o.Chains) == 0 {
		return o.Config.Chains, nil
	}
	var list []*config.Chain
	for _, name := range o.Chains {
		ch := o.Config.ChainNamed(name)
		if ch == nil {
			return nil, fmt.Errorf("%s has no chain named %q", o.Config.File, name)
		}
		list = append(list, ch)
	}
	return list, nil
}

// ready says why nothing can be rehearsed.
func (r *runner) ready(ctx context.Context) error {
	_, _, err := r.stack.mark(ctx, "", nil, time.Minute)
	told := refusal{}
	switch {
	case err == nil:
		return errors.New("the admin listener gives tokens for a chain without a name: it is none of this service's")
	case !errors.As(err, &told):
		return fmt.Errorf("the admin listener %s cannot be asked: %w", r.o.Admin, err)
	case told.status == http.StatusNotFound:
		return fmt.Errorf("the admin listener %s has no drills: is it that of a service of this version?", r.o.Admin)
	case told.status != http.StatusBadRequest:
		return fmt.Errorf("the admin listener %s allows no drill: %w", r.o.Admin, told)
	case strings.Contains(told.text, "drill.listen"):
		return fmt.Errorf("the running service allows no drill: %s", told.text)
	}
	return nil
}

// compareHash compares the file with the configuration in use. A secret that is not here makes another hash.
func (r *runner) compareHash(ctx context.Context, report *Report) {
	m, err := r.stack.metrics(ctx)
	result := Result{
		Name: "the configuration in use is the file's", Where: r.o.Config.File, Promised: "hash " + r.o.Config.Hash,
		Outcome: Kept, Began: time.Now(),
	}
	report.Running = m.hash()
	result.Seen = "hash " + report.Running
	switch absent := absentSecret(r.o.Config); {
	case err != nil || report.Running == "":
		result.Seen, result.Outcome, result.Why = "", Untold, "the admin listener does not tell it"
	case report.Running == r.o.Config.Hash:
	case absent != nil:
		result.Outcome, result.Why = Untold, fmt.Sprintf("the hashes differ, which may be for want of a secret here: %v", absent)
	default:
		result.Outcome, result.Why = Broken, fmt.Sprintf("%s: the running service uses another configuration, or other secrets, than this file: load the file, or drill the one that runs", r.o.Config.File)
	}
	r.add(result)
}

// absentSecret says which of the secrets is not here.
func absentSecret(cfg *config.Config) error {
	secrets := []config.Secret{cfg.Server.AdminToken}
	for _, p := range cfg.Providers {
		secrets = append(secrets, p.Auth.Secret)
	}
	for _, ch := range cfg.Chains {
		if ch.Queue.Notify != nil {
			secrets = append(secrets, ch.Queue.Notify.Secret)
		}
	}
	for _, s := range secrets {
		if _, err := s.Value(); err != nil && s.Ref() != "" {
			return err
		}
	}
	return nil
}

// lose notes that the admin listener could not be asked.
func (r *runner) lose(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost == nil {
		r.lost = err
	}
}

// accountable says that the service was there all the time: what it did not tell is otherwise merely not possible, and a
// service that dies in the middle would pass.
func (r *runner) accountable(ctx context.Context) {
	if r.lost == nil || ctx.Err() != nil {
		return
	}
	r.add(Result{
		Name: "the admin listener answers throughout", Where: "server.admin", Promised: fmt.Sprintf("an answer within %s to all that the drill asks", patience),
		Seen: r.lost.Error(), Outcome: Broken, Began: time.Now(),
		Why: fmt.Sprintf("server.admin: it could not be asked: %v; does the service still run?", r.lost),
	})
}

func (r *runner) add(results ...Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results = append(r.results, results...)
	for i := range results {
		if r.o.Told != nil {
			r.o.Told(&results[i])
		}
	}
}

// chain rehearses one chain.
func (r *runner) chain(ctx context.Context, ch *config.Chain) {
	p := policyOf(r.o.Config, ch)
	ways := calls(r.o.Config, ch)
	switch {
	case ch.Observe:
		r.add(untold(p, "its failover", "it only observes"))
		return
	case ch.Endpoint != "":
		r.add(untold(p, "its failover", fmt.Sprintf("it serves %s, whose answers are judged by their status alone; faults are played for model calls", ch.Endpoint)))
		return
	case len(ways) == 0:
		r.add(untold(p, "its failover", "no request of a drill reaches it: other chains' rules come first"))
		return
	case ch.Off.Force:
		r.all(ctx, p, []scene{p.forced(ways[0]), p.forced(ways[1])})
		return
	}
	var scenes []scene
	for _, c := range ways {
		scenes = append(scenes, p.scenes(c)...)
	}
	r.all(ctx, p, scenes)
	for _, c := range ways {
		r.modes(ctx, p, c)
	}
	r.add(r.flapping(ctx, p, ways[0]))
	if r.o.Share > 0 && ctx.Err() == nil {
		r.share(ctx, p, ways[0])
	}
}

// forced is what a chain says that is switched off.
func (p policy) forced(c call) scene {
	s := scene{name: "the chain is off", where: p.at("off.force"), faults: p.all(0, ""), promise: p.off()}
	p.fill(&s, c)
	return s
}

func untold(p policy, name, why string) Result {
	return Result{Chain: p.Name, Name: name, Where: "chains." + p.Name, Outcome: Untold, Why: why, Began: time.Now()}
}

// all plays scenes, several at once, and tells them in their order.
func (r *runner) all(ctx context.Context, p policy, scenes []scene) {
	results := make([]Result, len(scenes))
	slot := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i := range scenes {
		slot <- struct{}{}
		wg.Go(func() {
			defer func() { <-slot }()
			results[i] = r.play(ctx, p, &scenes[i])
		})
	}
	wg.Wait()
	slices.SortStableFunc(results, func(a, b Result) int { return strings.Compare(a.Call, b.Call) })
	r.add(results...)
}

// play makes one request, and compares.
func (r *runner) play(ctx context.Context, p policy, s *scene) (result Result) {
	result = Result{Chain: p.Name, Name: s.name, Call: s.call.String(), Where: s.where, Promised: s.promise.String(), Began: time.Now()}
	defer func() { result.Took = time.Since(result.Began) }()
	why := s.skip
	if why == "" && s.accept == "queue" {
		why = r.tenantless()
	}
	if why == "" {
		why = r.unfit(ctx, p, s.needs)
	}
	if why != "" {
		result.Outcome, result.Why = Untold, why
		return result
	}
	if a, err := r.marked(ctx, s, &result); err != nil {
		r.unmarked(ctx, s, err, &result)
	} else {
		r.judge(ctx, p, s, a, &result)
	}
	return result
}

// unmarked says why there was no token for a request.
func (r *runner) unmarked(ctx context.Context, s *scene, err error, result *Result) {
	switch told := (refusal{}); {
	case ctx.Err() != nil:
		result.Outcome, result.Why = Untold, interrupted
	case !errors.As(err, &told):
		r.lose(err)
		result.Outcome, result.Why = Untold, fmt.Sprintf("the admin listener cannot be asked: %v", err)
	default:
		result.Outcome, result.Why = Broken, fmt.Sprintf("%s: the configuration in use refuses the drill: %v", s.where, err)
	}
}

const interrupted = "the drill was interrupted"

// marked makes the request of a scene, and notes which drill it was.
func (r *runner) marked(ctx context.Context, s *scene, result *Result) (*answer, error) {
	ends := s.promise.ends
	if ends == 0 {
		ends = r.o.Config.ChainNamed(s.call.chain).Deadlines.Total + slack
	}
	mark, id, err := r.stack.mark(ctx, s.call.chain, s.faults, min(s.promise.begins+ends+time.Minute, time.Hour))
	if err != nil {
		return nil, err
	}
	result.Drills = append(result.Drills, id)
	return r.stack.ask(ctx, s.call, mark, s.accept, s.promise.begins, ends), nil
}

// judge says what became of the promise.
func (r *runner) judge(ctx context.Context, p policy, s *scene, a *answer, result *Result) {
	result.Seen, result.Outcome = a.String(), Kept
	differences := s.promise.compare(a)
	if len(differences) == 0 {
		return
	}
	if ctx.Err() != nil {
		result.Outcome, result.Why = Untold, interrupted
		return
	}
	why := or(r.unfit(ctx, p, s.needs), p.dear(s.promise.targets))
	if s.overtaken != nil && len(s.overtaken.compare(a)) == 0 {
		why = "the machine was too busy: the connection's end came before the content had been passed on"
	}
	if why != "" {
		result.Outcome, result.Why = Untold, why
		return
	}
	result.Outcome = Broken
	result.Why = fmt.Sprintf("%s: %s; %s", s.where, strings.Join(differences, "; "), s.hint(a))
}

// unfit says why targets cannot show what they would do, "" where they can.
func (r *runner) unfit(ctx context.Context, p policy, targets []string) string {
	m, err := r.stack.metrics(ctx)
	switch {
	case ctx.Err() != nil:
		return interrupted
	case err != nil:
		r.lose(err)
		return fmt.Sprintf("whether its targets are fit is not known: %v", err)
	}
	if state, _ := m.of("budget_state", "chain", p.Name); state > 0 {
		return fmt.Sprintf("the budget of %s is at its limit, or at the soft one", p.Name)
	}
	if on, _ := m.of("drill_active", "chain", p.Name); on > 0 {
		return "another drill runs on this chain"
	}
	for _, name := range targets {
		if why := m.unfit(name); why != "" {
			return why
		}
	}
	return ""
}

// unfit says why a target is not asked, or not always.
func (m metrics) unfit(target string) string {
	state, _ := m.of("breaker_state", "target", target)
	share, told := m.of("breaker_share", "target", target)
	cooling, _ := m.of("cooldown_seconds", "target", target)
	switch {
	case state > 0:
		return fmt.Sprintf("the breaker of %s is open", target)
	case told && share < 1:
		return fmt.Sprintf("%s has just come back and gets only a share of the requests", target)
	case cooling > 0:
		return fmt.Sprintf("%s was rate-limited and is left alone for %.0f s", target, cooling)
	}
	return ""
}
