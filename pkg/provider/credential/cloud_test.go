package credential

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"understudy/pkg/config"
)

// quiet takes every credential of the machine's own out of the test's environment.
func quiet(t *testing.T) {
	t.Helper()
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		for _, prefix := range []string{"AWS_", "GOOGLE_", "GCE_", "AZURE_", "IDENTITY_", "MSI_"} {
			if strings.HasPrefix(name, prefix) {
				t.Setenv(name, "") // so that it is put back
				os.Unsetenv(name)
			}
		}
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("NO_PROXY", "*")
}

// serve is a server on the loopback interface that answers every call by f.
func serve(t *testing.T, f http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL
}

// started is a running Set with the one provider p.
func started(t *testing.T, p config.Provider) *Set {
	t.Helper()
	p.Name = "p"
	s := newSet(&config.Config{Providers: map[string]*config.Provider{"p": &p}}, nil)
	s.Start(t.Context())
	t.Cleanup(s.Stop)
	return s
}

// sts answers AssumeRoleWithWebIdentity with keys that end after life.
func sts(t *testing.T, life time.Duration, calls func(url.Values)) string {
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		form, err := url.ParseQuery(string(body))
		if err != nil || form.Get("Action") != "AssumeRoleWithWebIdentity" {
			w.WriteHeader(400)
			return
		}
		calls(form)
		fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>
			<AccessKeyId>ASIAWEB</AccessKeyId><SecretAccessKey>web-secret</SecretAccessKey><SessionToken>%s</SessionToken>
			<Expiration>%[1]s</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`,
			time.Now().UTC().Add(life).Format(time.RFC3339Nano))
	})
}

func webIdentity(t *testing.T, sts string) {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	write(t, token, "the-web-identity")
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token)
	t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/understudy")
	t.Setenv("AWS_ENDPOINT_URL_STS", sts)
}

func TestAWSFindsItsCredentials(t *testing.T) {
	for _, row := range []struct {
		name, aws string
		set       func(t *testing.T)
		key       string
		token     bool
	}{
		{"in the environment", "default", func(t *testing.T) {
			t.Setenv("AWS_ACCESS_KEY_ID", "AKIDENV")
			t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
			t.Setenv("AWS_SESSION_TOKEN", "st")
		}, "AKIDENV", true},
		{"in a profile, though there are others in the environment", "profile:prod", func(t *testing.T) {
			t.Setenv("AWS_ACCESS_KEY_ID", "AKIDENV")
			t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
			file := filepath.Join(t.TempDir(), "credentials")
			write(t, file, "[default]\naws_access_key_id=AKIDDEFAULT\naws_secret_access_key=s\n"+
				"[prod]\naws_access_key_id=AKIDPROD\naws_secret_access_key=s\n")
			t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
		}, "AKIDPROD", false},
		{"by web identity", "default", func(t *testing.T) {
			webIdentity(t, sts(t, time.Hour, func(form url.Values) {
				if got := form.Get("WebIdentityToken"); got != "the-web-identity" {
					t.Errorf("WebIdentityToken = %q, want the file's", got)
				}
			}))
		}, "ASIAWEB", true},
		{"of a container", "default", func(t *testing.T) {
			t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "pod")
			t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") == "pod" {
					instanceKeys(w, "ASIACONTAINER")
				}
			}))
		}, "ASIACONTAINER", true},
		{"of an instance", "default", func(t *testing.T) {
			t.Setenv("AWS_EC2_METADATA_DISABLED", "false")
			t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", serve(t, imds))
		}, "ASIAINSTANCE", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			quiet(t)
			row.set(t)
			s := started(t, config.Provider{Region: "eu-central-1", Surface: config.Mantle, Auth: config.Auth{AWS: row.aws}})
			headers, err := s.Sign(t.Context(), "p", Request{Method: "POST", Host: "h", Path: "/"})
			got := byName(headers)
			want := "AWS4-HMAC-SHA256 Credential=" + row.key + "/" + time.Now().UTC().Format("20060102") +
				"/eu-central-1/bedrock-mantle/aws4_request, "
			if err != nil || !strings.HasPrefix(got["authorization"], want) || (got["x-amz-security-token"] != "") != row.token {
				t.Errorf("Sign() = %v, %v, want %s… and a token: %t", headers, err, want, row.token)
			}
			if err := s.Ready("p"); err != nil {
				t.Errorf("Ready() = %v, want nil", err)
			}
		})
	}
}

// imds is the instance metadata service, version 2.
func imds(w http.ResponseWriter, r *http.Request) {
	switch path, ok := strings.CutPrefix(r.URL.Path, "/latest/meta-data/iam/security-credentials"); {
	case r.Method == "PUT":
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "21600")
		io.WriteString(w, "session")
	case !ok || r.Header.Get("X-Aws-Ec2-Metadata-Token") != "session":
		w.WriteHeader(401)
	case strings.Trim(path, "/") == "":
		io.WriteString(w, "role")
	default:
		instanceKeys(w, "ASIAINSTANCE")
	}
}

func instanceKeys(w io.Writer, key string) {
	fmt.Fprintf(w, `{"Code":"Success","AccessKeyId":%q,"SecretAccessKey":"s","Token":"t","Expiration":%q}`,
		key, time.Now().UTC().Add(time.Hour).Format(time.RFC3339))
}

// TestNoCallFailsWhileCredentialsEnd calls a platform that refuses what has ended, through two renewals.
func TestNoCallFailsWhileCredentialsEnd(t *testing.T) {
	quiet(t)
	third, calls := make(chan bool), 0
	webIdentity(t, sts(t, 1500*time.Millisecond, func(url.Values) {
		if calls++; calls == 3 {
			close(third)
		}
	}))
	s := started(t, config.Provider{Region: "us-east-1", Auth: config.Auth{AWS: "default"}})
	for limit := time.After(10 * time.Second); ; {
		headers, err := s.Sign(t.Context(), "p", Request{Method: "POST", Host: "h", Path: "/"})
		if err != nil {
			t.Fatalf("Sign() = %v, want nil", err)
		}
		ends, err := time.Parse(time.RFC3339Nano, byName(headers)["x-amz-security-token"]) // sts says so in its tokens
		if err != nil || !time.Now().Before(ends.Add(time.Second/4)) {                     // on a machine that is busy
			t.Fatalf("Sign() used a token that ended at %s, %v; now is %s", ends, err, time.Now())
		}
		select {
		case <-third:
			return
		case <-limit:
			t.Fatal("no second renewal within 10 s")
		default:
		}
	}
}

// TestASkewedClockIsCorrectedOnce calls a platform whose clock is an hour ahead.
func TestASkewedClockIsCorrectedOnce(t *testing.T) {
	quiet(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDENV")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
	platform := serve(t, func(w http.ResponseWriter, r *http.Request) {
		now := time.Now().Add(time.Hour)
		w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
		signed, err := time.Parse(amzDate, r.Header.Get("x-amz-date"))
		if err != nil || now.Sub(signed).Abs() > 5*time.Minute {
			w.Header().Set("X-Amzn-ErrorType", "InvalidSignatureException")
			w.WriteHeader(403)
			io.WriteString(w, `{"message":"Signature expired: … is now earlier than …"}`)
		}
	})
	s := started(t, config.Provider{Region: "us-east-1", Auth: config.Auth{AWS: "default"}})
	try := func() (status int, signed, date string) {
		req, _ := http.NewRequestWithContext(t.Context(), "POST", platform, nil)
		headers, err := s.Sign(t.Context(), "p", Request{Method: "POST", Host: req.Host, Path: "/"})
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range headers {
			req.Header.Set(h.Name, h.Value)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode, req.Header.Get("x-amz-date"), res.Header.Get("Date")
	}
	status, signed, date := try()
	if status != 403 || !s.Skewed("p", signed, date) {
		t.Errorf("the first call = %d, and Skewed(%s, %s) = false, want 403 and true", status, signed, date)
	}
	if !s.Skewed("p", signed, date) {
		t.Error("Skewed() of a call that was under way meanwhile = false, want true: its next attempt may pass")
	}
	status, signed, date = try()
	if status != 200 {
		t.Errorf("the second call = %d, want 200", status)
	}
	if s.Skewed("p", signed, date) {
		t.Error("Skewed() with the right time = true, want false: the clock is not why a call is refused")
	}
}

func TestSkewedBelievesOnlyADate(t *testing.T) {
	quiet(t)
	s := newSet(one(config.Auth{AWS: "default"}), nil)
	for _, row := range []struct{ name, signed, date string }{
		{"no Date", "20261130T000000Z", ""},
		{"no time of signing", "", "Mon, 30 Nov 2026 01:00:00 GMT"},
		{"not a Date", "20261130T000000Z", "tomorrow"},
		{"four minutes apart", "20261130T000000Z", "Mon, 30 Nov 2026 00:04:00 GMT"},
	} {
		if s.Skewed("p", row.signed, row.date) {
			t.Errorf("%s: Skewed(%s, %s) = true, want false", row.name, row.signed, row.date)
		}
	}
	if newSet(one(config.Auth{GCP: "default"}), nil).Skewed("p", "20261130T000000Z", "Mon, 30 Nov 2026 01:00:00 GMT") {
		t.Error("Skewed() of a provider that takes tokens = true, want false")
	}
}

// serviceAccount is a key file for the token server, and the private key in it.
func serviceAccount(t *testing.T, server string) (file, key string) {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 1024) // quick to make
	if err != nil {
		t.Fatal(err)
	}
	key = string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(private)}))
	return jsonFile(t, map[string]string{
		"type": "service_account", "client_email": "u@acme.example", "private_key": key, "token_uri": server,
	}), key
}

func jsonFile(t *testing.T, fields map[string]string) string {
	t.Helper()
	data, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "credentials.json")
	write(t, file, string(data))
	return file
}

func TestGoogleFindsItsCredentials(t *testing.T) {
	answer := func(token string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"access_token":%q,"expires_in":3600,"token_type":"Bearer"}`, token)
		}
	}
	for _, row := range []struct {
		name string
		gcp  func(t *testing.T) string
		want map[string]string
	}{
		{"in a service account's file", func(t *testing.T) string {
			file, _ := serviceAccount(t, serve(t, answer("of-the-account")))
			return "file:" + file
		}, map[string]string{"authorization": "Bearer of-the-account"}},
		{"in the file that the environment names", func(t *testing.T) string {
			file, _ := serviceAccount(t, serve(t, answer("of-the-account")))
			t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
			t.Setenv("GOOGLE_CLOUD_QUOTA_PROJECT", "acme-quota")
			return "default"
		}, map[string]string{"authorization": "Bearer of-the-account", "x-goog-user-project": "acme-quota"}},
		{"of the metadata server", func(t *testing.T) string {
			t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Metadata-Flavor") == "Google" && r.URL.Query().Get("scopes") == "https://www.googleapis.com/auth/cloud-platform" {
					answer("of-the-instance")(w, r)
				}
			}), "http://"))
			return "default"
		}, map[string]string{"authorization": "Bearer of-the-instance"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			quiet(t)
			s := started(t, config.Provider{Auth: config.Auth{GCP: row.gcp(t)}})
			headers, err := s.Sign(t.Context(), "p", Request{})
			if got := byName(headers); err != nil || fmt.Sprint(got) != fmt.Sprint(row.want) {
				t.Errorf("Sign() = %v, %v, want %v", got, err, row.want)
			}
		})
	}
}

