package drill

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestFaultsThatHangAreBoundedInNumberAndTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := handler(2)
		ask := func(ctx context.Context, fault string) int {
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://"+fault+domain+"/v1/messages", strings.NewReader(`{"model":"m"}`))
			defer func() { _ = recover() }() // a fault without an answer aborts
			h.ServeHTTP(w, r)
			return w.Code
		}
		ended := make(chan time.Duration, 2)
		begun := time.Now()
		for range 2 {
			go func() {
				ask(t.Context(), "hang")
				ended <- time.Since(begun)
			}()
		}
		synctest.Wait()
		if got := ask(t.Context(), "overloaded"); got != http.StatusServiceUnavailable {
			t.Errorf("a third fault while two hang = %d, want 503", got)
		}
		for range 2 {
			if got := <-ended; got > Longest {
				t.Errorf("a fault hung for %s, want %s at most", got, Longest)
			}
		}
		if got := ask(t.Context(), "overloaded"); got != 529 {
			t.Errorf("a fault after that = %d, want 529", got)
		}
	})
}
