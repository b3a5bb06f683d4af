package main

import (
	"context"
	_ "embed"
	"encoding/json"
)

// Peers do the same job: they take a Chat Completions call, send it to a provider, and to another one when that fails.
// Each is set up as its documentation says, with two workers where it has any, and without what would make it do more.

//go:embed litellm.yaml
var litellmYAML string

// litellmKey is what LiteLLM's clients must show.
const litellmKey = "sk-the-master-key-of-a-benchmark-and-of-nothing-else"

func startLiteLLM(ctx context.Context, s *stack, w *world) error {
	config, err := s.fill("litellm.yaml", litellmYAML, map[string]string{
		"primary": w.primary, "backup": w.backup, "model": model, "backup_model": backupModel, "key": litellmKey})
	if err != nil {
		return err
	}
	s.header = map[string]string{"authorization": "Bearer " + litellmKey}
	s.env = []string{"LITELLM_LOCAL_MODEL_COST_MAP=True", "LITELLM_LOG=ERROR"}
	gateway, err := s.run("gateway", s.litellm, "--config", config, "--host", "127.0.0.1", "--port", port(s.listen),
		"--num_workers", "2", "--telemetry", "False")
	if err != nil {
		return err
	}
	return gateway.ready(ctx, "http://"+s.listen+"/health/liveliness")
}

// portkeyTarget is one of a Portkey configuration, which travels with each request.
type portkeyTarget struct {
	Provider   string            `json:"provider"`
	CustomHost string            `json:"custom_host"`
	APIKey     string            `json:"api_key"`
	Override   map[string]string `json:"override_params,omitempty"`
}

type portkeyConfig struct {
	Strategy struct {
		Mode  string `json:"mode"`
		Codes []int  `json:"on_status_codes"`
	} `json:"strategy"`
	Targets []portkeyTarget `json:"targets"`
}

func startPortkey(ctx context.Context, s *stack, w *world) error {
	var c portkeyConfig
	c.Strategy.Mode, c.Strategy.Codes = "fallback", []int{500, 502, 503, 504}
	c.Targets = []portkeyTarget{
		{"openai", "http://" + w.primary + "/v1", "a-key", nil},
		{"openai", "http://" + w.backup + "/v1", "a-key", map[string]string{"model": backupModel}},
	}
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	s.header = map[string]string{"x-portkey-config": string(text)}
	s.env = []string{"NODE_ENV=production", "TRUSTED_CUSTOM_HOSTS=127.0.0.1"}
	gateway, err := s.run("gateway", "node", s.portkey, "--port="+port(s.listen), "--headless")
	if err != nil {
		return err
	}
	return gateway.ready(ctx, "http://"+s.listen+"/")
}
