package credential

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"understudy/pkg/config"
)

// TestNoSecretIsSaid makes everything fail in ways whose errors quote a secret where they can.
func TestNoSecretIsSaid(t *testing.T) {
	const hidden = "hidden0123456789"
	echo := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(400)
		fmt.Fprintf(w, `{"error":"invalid_grant","error_description":%q,"x":%q}`, body, hidden)
	}
	for _, row := range []struct {
		name string
		auth func(t *testing.T) config.Auth
		want string
	}{
		{"a credential process that prints no JSON", func(t *testing.T) config.Auth {
			file := filepath.Join(t.TempDir(), "config")
			write(t, file, "[profile prod]\ncredential_process = echo "+hidden+"\n")
			t.Setenv("AWS_CONFIG_FILE", file)
			return config.Auth{AWS: "profile:prod"}
		}, "no AWS credential: what the environment and the files"},
		{"a profile that is not there", func(t *testing.T) config.Auth {
			return config.Auth{AWS: "profile:prod"}
		}, `no AWS credential: there is no profile "prod"`},
		{"an STS that quotes what it gets", func(t *testing.T) config.Auth {
			webIdentity(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(400)
				io.WriteString(w, `<ErrorResponse><Error><Code>InvalidIdentityToken</Code><Message>`+hidden+`</Message></Error></ErrorResponse>`)
			}))
			write(t, os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE"), hidden)
			return config.Auth{AWS: "default"}
		}, "no AWS credential: STS AssumeRoleWithWebIdentity: InvalidIdentityToken"},
		{"nothing at all for AWS", func(t *testing.T) config.Auth {
			return config.Auth{AWS: "default"}
		}, "no AWS credential: none in the environment or the files, and ec2imds GetMetadata: "},
		{"a token server that quotes what it gets", func(t *testing.T) config.Auth {
			file, _ := serviceAccount(t, serve(t, echo))
			return config.Auth{GCP: "file:" + file}
		}, "no Google token: the token server answered 400: invalid_grant"},
		{"a token server that is not there", func(t *testing.T) config.Auth {
			server := httptest.NewServer(nil)
			server.Close()
			file, _ := serviceAccount(t, server.URL)
			return config.Auth{GCP: "file:" + file}
		}, "connection refused"},
		{"a token that no header carries", func(t *testing.T) config.Auth {
			file, _ := serviceAccount(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
				io.WriteString(w, `{"access_token":"`+hidden+`\r\nx: y","expires_in":3600}`)
			}))
			return config.Auth{GCP: "file:" + file}
		}, "no Google token: the token that came is empty, has no end, or fits into no header"},
		{"a credentials file that is not one", func(t *testing.T) config.Auth {
			file := filepath.Join(t.TempDir(), "f")
			write(t, file, hidden)
			return config.Auth{GCP: "file:" + file}
		}, "no Google token: the file is no JSON credentials file"},
		{"a credentials file of an unknown type", func(t *testing.T) config.Auth {
			return config.Auth{GCP: "file:" + jsonFile(t, map[string]string{"type": hidden})}
		}, "no Google token: what the environment and the files"},
		{"a credentials file that is absent", func(t *testing.T) config.Auth {
			return config.Auth{GCP: "file:/absent/key.json"}
		}, "no Google token: stat /absent/key.json: no such file or directory"},
		{"a metadata server that fails", func(t *testing.T) config.Auth {
			t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(403)
				io.WriteString(w, hidden)
			}), "http://"))
			return config.Auth{GCP: "default"}
		}, "no Google token: the metadata server answered 403"},
		{"a managed identity that is refused", func(t *testing.T) config.Auth {
			t.Setenv("AZURE_CLIENT_ID", "refused")
			t.Setenv("IDENTITY_HEADER", hidden)
			t.Setenv("IDENTITY_ENDPOINT", serve(t, echo))
			return config.Auth{Entra: "default"}
		}, "no Entra token: "},
	} {
		t.Run(row.name, func(t *testing.T) {
			quiet(t)
			log := new(recorder)
			s := New(one(row.auth(t)), nil, slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
			s.Start(t.Context())
			r := s.source("p").renewer
			select {
			case <-r.latest.Load().next:
			case <-time.After(10 * time.Second):
				t.Fatal("no try ended within 10 s")
			}
			_, err := s.Sign(t.Context(), "p", Request{Method: "POST", Host: "h", Path: "/"})
			if !says(err, row.want) || !says(s.Ready("p"), row.want) {
				t.Errorf("Sign(), Ready() = %v, %v, want %s", err, s.Ready("p"), row.want)
			}
			s.Stop()
			said := fmt.Sprint(log, err, s.Ready("p"), fmt.Sprintf("%+v %#v", s, s))
			if strings.Contains(said, hidden) || strings.Contains(said, "PRIVATE") || strings.Contains(said, "eyJ") {
				t.Errorf("a secret is in %s", said)
			}
			if got := strings.Count(log.String(), "\n"); got != 1 || !strings.Contains(log.String(), `"provider":"p"`) {
				t.Errorf("log = %s, want one line with the provider", log)
			}
		})
	}
}
