//go:build e2e

package e2e

import (
	"crypto/tls"
	"fmt"
	"maps"
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
	all := map[string]place{}
	for _, some := range []map[string]place{s.claudes(t), s.bedrocks(t), s.gpts(t), s.geminis(t)} {
		maps.Copy(all, some)
	}
	return all
}

// claudes serve Anthropic's dialect, but for Bedrock.
func (s *Stack) claudes(t testing.TB) map[string]place {
	foundry := func(a scripted.Auth) scripted.Platform { return scripted.Foundry{Auth: a} }
	return map[string]place{
		"anthropic":  s.keyed(t, "anthropic", fileProvider{API: "anthropic"}, "x-api-key", native("anthropic"), "claude-opus-5"),
		"anthropic2": s.keyed(t, "anthropic2", fileProvider{API: "anthropic"}, "x-api-key", native("anthropic"), "claude-opus-5"),
		"vertex":     s.vertex("anthropic", "global", "vertex@acme", "file:"+s.serviceAccount(t, "vertex@acme"), "claude-opus-5@20260101"),
		"foundry":    s.keyed(t, "foundry", fileProvider{API: "anthropic", Platform: "foundry"}, "x-api-key", foundry, "opus-prod"),
		"fentra":     s.entra("https://ai.azure.com", fileProvider{API: "anthropic", Platform: "foundry"}, foundry, "opus-prod"),
	}
}

// bedrocks are on Bedrock: each of its surfaces, and each way to prove who calls.
func (s *Stack) bedrocks(t testing.TB) map[string]place {
	invoke := func(a scripted.Auth) scripted.Platform {
		return scripted.Bedrock{Surface: "invoke", Auth: a, Clock: s.clock}
	}
	on := func(region, surface string, auth map[string]any) fileProvider {
		return fileProvider{API: "anthropic", Platform: "bedrock", Region: region, Surface: surface, Auth: auth}
	}
	signed := func(surface, service, profile, model string) place {
		id, secret, session := awsKey(profile)
		auth := scripted.SigV4{Region: "us-east-1", Service: service, Secret: scripted.StaticKey(id, secret, session), Clock: s.clock}
		return place{model: model, secrets: []string{id, secret, session},
			plays:  scripted.Bedrock{Surface: surface, Clock: s.clock, Auth: auth},
			config: on("us-east-1", surface, map[string]any{"aws": "profile:" + profile})}
	}
	return map[string]place{
		"invoke":  signed("invoke", "bedrock", "invoke", "us.anthropic.claude-opus-5-v1:0"),
		"runtime": signed("messages", "bedrock", "runtime", "global.anthropic.claude-opus-5"),
		"mantle":  signed("mantle", "bedrock-mantle", "mantle", "anthropic.claude-opus-5"),
		"web": {model: "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-opus-5", kind: "aws", owner: roleARN,
			plays:  invoke(scripted.SigV4{Region: "eu-west-1", Service: "bedrock", Secret: s.issuer.Keys, Clock: s.clock}),
			config: on("eu-west-1", "invoke", map[string]any{"aws": "default"})},
		"apikey": s.keyed(t, "apikey", on("us-west-2", "invoke", nil), "bearer", invoke, "anthropic.claude-opus-5"),
	}
}

// gpts serve OpenAI's dialect.
func (s *Stack) gpts(t testing.TB) map[string]place {
	azure := func(a scripted.Auth) scripted.Platform { return scripted.Azure{Auth: a} }
	classic := func(a scripted.Auth) scripted.Platform { return scripted.Azure{APIVersion: "2024-10-21", Auth: a} }
	return map[string]place{
		"openai":  s.keyed(t, "openai", fileProvider{API: "openai"}, "bearer", native("openai"), "gpt-5.1"),
		"openai2": s.keyed(t, "openai2", fileProvider{API: "openai"}, "bearer", native("openai"), "gpt-5.1"),
		"azure":   s.keyed(t, "azure", fileProvider{API: "openai", Platform: "azure"}, "api-key", azure, "gpt-prod"),
		"entra": s.entra("https://cognitiveservices.azure.com", fileProvider{API: "openai", Platform: "azure", APIVersion: "2024-10-21"},
			classic, "gpt-classic"),
		"own": {model: "gpt-5.1", secrets: []string{clientKey},
			plays:  native("openai")(scripted.Bearer{Valid: scripted.Exactly(clientKey)}),
			config: fileProvider{API: "openai", Auth: map[string]any{"from": "client"}}},
	}
}

