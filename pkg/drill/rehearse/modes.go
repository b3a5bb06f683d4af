package rehearse

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"understudy/pkg/drill"
)

// modes rehearses the degraded modes that take more than one request.
func (r *runner) modes(ctx context.Context, p policy, c call) {
	c.prompt = usual + " (" + rand.Text()[:8] + ")" // nobody else has asked this
	if slices.Contains(p.Degrade, "cache") {
		r.add(r.twoSteps(ctx, p, c, "all targets fail, and the mode cache answers", p.at("cache"), r.cache))
	}
	if slices.Contains(p.Degrade, "queue") {
		r.add(r.twoSteps(ctx, p, c, "all targets fail, and the mode queue takes the request", p.at("queue"), r.queue))
	}
}

// twoSteps plays what needs a tenant and all targets.
func (r *runner) twoSteps(ctx context.Context, p policy, c call, name, where string, play func(context.Context, policy, *scene, *Result)) Result {
	s := &scene{name: name, where: where, call: c, faults: p.all(len(p.Rungs), p.failing().Name), needs: p.names(0, len(p.Rungs))}
	result := Result{Chain: p.Name, Name: name, Call: c.String(), Where: where, Began: time.Now()}
	why := r.tenantless()
	if why == "" {
		why = r.unfit(ctx, p, s.needs)
	}
	if why == "" {
		play(ctx, p, s, &result)
	} else {
		result.Outcome, result.Why = Untold, why
	}
	result.Took = time.Since(result.Began)
	return result
}

// tenantless says why neither cache nor queue take requests of the drill, "" where they may.
func (r *runner) tenantless() string {
	t := r.o.Config.Tenant
	switch {
	case t.Header != "" && r.o.Header.Get(t.Header) == "":
		return fmt.Sprintf("requests of no tenant share nothing: say which with --header %q", t.Header+": NAME")
	case len(t.Metadata) > 0 && len(r.o.Header) == 0:
		return "requests of no tenant share nothing: say --header with the credential of one"
	}
	return ""
}

// cache lets a good answer be kept, and asks for it once nothing answers.
func (r *runner) cache(ctx context.Context, p policy, s *scene, result *Result) {
	good := &scene{call: s.call, faults: map[string]string{drill.Any: ""}, promise: p.serves(0, "", s.call.stream)}
	kept, err := r.marked(ctx, good, result)
	if err != nil {
		r.unmarked(ctx, s, err, result)
		return
	}
	if len(good.promise.compare(kept)) > 0 {
		result.Outcome, result.Why = Untold, "no good answer of the primary came that could be kept"
		return
	}
	s.accept = "cache"
	s.promise = promise{status: 200, rung: nobody, mode: "cache; age=", end: whole, text: kept.text, begins: ladder}
	result.Promised = s.promise.String()
	var a *answer
	err = until(ctx, patience, func(ctx context.Context) error { // it is kept in the background
		again, err := r.marked(ctx, s, result)
		if err != nil {
			return err
		}
		if a = again; len(s.promise.compare(a)) > 0 {
			return errors.New("not yet")
		}
		return nil
	})
	result.Drills = result.Drills[max(0, len(result.Drills)-2):]
	if a == nil {
		r.unmarked(ctx, s, err, result)
		return
	}
	r.judge(ctx, p, s, a, result)
}

// jobTime bounds the run of a queued request whose targets are well.
const jobTime = time.Minute

// queue lets a request be queued, and sees it through: its run is no drill.
func (r *runner) queue(ctx context.Context, p policy, s *scene, result *Result) {
	s.accept, s.promise = "queue", p.queued()
	result.Promised = s.promise.String() + fmt.Sprintf(", and the job is done within %s", jobTime+p.patience(false))
	a, err := r.marked(ctx, s, result)
	if err != nil {
		r.unmarked(ctx, s, err, result)
		return
	}
	r.judge(ctx, p, s, a, result)
	if result.Outcome != Kept {
		return
	}
	_, id, _ := strings.Cut(a.header.Get("x-llm-degraded"), "job=")
	var job struct {
		State  string
		Result struct{ Status int }
	}
	err = until(ctx, jobTime+p.patience(false), func(ctx context.Context) error {
		if err := r.stack.told(ctx, http.MethodGet, "/jobs/"+id, nil, &job); err != nil {
			return err
		}
		if job.State != "done" && job.State != "failed" && job.State != "expired" {
			return fmt.Errorf("it is %s", job.State)
		}
		return nil
	})
	result.Seen += fmt.Sprintf("; job %s: %s with status %d", id, job.State, job.Result.Status)
	switch {
	case ctx.Err() != nil:
		result.Outcome, result.Why = Untold, interrupted
	case err != nil:
		result.Outcome, result.Why = Broken, fmt.Sprintf("%s: job %s has not ended: %v", s.where, id, err)
	case job.State != "done" || job.Result.Status != http.StatusOK:
		result.Outcome, result.Why = Broken, fmt.Sprintf("%s: job %s is %s with status %d, not done with 200", s.where, id, job.State, job.Result.Status)
	}
}

// flapping lets the primary come and go: each request must be served all the same, and both rungs be seen.
func (r *runner) flapping(ctx context.Context, p policy, c call) Result {
	const asked = 8
	f, _ := drill.Named("flapping")
	s := p.faultScene(f, c)
	p.fill(&s, c)
	up := p.serves(0, "", c.stream)
	result := Result{
		Chain: p.Name, Name: s.name, Call: c.String(), Where: s.where, Began: time.Now(),
		Promised: fmt.Sprintf("of %d requests each either %s; or %s", asked, up, s.promise),
	}
	if why := r.unfit(ctx, p, s.needs); why != "" {
		result.Outcome, result.Why = Untold, why
		return result
	}
	met := 0
	for range asked {
		a, err := r.marked(ctx, &s, &result)
		if err != nil {
			r.unmarked(ctx, &s, err, &result)
			return result
		}
		if len(up.compare(a)) > 0 {
			met++
			if r.judge(ctx, p, &s, a, &result); result.Outcome != Kept {
				return result
			}
		}
		pause(ctx, drill.FlapPeriod/4)
	}
	result.Seen, result.Outcome, result.Took = fmt.Sprintf("the fault met %d of %d requests", met, asked), Kept, time.Since(result.Began)
	if met == 0 || met == asked {
		result.Outcome, result.Why = Untold, "the answers took too long to see the provider both up and down"
	}
	return result
}

func pause(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}
