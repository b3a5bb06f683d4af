package config_test

import (
	"fmt"

	"understudy/pkg/config"
)

func ExampleParse() {
	c, err := config.Parse("understudy.yaml", []byte(`
providers:
  anthropic:
    api: anthropic
    endpoint: https://api.anthropic.com
    auth: {header: x-api-key, secret: env:ANTHROPIC_API_KEY}
targets:
  anthropic/sonnet: {provider: anthropic, model: claude-sonnet-5}
chains:
  chat:
    match: [{path: /v1/messages}]
    targets: [anthropic/sonnet]
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	chain, _ := c.Chain("/v1/messages", "claude-sonnet-5", "")
	fmt.Println(chain.Name, chain.Rungs[0].Target.Name, chain.Deadlines.FirstContent)

	_, err = config.Parse("understudy.yaml", []byte(`
chains:
  chat:
    match: [{path: /v1/messages}]
    target: [anthropic/sonnet]
`))
	fmt.Println(err)
	// Output:
	// chat anthropic/sonnet 30s
	// understudy.yaml:3: chains.chat.targets: needs at least one target
	// understudy.yaml:5: chains.chat.target: unknown key: did you mean targets?
}
