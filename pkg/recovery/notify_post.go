package recovery

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"understudy/pkg/config"
	"understudy/pkg/degrade/queue"
)

const (
	// tellBound ends one call of a receiver, from the look-up of its name to the end of its answer.
	tellBound = 15 * time.Second
	// maxReply is how much of a receiver's answer is read: its status says everything, and this much is polite.
	maxReply = 4 << 10
	// maxRetryAfter is the longest Retry-After of a receiver that is waited for: with one on every call, the calls
	// about a job still end after little more than a day.
	maxRetryAfter = time.Hour
)

// event is the body of a webhook, in the form that Standard Webhooks recommends.
type event struct {
	Type      string    `json:"type"`      // job.done, job.failed or job.expired
	Timestamp time.Time `json:"timestamp"` // when the job ended
	Data      eventData `json:"data"`
}

type eventData struct {
	ID             string      `json:"id"`
	Chain          string      `json:"chain"`
	State          queue.State `json:"state"`
	IdempotencyKey string      `json:"idempotency_key,omitempty"`
	Created        time.Time   `json:"created"`
	Finished       time.Time   `json:"finished"`
	Location       string      `json:"location"`
}

// answered is a receiver's answer that is not a success.
type answered struct {
	status     int
	retryAfter time.Duration // 0: it does not say
}

func (a answered) Error() string { return "the receiver answered " + strconv.Itoa(a.status) }

// final says whether another call can only end as the one that ended with err: the address is refused, or the receiver
// is gone ("410: … likely to be permanent", RFC 9110, 15.5.11).
func final(err error) bool {
	var r refusal
	var a answered
	return errors.As(err, &r) || errors.As(err, &a) && a.status == http.StatusGone
}

// post calls hook about a job. An error carries neither the URL nor a secret, nor what the receiver wrote.
func (n *Notifier) post(ctx context.Context, hook *config.Webhook, notice *queue.Notice) error {
	ctx, cancel := context.WithTimeout(ctx, tellBound)
	defer cancel()
	req, err := webhook(ctx, hook, notice, time.Now())
	if err != nil {
		return err
	}
	client := http.Client{Transport: n.public, CheckRedirect: stay}
	if hook.Private {
		client.Transport = n.private
	}
	resp, err := client.Do(req)
	if err != nil {
		return plain(err)
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, maxReply) // an answer cut short has its status all the same
	if resp.StatusCode/100 == 2 {
		return nil
	}
	return answered{resp.StatusCode, retryAfter(resp, time.Now())}
}

// stay makes of a redirect an answer like any other: where it leads to, nobody has configured.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// webhook is the signed request about a job. Every attempt has the same webhook-id and body, by which a receiver that
// hears twice knows it, and the time of its own, by which a replay is known.
func webhook(ctx context.Context, hook *config.Webhook, n *queue.Notice, now time.Time) (*http.Request, error) {
	if hook.URL.Scheme != "https" && !hook.Private {
		return nil, refusal("webhook refused: it is not https; if it is meant, set notify.allow_private: true")
	}
	key, err := hook.Key()
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(event{"job." + string(n.State), n.Finished.UTC(), eventData{
		n.ID, n.Chain, n.State, n.Key, n.Created.UTC(), n.Finished.UTC(), n.Location,
	}})
	if err != nil {
		return nil, err
	}
	id := n.ID + "-" + string(n.State)
	signer, err := standardwebhooks.NewWebhookRaw(key)
	if err != nil {
		return nil, err
	}
	signature, err := signer.Sign(id, now, body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, hook.URL.String(), bytes.NewReader(body))
	if err != nil {
		return nil, refusal("webhook refused: its URL cannot be called")
	}
	for name, value := range map[string]string{
		standardwebhooks.HeaderWebhookID:        id,
		standardwebhooks.HeaderWebhookTimestamp: strconv.FormatInt(now.Unix(), 10),
		standardwebhooks.HeaderWebhookSignature: signature,
		"Content-Type":                          "application/json",
		"User-Agent":                            "understudy",
		"Idempotency-Key":                       n.Key,
	} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	return req, nil
}

// plain says what went wrong in words of our own: those of the transport may repeat the URL with its query, or what the
// receiver wrote, which may be the same.
func plain(err error) error {
	var (
		r    refusal
		dns  *net.DNSError
		cert *tls.CertificateVerificationError
		op   *net.OpError
	)
	switch {
	case errors.As(err, &r):
		return r
	case errors.As(err, &dns):
		return fmt.Errorf("the receiver's name cannot be resolved: %s", dns.Err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the receiver did not answer within %s", tellBound)
	case errors.As(err, &cert):
		return fmt.Errorf("the receiver's certificate is not valid: %.200s", cert.Err)
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Errorf("the receiver cannot be connected to: %w", op.Err)
	}
	return errors.New("the connection to the receiver broke before its answer")
}

// retryAfter reads the header of an answer whose status gives it a meaning, "either an HTTP-date or a number of
// seconds" (RFC 9110, 10.2.3).
func retryAfter(resp *http.Response, now time.Time) time.Duration {
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		return 0
	}
	value := resp.Header.Get("Retry-After")
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	seconds, err := strconv.ParseUint(value, 10, 32)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0
	}
	return time.Duration(min(seconds, uint64(maxRetryAfter/time.Second))) * time.Second
}
