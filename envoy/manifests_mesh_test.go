//go:build mesh

package envoy_test

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"understudy/internal/scripted"
	"understudy/pkg/config"
	"understudy/pkg/envoyconf"
)

// releases are the oldest Kubernetes that the manifests are for, and the newest whose schemas there are.
var releases = []string{"v1.30.0", "v1.37.0"}

// tool is what scripts/manifests.sh has put into a variable.
func tool(t *testing.T, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		missing(t, name+" is not set: run scripts/manifests.sh")
	}
	return v
}

// manifest is one document.
type manifest map[string]any

func (m manifest) kind() string { return fmt.Sprint(m["apiVersion"], "/", m["kind"]) }

// documents are those of a YAML stream that are not empty.
func documents(t *testing.T, stream []byte) (out []manifest) {
	t.Helper()
	for _, part := range bytes.Split(stream, []byte("\n---\n")) {
		var m manifest
		if err := yaml.Unmarshal(part, &m); err != nil {
			t.Fatalf("%v in\n%s", err, part)
		}
		if len(m) > 0 {
			out = append(out, m)
		}
	}
	return out
}

// refused is why kubeconform does not accept streams of manifests, by their names, for a release of Kubernetes. Every
// document that it has not looked at is a fault.
func refused(t *testing.T, release, schemas string, streams map[string][]byte) map[string]string {
	t.Helper()
	dir, names := t.TempDir(), map[string]string{}
	for name, stream := range streams {
		file := filepath.Join(dir, strings.ReplaceAll(name, "/", "_")+".yaml")
		if err := os.WriteFile(file, stream, 0o600); err != nil {
			t.Fatal(err)
		}
		names[file] = name
	}
	out, err := exec.CommandContext(t.Context(), tool(t, "KUBECONFORM"), "-strict", "-output", "json", "-verbose",
		"-schema-location", filepath.Join(schemas, release, "{{.ResourceKind}}{{.KindSuffix}}.json"),
		"-schema-location", filepath.Join(schemas, "{{.Group}}_{{.ResourceKind}}_{{.ResourceAPIVersion}}.json"), dir).Output()
	var said struct {
		Resources []struct{ Filename, Kind, Name, Status, Msg string }
	}
	if bad := json.Unmarshal(out, &said); bad != nil {
		t.Fatalf("kubeconform: %v: %v: %s", err, bad, out)
	}
	why, seen := map[string]string{}, map[string]int{}
	for _, r := range said.Resources {
		seen[names[r.Filename]]++
		if r.Status != "statusValid" {
			why[names[r.Filename]] += fmt.Sprintf("%s %s: %s %s\n", r.Kind, r.Name, r.Status, r.Msg)
		}
	}
	for name, stream := range streams {
		if want := len(documents(t, stream)); seen[name] != want && why[name] == "" {
			why[name] = fmt.Sprintf("%d of %d documents were looked at", seen[name], want)
		}
	}
	return why
}

// schemas makes a folder of schemas: of each release, and of all CustomResourceDefinitions.
func schemas(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, release := range releases {
		coreSchemas(t, filepath.Join(tool(t, "SCHEMAS"), release+"-local-strict"), filepath.Join(dir, release))
	}
	customSchemas(t, dir)
	return dir
}

