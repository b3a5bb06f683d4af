package credential

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"understudy/pkg/config"
)

// entraScope is the audience of a token: of Azure OpenAI (openai-go, azure/azure.go), or of Foundry's Anthropic
// endpoints (anthropic-sdk-go, foundry/foundry.go).
func entraScope(p config.Platform) string {
	if p == config.Foundry {
		return "https://ai.azure.com/.default"
	}
	return "https://cognitiveservices.azure.com/.default"
}

// entra gets tokens of Microsoft's by the SDK's default chain: environment, workload identity, managed identity, then
// the tools of a developer.
type entra struct {
	scope   string
	options azcore.ClientOptions
}

// fetch makes the chain anew: it caches its token until minutes before the end, and a secret or certificate for ever.
func (e entra) fetch(ctx context.Context) (lease, error) {
	chain, err := azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{ClientOptions: e.options})
	if err != nil {
		return lease{}, err
	}
	t, err := chain.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{e.scope}})
	if err != nil {
		return lease{}, err
	}
	return bearer(t.Token, t.ExpiresOn)
}
