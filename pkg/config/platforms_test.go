package config

import "testing"

func TestAPlatformsOwnEndpointNeedsNotBeWritten(t *testing.T) {
	for _, row := range []struct{ name, provider, want string }{
		{"Bedrock's runtime", "api: anthropic, platform: bedrock, region: us-east-1, auth: {aws: default}",
			"https://bedrock-runtime.us-east-1.amazonaws.com"},
		{"Messages on the runtime", "api: anthropic, platform: bedrock, region: eu-west-1, surface: messages, auth: {aws: default}",
			"https://bedrock-runtime.eu-west-1.amazonaws.com"},
		{"Bedrock's mantle", "api: anthropic, platform: bedrock, region: us-east-1, surface: mantle, auth: {bearer: env:KEY}",
			"https://bedrock-mantle.us-east-1.api.aws"},
		{"a location of Vertex", "api: anthropic, platform: vertex, region: us-east5, project: acme, auth: {gcp: default}",
			"https://us-east5-aiplatform.googleapis.com"},
		{"all of Vertex", "api: gemini, platform: vertex, region: global, project: acme, auth: {gcp: default}",
			"https://aiplatform.googleapis.com"},
		{"Vertex in the US", "api: gemini, platform: vertex, region: us, project: acme, auth: {gcp: default}",
			"https://aiplatform.us.rep.googleapis.com"},
		{"Vertex in the EU", "api: gemini, platform: vertex, region: eu, project: acme, auth: {gcp: default}",
			"https://aiplatform.eu.rep.googleapis.com"},
		{"Gemini's own API", "api: gemini, auth: {header: x-goog-api-key, secret: env:KEY}",
			"https://generativelanguage.googleapis.com"},
		{"a private endpoint of Bedrock", "api: anthropic, platform: bedrock, region: us-east-1, endpoint: https://vpce.example/, auth: {aws: default}",
			"https://vpce.example"},
		{"a resource of Azure", "api: openai, platform: azure, endpoint: https://acme.openai.azure.com/openai, auth: {azure: default}",
			"https://acme.openai.azure.com/openai"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := mustParse(t, "providers: {p: {"+row.provider+"}}\n"+
				"targets: {p/m: {provider: p, model: m}}\nchains: {chat: {select: header, targets: [p/m]}}")
			if got := c.Providers["p"].Endpoint.String(); got != row.want {
				t.Errorf("Endpoint of {%s} = %s, want %s", row.provider, got, row.want)
			}
		})
	}
}

func TestASurfaceIsBedrocksAlone(t *testing.T) {
	for provider, want := range map[string]Surface{
		"api: anthropic, platform: bedrock, region: us-east-1, auth: {aws: default}":                    Invoke,
		"api: anthropic, platform: bedrock, region: us-east-1, surface: mantle, auth: {aws: default}":   Mantle,
		"api: anthropic, platform: bedrock, region: us-east-1, surface: messages, auth: {aws: default}": Messages,
		"api: anthropic, endpoint: https://a.example, auth: {none: true}":                               "",
	} {
		c := mustParse(t, "providers: {p: {"+provider+"}}\n"+
			"targets: {p/m: {provider: p, model: m}}\nchains: {chat: {select: header, targets: [p/m]}}")
		if got := c.Providers["p"].Surface; got != want {
			t.Errorf("Surface of {%s} = %q, want %q", provider, got, want)
		}
	}
}

func TestADownshiftMayBeginWithAnyTargetOfARung(t *testing.T) {
	c := mustParse(t, `
providers: {a: {api: anthropic, endpoint: https://a.example, auth: {none: true}}}
targets:
  a/x: {provider: a, model: x}
  a/y: {provider: a, model: y}
  a/y2: {provider: a, model: y2, model_family: y}
chains:
  chat:
    match: [{path: /v1/messages}]
    targets: [a/x, {any: [a/y, a/y2], validated: true}]
    degrade: [downshift]
    downshift_from: a/y2
`)
	if got := c.Chains[0].Downshift; got != 1 {
		t.Errorf("Downshift = %d, want 1", got)
	}
}

// An account whose client brings the credential cannot hide behind the first of a rung.
func TestEveryTargetOfARungCountsForItsAccount(t *testing.T) {
	_, err := Parse("f", []byte(`
providers:
  a: {api: anthropic, endpoint: https://a.example, auth: {none: true}}
  byo: {api: anthropic, endpoint: https://b.example, auth: {from: client}}
targets:
  a/x: {provider: a, model: x}
  byo/x: {provider: byo, model: x}
chains:
  chat:
    match: [{path: /v1/messages}]
    targets: [{any: [a/x, byo/x]}]
    degrade: [queue]
`))
	const want = "f:12: chains.chat.degrade[0]: provider byo takes the client's own credential (auth.from: client), which is not kept: " +
		"a queued request could not run"
	if err == nil || err.Error() != want {
		t.Errorf("Parse = %v, want %s", err, want)
	}
}
