package scripted

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Issuer plays what clouds issue credentials with, each good for Life: Google's token endpoint (POST /gcp), AWS's STS
// (POST /sts) and container credentials (GET /aws), and the managed identity of Microsoft's (GET /entra). Every call
// gives another credential.
//
// Concurrency: safe for any number of goroutines.
type Issuer struct {
	Life   time.Duration
	Secret string // what the callers of /sts, /aws and /entra have to show

	mux *http.ServeMux
	key *rsa.PrivateKey // of Google's service accounts

	// mu guards the fields below.
	mu     sync.Mutex
	issued []Issued
	broken bool
}

// Issued is one credential.
type Issued struct {
	Kind   string // gcp, aws or entra
	For    string // the account of Google's, the role or container of AWS's, the resource of Microsoft's
	Token  string // of AWS the session token
	ID     string // of AWS: access key id
	Secret string // of AWS: secret access key
	Ends   time.Time
}

// NewIssuer makes one.
func NewIssuer(life time.Duration, secret string) (*Issuer, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	i := &Issuer{Life: life, Secret: secret, key: key, mux: http.NewServeMux()}
	i.mux.HandleFunc("POST /gcp", i.gcp)
	i.mux.HandleFunc("POST /sts", i.sts)
	i.mux.HandleFunc("GET /aws", i.container)
	i.mux.HandleFunc("GET /entra", i.entra)
	return i, nil
}

// ServeHTTP implements http.Handler.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	broken := i.broken
	i.mu.Unlock()
	if broken {
		reply(w, http.StatusServiceUnavailable, `{"error":"temporarily_unavailable"}`)
		return
	}
	i.mux.ServeHTTP(w, r)
}

// Break has every call fail, or no longer.
func (i *Issuer) Break(broken bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.broken = broken
}

// Issued are all credentials so far.
func (i *Issuer) Issued() []Issued {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.issued)
}

// ServiceAccount is the content of a credentials file of Google's, for an issuer that is served at url.
func (i *Issuer) ServiceAccount(url, account string) ([]byte, error) {
	key, err := x509.MarshalPKCS8PrivateKey(i.key)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]string{
		"type": "service_account", "project_id": "scripted", "client_email": account, "private_key_id": "scripted",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})), "token_uri": url + "/gcp",
	})
}

// Token accepts the live tokens of one kind and one account or resource.
func (i *Issuer) Token(kind, to string) func(string) error {
	return func(got string) error {
		i.mu.Lock()
		defer i.mu.Unlock()
		for _, c := range i.issued {
			if c.Token == got {
				return c.holds(kind, to)
			}
		}
		return errors.New("nobody has issued this token")
	}
}

func (c Issued) holds(kind, to string) error {
	switch {
	case c.Kind != kind || c.For != to:
		return fmt.Errorf("a token of %s for %s, want one of %s for %s", c.Kind, c.For, kind, to)
	case time.Now().After(c.Ends):
		return fmt.Errorf("the token has expired at %s", c.Ends)
	}
	return nil
}

// Keys are the live keys of AWS for [SigV4].
func (i *Issuer) Keys(id string) (secret, session string, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, c := range i.issued {
		switch {
		case c.Kind != "aws" || c.ID != id:
		case time.Now().After(c.Ends):
			return "", "", awsError{"ExpiredTokenException", "The security token included in the request is expired"}
		default:
			return c.Secret, c.Token, nil
		}
	}
	return "", "", noKey()
}

func noKey() error {
	return awsError{"UnrecognizedClientException", "The security token included in the request is invalid."}
}

// StaticKey is one key of AWS that never ends, for [SigV4].
func StaticKey(id, secret, session string) func(string) (string, string, error) {
	return func(got string) (string, string, error) {
		if got != id {
			return "", "", noKey()
		}
		return secret, session, nil
	}
}

