//go:build e2e

package e2e

import (
	"crypto/tls"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"understudy/internal/scripted"
)

// place is an account where a dialect is served: a scripted provider that plays it strictly, and how the config tells of
// it. Its name is that of both.
type place struct {
	plays   scripted.Platform
	config  fileProvider
	model   string   // of its targets
	secrets []string // what must reach no other; of issued credentials see Stack.secrets
	kind    string   // of its issued credentials
	owner   string   // and whom they are for
}

// says is what every place names itself, so that all answer alike.
var says = scripted.Persona{Name: "it", Model: "the-model"}

// identity is what a service shows to be given credentials.
const identity = "the-identity-of-the-service"

// keyOf makes a key, as unlike all others as real ones are.
func keyOf(place string) string { return "sk-of-" + place + "-4f1c9a" }

// newKeyOf is the key that comes after it; both hold for a while.
func newKeyOf(place string) string { return "sk-of-" + place + "-new-7b2e" }

// awsKey are the id, secret key and session token of a profile.
func awsKey(profile string) (id, secret, session string) {
	return "AKIA" + strings.ToUpper(strings.ReplaceAll(profile, "-", "")) + "0000", "aws/secret+of-" + profile, "aws-session-of-" + profile
}

// profiles are in the shared credentials file of AWS.
var profiles = []string{"invoke", "runtime", "mantle"}

// catalogue has the places by name, made for a stack that has its issuer and its folder.
func (s *Stack) catalogue(t testing.TB) map[string]place {
	t.Helper()
	clock := func() time.Time { return time.Now().Add(s.plan.skew) }
	keyed := func(name, api, platform, header string, plays func(scripted.Auth) scripted.Platform, model string) place {
		config := fileProvider{API: api, Platform: platform, Auth: map[string]any{"header": header, "secret": s.secretFile(t, name, keyOf(name))}}
		var a scripted.Auth = scripted.Key{Header: header, Valid: scripted.Exactly(keyOf(name), newKeyOf(name))}
		if header == "bearer" {
			config.Auth = map[string]any{"bearer": s.secretFile(t, name, keyOf(name))}
			a = scripted.Bearer{Valid: scripted.Exactly(keyOf(name), newKeyOf(name))}
		}
		return place{plays: plays(a), config: config, model: model, secrets: []string{keyOf(name)}}
	}
	native := func(api string) func(scripted.Auth) scripted.Platform {
		return func(a scripted.Auth) scripted.Platform { return scripted.Native{API: api, Auth: a} }
	}
	bedrock := func(surface, profile, model string) place {
		id, secret, session := awsKey(profile)
		service := "bedrock"
		if surface == "mantle" {
			service = "bedrock-mantle"
		}
		return place{model: model, secrets: []string{id, secret, session},
			plays: scripted.Bedrock{Surface: surface, Clock: clock, Auth: scripted.SigV4{Region: "us-east-1", Service: service,
				Secret: scripted.StaticKey(id, secret, session), Clock: clock}},
			config: fileProvider{API: "anthropic", Platform: "bedrock", Surface: surface, Region: "us-east-1", Auth: map[string]any{"aws": "profile:" + profile}}}
	}
	vertex := func(api, region, account, gcp, model string) place {
		return place{model: model, kind: "gcp", owner: account,
			plays:  scripted.Vertex{API: api, Project: "acme-prod", Region: region, Auth: scripted.Bearer{Valid: s.issuer.Token("gcp", account)}},
			config: fileProvider{API: api, Platform: "vertex", Region: region, Project: "acme-prod", Auth: map[string]any{"gcp": gcp}}}
	}
	places := map[string]place{
		"anthropic":  keyed("anthropic", "anthropic", "", "x-api-key", native("anthropic"), "claude-opus-5"),
		"anthropic2": keyed("anthropic2", "anthropic", "", "x-api-key", native("anthropic"), "claude-opus-5"),
		"invoke":     bedrock("invoke", "invoke", "us.anthropic.claude-opus-5-v1:0"),
		"runtime":    bedrock("messages", "runtime", "global.anthropic.claude-opus-5"),
		"mantle":     bedrock("mantle", "mantle", "anthropic.claude-opus-5"),
		"web": {model: "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-opus-5", kind: "aws", owner: roleARN,
			plays: scripted.Bedrock{Surface: "invoke", Clock: clock, Auth: scripted.SigV4{Region: "eu-west-1", Service: "bedrock",
				Secret: s.issuer.Keys, Clock: clock}},
			config: fileProvider{API: "anthropic", Platform: "bedrock", Region: "eu-west-1", Auth: map[string]any{"aws": "default"}}},
		"vertex": vertex("anthropic", "global", "vertex@acme", "file:"+s.serviceAccount(t, "vertex@acme"), "claude-opus-5@20260101"),
		"foundry": keyed("foundry", "anthropic", "foundry", "x-api-key",
			func(a scripted.Auth) scripted.Platform { return scripted.Foundry{Auth: a} }, "opus-prod"),
		"fentra": {model: "opus-prod", kind: "entra", owner: "https://ai.azure.com",
			plays:  scripted.Foundry{Auth: scripted.Bearer{Valid: s.issuer.Token("entra", "https://ai.azure.com")}},
			config: fileProvider{API: "anthropic", Platform: "foundry", Auth: map[string]any{"azure": "default"}}},
		"apikey": in(keyed("apikey", "anthropic", "bedrock", "bearer",
			func(a scripted.Auth) scripted.Platform {
				return scripted.Bedrock{Surface: "invoke", Clock: clock, Auth: a}
			}, "anthropic.claude-opus-5"), "us-west-2"),
		"openai":  keyed("openai", "openai", "", "bearer", native("openai"), "gpt-5.1"),
		"openai2": keyed("openai2", "openai", "", "bearer", native("openai"), "gpt-5.1"),
		"azure": keyed("azure", "openai", "azure", "api-key",
			func(a scripted.Auth) scripted.Platform { return scripted.Azure{Auth: a} }, "gpt-prod"),
		"entra": {model: "gpt-classic", kind: "entra", owner: "https://cognitiveservices.azure.com",
			plays:  scripted.Azure{APIVersion: "2024-10-21", Auth: scripted.Bearer{Valid: s.issuer.Token("entra", "https://cognitiveservices.azure.com")}},
			config: fileProvider{API: "openai", Platform: "azure", APIVersion: "2024-10-21", Auth: map[string]any{"azure": "default"}}},
		"own": {model: "gpt-5.1", secrets: []string{clientKey},
			plays:  scripted.Native{API: "openai", Auth: scripted.Bearer{Valid: scripted.Exactly(clientKey)}},
			config: fileProvider{API: "openai", Auth: map[string]any{"from": "client"}}},
		"gemini":  keyed("gemini", "gemini", "", "x-goog-api-key", native("gemini"), "gemini-3-pro"),
		"vgemini": vertex("gemini", "europe-west4", "gemini@acme", "default", "gemini-3-pro"),
	}
	return places
}

