package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
	securityapi "istio.io/api/security/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	strict "sigs.k8s.io/yaml"

	"istio.io/istio/pkg/config"
	"istio.io/istio/pkg/config/schema/gvk"
	"istio.io/istio/pkg/config/validation"
	"istio.io/istio/pkg/config/validation/envoyfilter"
	"istio.io/istio/pkg/config/xds"
)

// readManifests reads resources as strictly as Istio's own types and validation can, a kind at a time, and gives back
// those that configure Istio.
func readManifests(files []string) ([]config.Config, error) {
	var all []config.Config
	for _, file := range files {
		docs, err := split(file)
		if err != nil {
			return nil, err
		}
		for i, doc := range docs {
			c, err := readManifest(doc)
			if err != nil {
				return nil, fmt.Errorf("%s: document %d: %w", file, i+1, err)
			}
			if c != nil {
				all = append(all, *c)
			}
		}
	}
	return all, nil
}

func split(file string) ([][]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var docs [][]byte
	for d := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(data))); ; {
		doc := make([]byte, len(data))
		n, err := d.Read(doc)
		if errors.Is(err, io.EOF) {
			return docs, nil
		} else if err != nil {
			return nil, err
		}
		docs = append(docs, doc[:n])
	}
}

type head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec json.RawMessage `json:"spec"`
}

// readManifest is nil for what is Kubernetes' own.
func readManifest(doc []byte) (*config.Config, error) {
	var h head
	if err := strict.UnmarshalStrict(doc, &h); err != nil {
		return nil, err
	}
	kinds := map[string]struct {
		version  config.GroupVersionKind
		spec     proto.Message
		validate validation.ValidateFunc
	}{
		"networking.istio.io/v1alpha3 EnvoyFilter": {gvk.EnvoyFilter, &networking.EnvoyFilter{}, validateEnvoyFilter},
		"networking.istio.io/v1 Gateway":           {gvk.Gateway, &networking.Gateway{}, validation.ValidateGateway},
		"networking.istio.io/v1 Sidecar":           {gvk.Sidecar, &networking.Sidecar{}, validation.ValidateSidecar},
		"security.istio.io/v1 PeerAuthentication":  {gvk.PeerAuthentication, &securityapi.PeerAuthentication{}, validation.ValidatePeerAuthentication},
		"security.istio.io/v1 AuthorizationPolicy": {gvk.AuthorizationPolicy, &securityapi.AuthorizationPolicy{}, validation.ValidateAuthorizationPolicy},
	}
	name := h.APIVersion + " " + h.Kind
	if name == "v1 Service" {
		return nil, strict.UnmarshalStrict(doc, &corev1.Service{})
	}
	k, ok := kinds[name]
	if !ok {
		return nil, fmt.Errorf("%s: no such kind is known here", name)
	}
	if err := protojson.Unmarshal(h.Spec, k.spec); err != nil { // refuses unknown fields
		return nil, fmt.Errorf("%s %s: %w", h.Kind, h.Metadata.Name, err)
	}
	c := &config.Config{Meta: config.Meta{GroupVersionKind: k.version, Name: h.Metadata.Name, Namespace: h.Metadata.Namespace}, Spec: k.spec}
	if _, err := k.validate(*c); err != nil {
		return nil, fmt.Errorf("%s %s: %w", h.Kind, h.Metadata.Name, err)
	}
	return c, nil
}

// validateEnvoyFilter also builds each value strictly, where Istio itself only warns.
func validateEnvoyFilter(c config.Config) (validation.Warning, error) {
	filter := c.Spec.(*networking.EnvoyFilter)
	for i, p := range filter.ConfigPatches {
		if _, err := xds.BuildXDSObjectFromStruct(p.ApplyTo, p.Patch.Value, true); err != nil {
			return nil, fmt.Errorf("configPatches[%d]: %w", i, err)
		}
	}
	return envoyfilter.ValidateEnvoyFilter(c)
}