// issue makes a credential.
func (i *Issuer) issue(kind, to string) Issued {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := len(i.issued)
	c := Issued{Kind: kind, For: to, Token: fmt.Sprintf("%s-token-%d-%s", kind, n, rand.Text()), Ends: time.Now().Add(i.Life)}
	if kind == "aws" {
		c.ID, c.Secret = "ASIA"+rand.Text()[:16], rand.Text()
	}
	i.issued = append(i.issued, c)
	return c
}

// gcp answers the grant of RFC 7523: a JWT that the service account has signed.
func (i *Issuer) gcp(w http.ResponseWriter, r *http.Request) {
	account, err := i.assertion(r)
	if err != nil {
		reply(w, http.StatusBadRequest, fmt.Sprintf(`{"error":"invalid_grant","error_description":%s}`, quote(err.Error())))
		return
	}
	c := i.issue("gcp", account)
	reply(w, http.StatusOK, fmt.Sprintf(`{"access_token":%s,"expires_in":%d,"token_type":"Bearer"}`, quote(c.Token), int(i.Life.Seconds())))
}

// assertion is the account that a valid JWT is of.
func (i *Issuer) assertion(r *http.Request) (string, error) {
	if got := r.FormValue("grant_type"); got != "urn:ietf:params:oauth:grant-type:jwt-bearer" {
		return "", fmt.Errorf("grant_type %q", got)
	}
	parts := strings.Split(r.FormValue("assertion"), ".")
	if len(parts) != 3 {
		return "", errors.New("the assertion is no JWT")
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err := rsa.VerifyPKCS1v15(&i.key.PublicKey, crypto.SHA256, sum[:], signature); err != nil {
		return "", err
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", err
	}
	var c struct {
		Iss, Aud, Scope string
		Exp             int64
	}
	if err := json.Unmarshal(claims, &c); err != nil {
		return "", err
	}
	if c.Aud != "http://"+r.Host+"/gcp" || c.Scope != "https://www.googleapis.com/auth/cloud-platform" || time.Now().Unix() > c.Exp {
		return "", fmt.Errorf("the claims do not fit: %s", claims)
	}
	return c.Iss, nil
}

// sts answers AssumeRoleWithWebIdentity.
func (i *Issuer) sts(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("Action") != "AssumeRoleWithWebIdentity" || r.FormValue("WebIdentityToken") != i.Secret || r.FormValue("RoleArn") == "" {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `<ErrorResponse><Error><Type>Sender</Type><Code>InvalidIdentityToken</Code><Message>no such identity</Message></Error></ErrorResponse>`)
		return
	}
	c := i.issue("aws", r.FormValue("RoleArn"))
	w.Header().Set("content-type", "text/xml")
	fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><Credentials>`+
		`<AccessKeyId>%s</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><SessionToken>%s</SessionToken><Expiration>%s</Expiration>`+
		`</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`, c.ID, c.Secret, c.Token, c.Ends.UTC().Format(time.RFC3339Nano))
}

// container answers as AWS_CONTAINER_CREDENTIALS_FULL_URI.
func (i *Issuer) container(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("authorization") != i.Secret {
		reply(w, http.StatusUnauthorized, `{"code":"AccessDenied","message":"no such container"}`)
		return
	}
	c := i.issue("aws", "container")
	reply(w, http.StatusOK, fmt.Sprintf(`{"AccessKeyId":%s,"SecretAccessKey":%s,"Token":%s,"Expiration":%s}`,
		quote(c.ID), quote(c.Secret), quote(c.Token), quote(c.Ends.UTC().Format(time.RFC3339Nano))))
}

// entra answers as IDENTITY_ENDPOINT does on App Service.
func (i *Issuer) entra(w http.ResponseWriter, r *http.Request) {
	resource := r.FormValue("resource")
	if r.Header.Get("x-identity-header") != i.Secret || resource == "" {
		reply(w, http.StatusBadRequest, `{"statusCode":400,"message":"no such identity"}`)
		return
	}
	c := i.issue("entra", resource)
	reply(w, http.StatusOK, fmt.Sprintf(`{"access_token":%s,"expires_on":"%d","resource":%s,"token_type":"Bearer"}`,
		quote(c.Token), c.Ends.Unix(), quote(resource)))
}
