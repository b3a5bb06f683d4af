package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// healthPatience bounds one question, so that whoever asks regularly never asks twice at once.
const healthPatience = 3 * time.Second

// healthOf asks what listens at an admin address whether it is ready: a health check for images without a shell.
func healthOf(ctx context.Context, args []string, std std) error {
	f := flag.NewFlagSet("health", flag.ContinueOnError)
	admin := f.String("admin", "http://127.0.0.1:9003", "URL of the admin listener")
	if err := parse(f, args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%w: only --admin URL is taken", errUsage)
	}
	ctx, cancel := context.WithTimeout(ctx, healthPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(*admin, "/")+"/readyz", nil)
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	resp, err := prober().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	why, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s: %s", resp.Status, strings.TrimSpace(string(why)))
	}
	fmt.Fprintln(std.out, "ready")
	return nil
}

// prober asks as an orchestrator's probe does: it shows no certificate and checks none. Nothing secret is said, and the
// certificate is for a name by which nobody calls the own machine.
func prober() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
}