// coreSchemas copies the schemas of a release. Each says that its home is on the network, and there kubeconform would
// look for the definitions that they share.
func coreSchemas(t *testing.T, from, to string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(from, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s holds no schemas: %v", from, err)
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err == nil {
			raw = bytes.ReplaceAll(raw, []byte(`"$id": "https://kubernetes.io/api/`), []byte(`"$comment": "`))
			raw = bytes.ReplaceAll(raw, []byte(`"/api/_definitions.json#`), []byte(`"_definitions.json#`))
			err = os.WriteFile(filepath.Join(to, filepath.Base(file)), raw, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// customSchemas makes schemas of all CustomResourceDefinitions.
func customSchemas(t *testing.T, dir string) {
	t.Helper()
	n := 0
	for _, root := range filepath.SplitList(tool(t, "CRDS")) {
		files, err := filepath.Glob(filepath.Join(root, "*.yaml"))
		deeper, _ := filepath.Glob(filepath.Join(root, "*", "*.yaml"))
		if files = append(files, deeper...); err != nil || len(files) == 0 {
			t.Fatalf("%s holds no definitions: %v", root, err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, crd := range documents(t, raw) {
				n += writeSchemas(t, dir, crd)
			}
		}
	}
	if n < 40 {
		t.Fatalf("%d schemas were made, want more: have the modules moved their definitions?", n)
	}
}

// writeSchemas writes a schema file for each version of a definition and returns how many.
func writeSchemas(t *testing.T, dir string, crd manifest) (n int) {
	t.Helper()
	var d struct {
		Spec struct {
			Group    string
			Names    struct{ Kind string }
			Versions []struct {
				Name   string
				Schema struct{ OpenAPIV3Schema map[string]any }
			}
		}
	}
	raw, err := json.Marshal(crd)
	if err == nil {
		err = json.Unmarshal(raw, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range d.Spec.Versions {
		schema := v.Schema.OpenAPIV3Schema
		properties := schema["properties"].(map[string]any)
		for _, every := range []string{"apiVersion", "kind", "metadata"} { // a definition need not say what all objects have
			properties[every] = map[string]any{}
		}
		closed(schema)
		raw, err := json.Marshal(schema)
		name := fmt.Sprintf("%s_%s_%s.json", d.Spec.Group, strings.ToLower(d.Spec.Names.Kind), v.Name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), raw, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// closed lets no object of a schema have a field that it does not describe, as the API server would drop it. The
// objects of a schema are found wherever a schema may stand.
func closed(schema map[string]any) {
	properties, described := schema["properties"].(map[string]any)
	if _, open := schema["additionalProperties"]; described && !open && schema["x-kubernetes-preserve-unknown-fields"] != true {
		schema["additionalProperties"] = false
	}
	for _, p := range properties {
		closed(p.(map[string]any))
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if s, ok := schema[key].(map[string]any); ok {
			closed(s)
		}
	}
}

// built is what kustomize makes of a folder.
func built(t *testing.T, dir string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tool(t, "KUBECTL"), "kustomize", dir)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil || errs.Len() > 0 {
		t.Fatalf("kustomize %s: %v: %s", dir, err, errs.String())
	}
	return out
}

// manifests are all below this folder: what kustomize builds, and every file outside its folders that holds a manifest.
func manifests(t *testing.T) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, dir := range []string{"kubernetes/base", "kubernetes/example"} {
		out[dir] = built(t, dir)
	}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && path == "kubernetes" {
			return fs.SkipDir
		}
		if ext := filepath.Ext(path); d.IsDir() || ext != ".yaml" && ext != ".yml" || d.Name() == "kustomization.yaml" {
			return nil
		}
		raw, err := os.ReadFile(path)
		if err == nil && bytes.Contains(raw, []byte("\nkind: ")) {
			out[path] = raw
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEveryManifestIsValid(t *testing.T) {
	schemas, all := schemas(t), manifests(t)
	for _, release := range releases {
		for path, why := range refused(t, release, schemas, all) {
			t.Errorf("%s, Kubernetes %s: %s", path, release, why)
		}
	}
}

// Each kind is broken once, so that a schema that allows everything is noticed.
func TestABrokenManifestIsNotValid(t *testing.T) {
	broken := map[string][]byte{
		"a kind that nobody knows":  []byte("apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: x}\n"),
		"a port that is a word":     []byte("apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {ports: [{port: http}]}\n"),
		"a key that is there twice": []byte("apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {clusterIP: None, clusterIP: None, ports: [{port: 1}]}\n"),
	}
	for _, stream := range manifests(t) {
		for _, m := range documents(t, stream) {
			at := m
			if spec, ok := m["spec"].(map[string]any); ok {
				at = spec
			}
			at["notAField"] = true
			raw, err := yaml.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			broken["a field that does not exist in "+m.kind()] = raw
		}
	}
	if len(broken) < 15 {
		t.Errorf("%d kinds were broken, want more: were manifests overlooked?", len(broken))
	}
	why := refused(t, releases[1], schemas(t), broken)
	for name, raw := range broken {
		if why[name] == "" {
			t.Errorf("%s is accepted:\n%s", name, raw)
		}
	}
}

// bootstrap writes what a config says for Envoy, whose certificates are placed where this machine has them.
func bootstrap(t *testing.T, file string) string {
	t.Helper()
	dir := t.TempDir()
	ca, err := scripted.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ca.Leaf("envoy.understudy.svc")
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(leaf.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	put := func(name string, data []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	put("ca.crt", ca.PEM())
	put("tls.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Certificate[0]}))
	put("tls.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	cfg, err := config.Load(put("understudy.yaml", bytes.ReplaceAll(raw, []byte("/etc/envoy/tls"), []byte(dir))))
	if err != nil {
		t.Fatal(err)
	}
	boot, err := envoyconf.Bootstrap(cfg, envoyconf.Internal)
	if err != nil {
		t.Fatal(err)
	}
	out, err := envoyconf.YAML(boot)
	if err != nil {
		t.Fatal(err)
	}
	return put("envoy.yaml", out)
}

func TestEnvoyAcceptsWhatTheConfigsSay(t *testing.T) {
	for _, file := range configs {
		boot := bootstrap(t, file)
		cmd := exec.CommandContext(t.Context(), tool(t, "ENVOY"), "--mode", "validate", "-c", boot, "--log-level", "error")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", file, err, out)
		}
	}
}

func TestKustomizeKeepsWhatTheManifestsSay(t *testing.T) {
	for _, dir := range []string{"kubernetes/base", "kubernetes/example"} {
		var kinds []string
		for _, m := range documents(t, built(t, dir)) {
			kinds = append(kinds, fmt.Sprint(m["kind"]))
			text, _ := yaml.Marshal(m)
			if m["kind"] == "NetworkPolicy" && strings.Count(string(text), "app.kubernetes.io/name: understudy\n") > 2 {
				t.Errorf("%s: a label of ours was put into the rules of the NetworkPolicy:\n%s", dir, text)
			}
		}
		for _, want := range []string{"Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler", "NetworkPolicy", "ServiceMonitor",
			"PrometheusRule", "ServiceAccount", "ConfigMap"} {
			if !slices.Contains(kinds, want) {
				t.Errorf("%s has no %s, only %v", dir, want, kinds)
			}
		}
	}
}
