package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	maxDump  = 64 << 20 // bytes; a mesh's sidecar with every service has some ten MiB
	patience = time.Minute
)

// Fetch reads the configuration of the Envoy whose admin interface is at admin, such as http://127.0.0.1:9901.
// Its errors are sentences about admin.
func Fetch(ctx context.Context, admin string) (*Dump, error) {
	base, err := url.Parse(admin)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("%q is no URL of an admin interface: write it as http://127.0.0.1:9901", admin)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	info, err := get(ctx, base.JoinPath("server_info"))
	if err != nil {
		return nil, err
	}
	page := base.JoinPath("config_dump")
	page.RawQuery = "include_eds"
	dump, err := get(ctx, page)
	if err != nil {
		return nil, err
	}
	d, err := Parse(version(info), dump)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: is this Envoy's admin interface?", page.Redacted(), err)
	}
	return d, nil
}

func get(ctx context.Context, page *url.URL) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the admin interface does not answer: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s = %s: is this Envoy's admin interface?", page.Redacted(), resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDump+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("GET %s: %w", page.Redacted(), err)
	case len(body) > maxDump:
		return nil, fmt.Errorf("GET %s: more than %d MiB", page.Redacted(), maxDump>>20)
	}
	return body, nil
}

// version is the third part of what /server_info calls version: commit/1.40.0/Clean/RELEASE/BoringSSL.
func version(info []byte) string {
	var v struct {
		Version string `json:"version"`
	}
	if json.Unmarshal(info, &v) != nil {
		return ""
	}
	if parts := strings.Split(v.Version, "/"); len(parts) > 1 {
		return parts[1]
	}
	return ""
}