func TestAReplacedCredentialsFileIsUsed(t *testing.T) {
	google := func(token string) string {
		return serve(t, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"access_token":%q,"expires_in":3600}`, token)
		})
	}
	for _, row := range []struct {
		name  string
		files func(t *testing.T) (old, next string)
		auth  func(t *testing.T, file string) config.Auth
	}{
		{"keys of AWS that never end", func(t *testing.T) (old, next string) {
			old, next = filepath.Join(t.TempDir(), "old"), filepath.Join(t.TempDir(), "next")
			write(t, old, "[default]\naws_access_key_id=OLD\naws_secret_access_key=s\n")
			write(t, next, "[default]\naws_access_key_id=NEXT\naws_secret_access_key=s\n")
			return old, next
		}, func(t *testing.T, file string) config.Auth {
			t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
			return config.Auth{AWS: "default"}
		}},
		{"a service account of Google's", func(t *testing.T) (old, next string) {
			old, _ = serviceAccount(t, google("OLD"))
			next, _ = serviceAccount(t, google("NEXT"))
			return old, next
		}, func(_ *testing.T, file string) config.Auth { return config.Auth{GCP: "file:" + file} }},
	} {
		t.Run(row.name, func(t *testing.T) {
			quiet(t)
			old, next := row.files(t)
			s := started(t, config.Provider{Region: "us-east-1", Auth: row.auth(t, old)})
			until := func(want string) {
				t.Helper()
				for limit := time.Now().Add(10 * time.Second); ; {
					headers, err := s.Sign(t.Context(), "p", Request{Method: "POST", Host: "h", Path: "/"})
					if err != nil {
						t.Fatalf("Sign() = %v, want nil", err)
					}
					if strings.Contains(byName(headers)["authorization"], want) {
						return
					}
					if time.Now().After(limit) {
						t.Fatalf("Sign() = %v for 10 s, want %s", headers, want)
					}
				}
			}
			until("OLD")
			if err := os.Rename(next, old); err != nil {
				t.Fatal(err)
			}
			until("NEXT")
		})
	}
}

func TestAnExternalAccountExchangesItsToken(t *testing.T) {
	quiet(t)
	subject := filepath.Join(t.TempDir(), "subject")
	write(t, subject, "the-subject-token")
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("subject_token") != "the-subject-token" || r.FormValue("scope") != "https://www.googleapis.com/auth/cloud-platform" {
			w.WriteHeader(400)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"access_token":"federated","expires_in":3600,"token_type":"Bearer",
			"issued_token_type":"urn:ietf:params:oauth:token-type:access_token"}`)
	})
	file := filepath.Join(t.TempDir(), "external.json")
	write(t, file, `{"type":"external_account","subject_token_type":"urn:ietf:params:oauth:token-type:jwt",
		"audience":"//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
		"token_url":"`+server+`","credential_source":{"file":"`+subject+`"},"quota_project_id":"acme"}`)
	s := started(t, config.Provider{Auth: config.Auth{GCP: "file:" + file}})
	headers, err := s.Sign(t.Context(), "p", Request{})
	if got := byName(headers); err != nil || got["authorization"] != "Bearer federated" || got["x-goog-user-project"] != "acme" {
		t.Errorf("Sign() = %v, %v, want the federated token and the project", got, err)
	}
}
