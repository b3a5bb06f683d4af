package credential

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"cloud.google.com/go/compute/metadata"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
)

// gcpScope is what the APIs of Vertex AI are called with.
const gcpScope = "https://www.googleapis.com/auth/cloud-platform"

// fetchGCP gets a token by a credentials file, or else from the metadata server.
//
// It walks the application default credentials itself. google.FindDefaultCredentials remembers for the life of the
// process that no metadata server answered, and one may be late: "GKE metadata server takes a few seconds before it can
// start accepting requests on a newly created Pod" (GKE docs, workload identity).
func (a account) fetchGCP(ctx context.Context) (lease, error) {
	file := a.gcpFile()
	if _, err := os.Stat(file); file == wellKnownFile() && errors.Is(err, os.ErrNotExist) {
		return fetchMetadata(ctx)
	}
	return fetchFile(ctx, file)
}

// gcpFile is the credentials file, which is optional only at the well-known place.
func (a account) gcpFile() string {
	if path, ok := strings.CutPrefix(a.gcp, "file:"); ok {
		return path
	}
	if path := os.Getenv("GOOGLE_APPLICATION_CREDENTIALS"); path != "" {
		return path
	}
	return wellKnownFile()
}

// wellKnownFile is where gcloud puts the credentials of `gcloud auth application-default login` (golang.org/x/oauth2
// google/default.go, on systems other than Windows).
func wellKnownFile() string {
	return filepath.Join(os.Getenv("HOME"), ".config", "gcloud", "application_default_credentials.json")
}

// credentialsFile is what is read here of one.
type credentialsFile struct {
	Type         string `json:"type"`
	QuotaProject string `json:"quota_project_id"`
}

var errCredentialsFile = said{errors.New("the file is no JSON credentials file of Google's with a type")}

func fetchFile(ctx context.Context, path string) (lease, error) {
	data, err := readFile(path)
	if err != nil {
		return lease{}, err
	}
	var f credentialsFile
	if json.Unmarshal(data, &f) != nil || f.Type == "" {
		return lease{}, errCredentialsFile
	}
	trip := &bound{ctx: ctx}
	ctx = context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: trip})
	c, err := google.CredentialsFromJSONWithType(ctx, data, google.CredentialsType(f.Type), gcpScope)
	if err != nil {
		return lease{}, err
	}
	t, err := c.TokenSource.Token()
	if err != nil {
		return lease{}, errors.Join(err, trip.err)
	}
	return googleLease(t.AccessToken, t.Expiry, f.QuotaProject)
}

// googleLease is a token with the project that pays for the quota, which a user's credentials have to name.
func googleLease(token string, ends time.Time, project string) (lease, error) {
	if env := os.Getenv("GOOGLE_CLOUD_QUOTA_PROJECT"); env != "" {
		project = env
	}
	var more []Header
	if project != "" {
		more = []Header{{"x-goog-user-project", project}}
	}
	return bearer(token, ends, more...)
}

// bound ends its requests with ctx, and keeps why the last one failed: the token source of a service account does
// neither (golang.org/x/oauth2 jwt/jwt.go). For one goroutine.
type bound struct {
	ctx context.Context
	err error
}

func (b *bound) RoundTrip(r *http.Request) (*http.Response, error) {
	var res *http.Response
	res, b.err = http.DefaultTransport.RoundTrip(r.WithContext(b.ctx))
	return res, b.err
}

func fetchMetadata(ctx context.Context) (lease, error) {
	text, err := metadata.NewClient(nil).GetWithContext(ctx, "instance/service-accounts/default/token?scopes="+gcpScope)
	if err != nil {
		return lease{}, err
	}
	var t struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"` // seconds
	}
	if err := json.Unmarshal([]byte(text), &t); err != nil || t.ExpiresIn <= 0 || t.ExpiresIn > 1<<31 {
		return lease{}, errToken
	}
	return googleLease(t.AccessToken, time.Now().Add(time.Duration(t.ExpiresIn)*time.Second), "")
}
