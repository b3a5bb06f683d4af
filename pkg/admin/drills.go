package admin

import (
	"context"
	"errors"
	"io"
	"net/http"
)

// ErrRefused is wrapped by errors that tell what is wrong with what was asked for.
var ErrRefused = errors.New("refused")

// Drills are the switches of game days. What goes in and comes out is JSON.
type Drills interface {
	// Begin lets requests of clients meet faults, by a plan.
	Begin(ctx context.Context, plan []byte) ([]byte, error)
	// Token is what marks requests that are to meet a plan's faults.
	Token(ctx context.Context, plan []byte) ([]byte, error)
	// Stop ends the plan of that id, for all replicas.
	Stop(ctx context.Context, id string) error
}

// maxPlan bounds what is read of a plan, in bytes.
const maxPlan = 64 << 10

func (o Options) drills(mux *http.ServeMux) {
	mux.HandleFunc("POST /drills", o.trusted(planned(o.Drills.Begin)))
	mux.HandleFunc("POST /drills/tokens", o.trusted(planned(o.Drills.Token)))
	mux.HandleFunc("POST /drills/{id}/stop", o.trusted(func(w http.ResponseWriter, r *http.Request) {
		told(w, o.Drills.Stop(r.Context(), r.PathValue("id")), nil)
	}))
}

func planned(f func(ctx context.Context, plan []byte) ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		plan, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPlan))
		if err != nil {
			say(w, http.StatusRequestEntityTooLarge, "a plan has at most 64 KiB")
			return
		}
		out, err := f(r.Context(), plan)
		told(w, err, out)
	}
}

// told answers a change: with what came of it, with why nothing has changed or, where a store did not answer, with that: it
// may have what it has not confirmed.
func told(w http.ResponseWriter, err error, out []byte) {
	switch {
	case errors.Is(err, ErrUnknown), errors.Is(err, ErrRefused):
		say(w, statusOf(err), err.Error())
	case err != nil:
		say(w, statusOf(err), "this is not certainly done: "+err.Error())
	case out == nil:
		say(w, http.StatusOK, "ok")
	default:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(out)
	}
}

// statusOf is the status of an answer that tells err.
func statusOf(err error) int {
	switch {
	case errors.Is(err, ErrUnknown):
		return http.StatusNotFound
	case errors.Is(err, ErrRefused):
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}
