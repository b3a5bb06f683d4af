package credential

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"understudy/pkg/config"
)

func TestEntraFindsTheManagedIdentity(t *testing.T) {
	for platform, scope := range map[config.Platform]string{
		config.Azure: "https://cognitiveservices.azure.com", config.Foundry: "https://ai.azure.com",
	} {
		t.Run(string(platform), func(t *testing.T) {
			quiet(t)
			t.Setenv("AZURE_CLIENT_ID", string(platform)) // the SDK remembers the tokens of one for the life of the process
			t.Setenv("IDENTITY_HEADER", "app-service")
			t.Setenv("IDENTITY_ENDPOINT", serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("X-Identity-Header") != "app-service" || r.FormValue("resource") != scope {
					w.WriteHeader(400)
					return
				}
				fmt.Fprintf(w, `{"access_token":"managed","expires_on":"%d","resource":%q,"token_type":"Bearer"}`,
					time.Now().Add(time.Hour).Unix(), scope)
			}))
			s := started(t, config.Provider{Platform: platform, Auth: config.Auth{Entra: "default"}})
			headers, err := s.Sign(t.Context(), "p", Request{})
			if len(headers) != 1 || headers[0] != (Header{"authorization", "Bearer managed"}) {
				t.Errorf("Sign() = %v, %v, want the managed identity's token", headers, err)
			}
		})
	}
}

// entraServer stands in for every host of Microsoft's that the SDK calls.
type entraServer func(*http.Request) (status int, body string)

func (f entraServer) Do(r *http.Request) (*http.Response, error) {
	status, body := f(r)
	if strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration") {
		base := "https://" + r.URL.Host + "/tenant"
		status, body = 200, `{"authorization_endpoint":"`+base+`/a","token_endpoint":"`+base+`/oauth2/v2.0/token","issuer":"`+base+`"}`
	}
	if strings.HasSuffix(r.URL.Path, "/discovery/instance") {
		status, body = 200, `{"tenant_discovery_endpoint":"https://login.microsoftonline.com/tenant/v2.0/.well-known/openid-configuration",
			"metadata":[{"preferred_network":"login.microsoftonline.com","preferred_cache":"login.windows.net","aliases":["login.microsoftonline.com"]}]}`
	}
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Request: r, Body: io.NopCloser(strings.NewReader(body)),
		Header: http.Header{"Content-Type": {"application/json"}},
	}, nil
}

func clientSecret(t *testing.T, secret string) {
	t.Helper()
	t.Setenv("AZURE_TENANT_ID", "tenant")
	t.Setenv("AZURE_CLIENT_ID", "client")
	t.Setenv("AZURE_CLIENT_SECRET", secret)
}

func TestEntraTakesAClientSecret(t *testing.T) {
	quiet(t)
	clientSecret(t, "the-client-secret")
	server := entraServer(func(r *http.Request) (int, string) {
		if r.ParseForm() != nil || r.PostForm.Get("client_secret") != "the-client-secret" {
			return 401, "{}"
		}
		return 200, `{"access_token":"of-the-client","expires_in":3600,"token_type":"Bearer"}`
	})
	e := entra{entraScope(config.Azure), azcore.ClientOptions{Transport: server}}
	l, err := e.fetch(t.Context())
	if got, ok := l.proof.(fixed); !ok || err != nil || got[0].Value != "Bearer of-the-client" || !l.lasts() {
		t.Errorf("fetch() = %v, %v, want the client's token", l, err)
	}
}

func TestARefusedClientSecretIsSaidByItsNumber(t *testing.T) {
	quiet(t)
	clientSecret(t, "hidden0123456789")
	server := entraServer(func(r *http.Request) (int, string) {
		return 401, `{"error":"invalid_client","error_description":"AADSTS7000215: Invalid client secret hidden0123456789"}`
	})
	_, err := entra{entraScope(config.Azure), azcore.ClientOptions{Transport: server}}.fetch(context.WithoutCancel(t.Context()))
	if got, want := reason(err), "Entra answered 401: AADSTS7000215"; got != want {
		t.Errorf("reason(%T) = %s, want %s", err, got, want)
	}
}
