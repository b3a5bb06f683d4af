package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxForm bounds what is read of a form, in bytes.
const maxForm = 64 << 10

// done tells what a change has come to, by the word that asks for it; "" for others.
func done(what string) string {
	switch what {
	case "open", "closed":
		return "the breaker is forced " + what
	case "release":
		return "the breaker is released"
	case "off", "on":
		return "the chain is switched " + what
	case "drill":
		return "the drill has started"
	case "stop":
		return "the drill has ended"
	}
	return ""
}

// panel is what the page of forms shows.
type panel struct {
	*Status
	Form   string
	Target string // that is chosen to begin with
	Shut   string // why there are no forms
	asks   bool   // for the token
}

// Asks is the id of a form's field for the token, "" for none.
func (p panel) Asks(id string) string {
	if !p.asks {
		return ""
	}
	return "token-" + id
}

// panel shows the forms.
func (s *site) panel(w http.ResponseWriter, r *http.Request) {
	v, err := s.board.look()
	if err != nil {
		say(w, http.StatusInternalServerError, err.Error())
		return
	}
	p := panel{Status: &v.status, Form: s.key.mark(), Target: r.FormValue("target"), asks: s.Token() != ""}
	if status, why := s.admits(""); status == http.StatusForbidden {
		p.Shut = why
	}
	s.write(w, http.StatusOK, "operate", p)
}

// operate takes a form of the page. It is believed only as one that the page has sent: by what the browser says of its
// origin, by the mark in it and, where one is configured, by the token.
func (s *site) operate(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := s.foreign.Check(r); err != nil {
		s.refuse(w, http.StatusForbidden, "another site's page may not do this")
		return
	}
	if !s.key.made(r.PostFormValue("form")) {
		s.refuse(w, http.StatusForbidden, "this form is not of the page as this process has made it: open it anew")
		return
	}
	if status, why := s.admits(r.PostFormValue("token")); status != http.StatusOK {
		s.refuse(w, status, why)
		return
	}
	what := r.PostFormValue("do")
	if err := s.change(r.Context(), what, r.PostFormValue); err != nil {
		s.refuse(w, statusOf(err), err.Error())
		return
	}
	http.Redirect(w, r, "/?done="+what, http.StatusSeeOther)
}

// change does what a form asks for.
func (s *site) change(ctx context.Context, what string, field func(string) string) error {
	switch what {
	case "open", "closed", "release":
		return s.Force(ctx, field("target"), what)
	case "off", "on":
		return s.Switch(ctx, field("chain"), what == "off")
	case "drill", "stop":
		if s.Drills == nil {
			return fmt.Errorf("%w: there are no drills here", ErrRefused)
		}
		if what == "stop" {
			return s.Drills.Stop(ctx, field("drill"))
		}
		plan, err := planOf(field)
		if err == nil {
			_, err = s.Drills.Begin(ctx, plan)
		}
		return err
	}
	return fmt.Errorf("%w: choose what is to be done", ErrRefused)
}

// planOf is the plan that the form of a drill describes, as POST /drills takes it.
func planOf(field func(string) string) ([]byte, error) {
	var errs [3]error
	number := func(i int, name string) float64 {
		v, err := strconv.ParseFloat(field(name), 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			errs[i] = fmt.Errorf("%w: %s: must be a number", ErrRefused, name)
		}
		return v
	}
	share, seconds, most := number(0, "share"), number(1, "seconds"), number(2, "max_errors")
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return json.Marshal(struct {
		Chain     string            `json:"chain"`
		Faults    map[string]string `json:"faults"`
		Share     float64           `json:"share"`
		For       string            `json:"for"`
		MaxErrors float64           `json:"max_errors"`
	}{field("chain"), map[string]string{field("target"): field("fault")}, share / 100,
		time.Duration(seconds * float64(time.Second)).String(), most / 100})
}

// refuse says on a page why nothing has changed or, where a store did not answer, why nobody knows.
func (s *site) refuse(w http.ResponseWriter, status int, why string) {
	title := "Nothing has changed"
	if status == http.StatusServiceUnavailable {
		title = "Not certainly done"
	}
	s.write(w, status, "told", struct{ Title, Why string }{title, why})
}

// write writes a page.
func (s *site) write(w http.ResponseWriter, status int, name string, data any) {
	var b strings.Builder
	if err := pages.ExecuteTemplate(&b, name, data); err != nil {
		say(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(b.String()))
}