func (s *Stack) geminis(t testing.TB) map[string]place {
	return map[string]place{
		"gemini":  s.keyed(t, "gemini", fileProvider{API: "gemini"}, "x-goog-api-key", native("gemini"), "gemini-3-pro"),
		"vgemini": s.vertex("gemini", "europe-west4", "gemini@acme", "default", "gemini-3-pro"),
	}
}

// clock is that of the platforms.
func (s *Stack) clock() time.Time { return time.Now().Add(s.plan.skew) }

func native(api string) func(scripted.Auth) scripted.Platform {
	return func(a scripted.Auth) scripted.Platform { return scripted.Native{API: api, Auth: a} }
}

// keyed is a place that is called with a key, in a header of its own or as "bearer".
func (s *Stack) keyed(t testing.TB, name string, config fileProvider, header string, plays func(scripted.Auth) scripted.Platform, model string) place {
	valid := scripted.Exactly(keyOf(name), newKeyOf(name))
	config.Auth = map[string]any{"header": header, "secret": s.secretFile(t, name, keyOf(name))}
	auth := scripted.Auth(scripted.Key{Header: header, Valid: valid})
	if header == "bearer" {
		config.Auth = map[string]any{"bearer": config.Auth["secret"]}
		auth = scripted.Bearer{Valid: valid}
	}
	return place{plays: plays(auth), config: config, model: model, secrets: []string{keyOf(name), newKeyOf(name)}}
}

// vertex is a place that is called with tokens of a service account.
func (s *Stack) vertex(api, region, account, gcp, model string) place {
	return place{model: model, kind: "gcp", owner: account,
		plays:  scripted.Vertex{API: api, Project: "acme-prod", Region: region, Auth: scripted.Bearer{Valid: s.issuer.Token("gcp", account)}},
		config: fileProvider{API: api, Platform: "vertex", Region: region, Project: "acme-prod", Auth: map[string]any{"gcp": gcp}}}
}

// entra is a place that is called with tokens of the managed identity, for a resource.
func (s *Stack) entra(resource string, config fileProvider, plays func(scripted.Auth) scripted.Platform, model string) place {
	config.Auth = map[string]any{"azure": "default"}
	return place{model: model, kind: "entra", owner: resource, config: config,
		plays: plays(scripted.Bearer{Valid: s.issuer.Token("entra", resource)})}
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
	s.issuer.Break(s.plan.mute)
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
	aws := []string{
		"AWS_WEB_IDENTITY_TOKEN_FILE=" + path("web-identity", identity), "AWS_ROLE_ARN=" + roleARN,
		"AWS_ENDPOINT_URL_STS=" + s.issuerURL + "/sts",
	}
	if s.plan.container {
		aws = []string{"AWS_CONTAINER_CREDENTIALS_FULL_URI=" + s.issuerURL + "/aws", "AWS_CONTAINER_AUTHORIZATION_TOKEN=" + identity}
	}
	s.env = append(aws,
		"AWS_SHARED_CREDENTIALS_FILE="+path("aws-credentials", shared.String()), "AWS_CONFIG_FILE="+path("aws-config", ""),
		"AWS_EC2_METADATA_DISABLED=true",
		"GOOGLE_APPLICATION_CREDENTIALS="+s.serviceAccount(t, "gemini@acme"),
		"IDENTITY_ENDPOINT="+s.issuerURL+"/entra", "IDENTITY_HEADER="+identity,
		"NO_PROXY=*", "HOME="+s.dir,
	)
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