// in is a place in a region.
func in(p place, region string) place {
	p.config.Region = region
	return p
}

const roleARN = "arn:aws:iam::123456789012:role/understudy"

// secretFile is a reference to a file with a secret in it.
func (s *Stack) secretFile(t testing.TB, name, secret string) string {
	t.Helper()
	path := filepath.Join(s.dir, name+".secret")
	write(t, path, []byte(secret+"\n"))
	return "file:" + path
}

// serviceAccount is a credentials file of Google's.
func (s *Stack) serviceAccount(t testing.TB, account string) string {
	t.Helper()
	data, err := s.issuer.ServiceAccount(s.issuerURL, account)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.dir, account+".json")
	write(t, path, data)
	return path
}

// startPlaces serves the plan's places, and what issues their credentials.
func (s *Stack) startPlaces(t *testing.T, ca *scripted.CA) {
	t.Helper()
	life := s.plan.life
	if life == 0 {
		life = time.Hour
	}
	var err error
	if s.issuer, err = scripted.NewIssuer(life, identity); err != nil {
		t.Fatal(err)
	}
	s.issuerURL = serveAt(t, s.issuer, "127.0.0.1", nil)
	s.placesEnv(t)
	host, cert := "127.0.0.1", (*tls.Certificate)(nil)
	if s.plan.tls {
		host, cert = "localhost", leaf(t, ca, "localhost")
	}
	s.places = map[string]place{}
	catalogue := s.catalogue(t)
	for _, name := range s.plan.places {
		p, ok := catalogue[name]
		if !ok {
			t.Fatalf("no place is named %q", name)
		}
		provider := scripted.New(name, scripted.Options{Models: []string{p.model}, As: says, Platform: p.plays})
		p.config.Endpoint = serveAt(t, provider, host, cert)
		p.config.Insecure = cert == nil
		if cert != nil {
			p.config.CA = filepath.Join(s.dir, "ca.pem")
		}
		s.providers[name], s.places[name] = provider, p
	}
}

// placesEnv is where the service finds what is not in its config.
func (s *Stack) placesEnv(t testing.TB) {
	t.Helper()
	var shared strings.Builder
	for _, profile := range profiles {
		id, secret, session := awsKey(profile)
		fmt.Fprintf(&shared, "[%s]\naws_access_key_id = %s\naws_secret_access_key = %s\naws_session_token = %s\n\n", profile, id, secret, session)
	}
	path := func(name, content string) string {
		file := filepath.Join(s.dir, name)
		write(t, file, []byte(content))
		return file
	}
	s.env = []string{
		"AWS_SHARED_CREDENTIALS_FILE=" + path("aws-credentials", shared.String()), "AWS_CONFIG_FILE=" + path("aws-config", ""),
		"AWS_WEB_IDENTITY_TOKEN_FILE=" + path("web-identity", identity), "AWS_ROLE_ARN=" + roleARN,
		"AWS_ENDPOINT_URL_STS=" + s.issuerURL + "/sts", "AWS_EC2_METADATA_DISABLED=true",
		"GOOGLE_APPLICATION_CREDENTIALS=" + s.serviceAccount(t, "gemini@acme"),
		"IDENTITY_ENDPOINT=" + s.issuerURL + "/entra", "IDENTITY_HEADER=" + identity,
		"NO_PROXY=*", "HOME=" + s.dir,
	}
}

// secrets are what an account has proved itself with, or could.
func (s *Stack) secrets(name string) []string {
	p := s.places[name]
	list := slices.Clone(p.secrets)
	for _, c := range s.issuer.Issued() {
		if c.Kind == p.kind && c.For == p.owner {
			list = append(list, c.Token)
			if c.ID != "" {
				list = append(list, c.ID, c.Secret)
			}
		}
	}
	return list
}

// refusals are what the places have complained of, which is nothing.
func (s *Stack) refusals(t testing.TB) {
	t.Helper()
	for name := range s.places {
		for _, r := range s.providers[name].Requests("") {
			if r.Refused != "" {
				t.Errorf("%s refused %s of %s: %s", name, r.Path, r.ID, r.Refused)
			}
		}
	}
}
