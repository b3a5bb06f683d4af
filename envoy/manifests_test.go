package envoy_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"understudy/pkg/config"
	"understudy/pkg/envoyconf"
)

var update = flag.Bool("update", false, "write the files that are made of others")

// configs are those that the manifests mount.
var configs = []string{"kubernetes/base/understudy.yaml", "kubernetes/example/understudy.yaml"}

func TestTheConfigsAreFine(t *testing.T) {
	for _, file := range configs {
		c, err := config.Load(file)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if _, err := envoyconf.Bootstrap(c, envoyconf.Internal); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// The rules have one source: the resource is made of the file that Prometheus itself reads.
func TestThePrometheusRuleIsMadeOfTheRules(t *testing.T) {
	const golden = "kubernetes/base/prometheusrule.yaml"
	spec, err := yaml.Marshal(map[string]any{
		"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": map[string]string{"name": "understudy"},
		"spec": decode[ruleFile](t, rulesFile),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := append([]byte("# Made of envoy/prometheus/understudy.rules.yaml by go test ./envoy -update.\n"), spec...)
	if *update {
		if err := os.WriteFile(golden, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(golden); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what %s says (%v): run go test ./envoy -update", golden, rulesFile, err)
	}
}

// deployment is what the tests read of one.
type deployment struct {
	Kind string
	Spec struct {
		Replicas *int
		Strategy struct{ RollingUpdate struct{ MaxUnavailable int } }
		Template struct{ Spec pod }
	}
}

type pod struct {
	AutomountServiceAccountToken  *bool
	TerminationGracePeriodSeconds int
	SecurityContext               struct {
		RunAsNonRoot   bool
		RunAsUser      int
		SeccompProfile struct{ Type string }
	}
	Containers []container
}

type container struct {
	Args            []string
	Env             []struct{ Name, Value string }
	Ports           []port
	Resources       struct{ Requests, Limits map[string]string }
	SecurityContext struct {
		AllowPrivilegeEscalation *bool
		ReadOnlyRootFilesystem   bool
		Capabilities             struct{ Drop []string }
	}
	LivenessProbe, ReadinessProbe probe
	Lifecycle                     struct {
		PreStop struct{ Sleep struct{ Seconds int } }
	}
	VolumeMounts []struct{ Name, MountPath, SubPath string }
}

type port struct {
	Name          string
	ContainerPort int
	Port          int
	TargetPort    string
}

type probe struct{ HTTPGet struct{ Path, Port string } }

type service struct {
	Metadata struct{ Name string }
	Spec     struct {
		ClusterIP string
		Ports     []port
	}
}

// part reads the document of a kind from a file of the base.
func part[T any](t *testing.T, file, kind string) (v T) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("kubernetes/base", file))
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range strings.Split(string(raw), "\n---\n") {
		var head struct{ Kind string }
		asJSON, err := yaml.YAMLToJSONStrict([]byte(doc))
		if err == nil {
			err = json.Unmarshal(asJSON, &head)
		}
		if err == nil && head.Kind == kind {
			err = json.Unmarshal(asJSON, &v)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if head.Kind == kind {
			return v
		}
	}
	t.Fatalf("%s holds no %s", file, kind)
	return v
}

func TestThePodIsRestricted(t *testing.T) {
	spec := part[deployment](t, "deployment.yaml", "Deployment").Spec.Template.Spec
	c := spec.Containers[0]
	for what, ok := range map[string]bool{
		"no token of the cluster":     spec.AutomountServiceAccountToken != nil && !*spec.AutomountServiceAccountToken,
		"not root, by number":         spec.SecurityContext.RunAsNonRoot && spec.SecurityContext.RunAsUser > 0,
		"seccomp":                     spec.SecurityContext.SeccompProfile.Type == "RuntimeDefault",
		"a read-only root":            c.SecurityContext.ReadOnlyRootFilesystem,
		"no escalation":               c.SecurityContext.AllowPrivilegeEscalation != nil && !*c.SecurityContext.AllowPrivilegeEscalation,
		"no capability":               strings.Join(c.SecurityContext.Capabilities.Drop, ",") == "ALL",
		"a request of CPU, for HPA":   c.Resources.Requests["cpu"] != "",
		"a limit of memory":           c.Resources.Limits["memory"] != "",
		"a liveness probe":            c.LivenessProbe.HTTPGet.Path == "/healthz",
		"a readiness probe":           c.ReadinessProbe.HTTPGet.Path == "/readyz",
		"no secret among its args":    len(c.Args) == 3,
		"secrets as files, no values": len(c.Env) == 1 && c.Env[0].Name == "GOMEMLIMIT",
	} {
		if !ok {
			t.Errorf("the pod has not: %s", what)
		}
	}
}

// Whatever the config says, the manifests beside it must have room for.
func TestTheManifestsFitTheConfig(t *testing.T) {
	cfg, err := config.Load(configs[0])
	if err != nil {
		t.Fatal(err)
	}
	d := part[deployment](t, "deployment.yaml", "Deployment")
	spec := d.Spec.Template.Spec
	c := spec.Containers[0]

	// What an end takes beside the drain: cmd/extproc waits twice for 3 s.
	end := time.Duration(c.Lifecycle.PreStop.Sleep.Seconds)*time.Second + cfg.Server.Drain + 6*time.Second
	if grace := time.Duration(spec.TerminationGracePeriodSeconds) * time.Second; grace < end {
		t.Errorf("terminationGracePeriodSeconds = %s, want at least %s: streams would be killed", grace, end)
	}
	if d.Spec.Strategy.RollingUpdate.MaxUnavailable != 0 || d.Spec.Replicas != nil {
		t.Errorf("a rollout, or applying this again, takes replicas away: %+v", d.Spec)
	}
	limit, goal := mebibytes(t, c.Resources.Limits["memory"]), mebibytes(t, c.Env[0].Value)
	if goal >= limit || cfg.Server.MaxInflightBody>>20 > int64(goal)/2 {
		t.Errorf("memory: limit %d MiB, GOMEMLIMIT %d MiB, bodies %d MiB, want each with room in the one before", limit, goal, cfg.Server.MaxInflightBody>>20)
	}
	ports := map[string]int{"grpc": number(t, cfg.Server.GRPC.Addr), "admin": number(t, cfg.Server.Admin.Addr)}
	svc := part[service](t, "service.yaml", "Service")
	for i, p := range c.Ports {
		if ports[p.Name] != p.ContainerPort || svc.Spec.Ports[i].TargetPort != p.Name || svc.Spec.Ports[i].Port != p.ContainerPort {
			t.Errorf("port %s: the config says %d, the container %d, the Service %+v", p.Name, ports[p.Name], p.ContainerPort, svc.Spec.Ports[i])
		}
	}
	if svc.Spec.ClusterIP != "None" {
		t.Errorf("clusterIP = %q, want None: one connection would pin one replica", svc.Spec.ClusterIP)
	}
	for _, a := range cfg.Envoy.Services {
		if !strings.HasPrefix(a.Addr, svc.Metadata.Name+".") {
			t.Errorf("envoy.services = %s, want the Service %s", a, svc.Metadata.Name)
		}
	}
}

func TestTheConfigNamesOnlyWhatIsMounted(t *testing.T) {
	c := part[deployment](t, "deployment.yaml", "Deployment").Spec.Template.Spec.Containers[0]
	for _, file := range configs {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range strings.FieldsFunc(string(raw), func(r rune) bool { return strings.ContainsRune(" \n\"{},", r) }) {
			path := strings.TrimPrefix(word, "file:")
			if !strings.HasPrefix(path, "/etc/understudy/") {
				continue
			}
			mounted := false
			for _, m := range c.VolumeMounts {
				mounted = mounted || strings.HasPrefix(path, m.MountPath+"/") && m.SubPath == "" // a subPath is never updated
			}
			if !mounted {
				t.Errorf("%s names %s, which is below no mount that follows its source", file, path)
			}
		}
	}
	if config := c.Args[2]; config != "/etc/understudy/config/understudy.yaml" {
		t.Errorf("the config is %s, want the file of the ConfigMap", config)
	}
}

func mebibytes(t *testing.T, s string) int {
	t.Helper()
	unit := 1
	if strings.HasPrefix(strings.TrimLeft(s, "0123456789"), "G") {
		unit = 1024
	}
	n, err := strconv.Atoi(strings.TrimRight(s, "MGiB"))
	if err != nil {
		t.Fatal(err)
	}
	return n * unit
}

func number(t *testing.T, addr string) int {
	t.Helper()
	_, p, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n, _ := strconv.Atoi(p)
	return n
}

// installation is what the examples of a config say of where things are.
type installation struct {
	Envoy struct {
		Gateway  string   `json:"gateway"`
		Services []string `json:"services"`
		TLS      struct {
			ServerName string `json:"server_name"`
		} `json:"tls"`
	} `json:"envoy"`
}

// whereabouts are those that the config of a folder names. Not by config.Load, as some take their secrets from the environment.
func whereabouts(t *testing.T, folder string) (i installation) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(folder, "understudy.yaml"))
	if err == nil {
		err = yaml.Unmarshal(raw, &i)
	}
	if err != nil {
		t.Fatalf("%s: %v", folder, err)
	}
	return i
}

func TestTheExamplesCallTheServiceByTheNameOfItsService(t *testing.T) {
	const replicas, certificate = "understudy.understudy.svc.cluster.local:9002", "understudy.understudy.svc" // of kubernetes/base
	for _, folder := range []string{"kubernetes/base", "kubernetes/example", "gateway", "istio"} {
		i := whereabouts(t, folder)
		if len(i.Envoy.Services) != 1 || i.Envoy.Services[0] != replicas {
			t.Errorf("%s: envoy.services = %q, want %q", folder, i.Envoy.Services, replicas)
		}
		if got := i.Envoy.TLS.ServerName; got != "" && got != certificate {
			t.Errorf("%s: envoy.tls.server_name = %q, want %q", folder, got, certificate)
		}
	}
}

// Both have their Envoys from an Envoy Gateway, which is told the name of the Service that it makes.
func TestTheExamplesCallEnvoyByTheNameOfItsService(t *testing.T) {
	const front = "http://understudy-front.envoy-gateway-system.svc.cluster.local:8080"
	for _, folder := range []string{"kubernetes/example", "gateway"} {
		if got := whereabouts(t, folder).Envoy.Gateway; got != front {
			t.Errorf("%s: envoy.gateway = %q, want %q", folder, got, front)
		}
	}
	manifests, err := os.ReadFile("gateway/same-request.yaml")
	if err != nil || !bytes.Contains(manifests, []byte("envoyService: {name: understudy-front}")) {
		t.Errorf("the Service that Envoy Gateway makes has another name than understudy-front (%v)", err)
	}
}

// A policy that selects no pod guards nothing, and Istio says nothing.
func TestIstiosPoliciesSelectThePodsOfTheBase(t *testing.T) {
	const label = "app.kubernetes.io/name: understudy"
	base, err := os.ReadFile("kubernetes/base/kustomization.yaml")
	if err != nil || !bytes.Contains(base, []byte(label+"\n    includeTemplates: true")) {
		t.Fatalf("the pods of the base have not %s (%v)", label, err)
	}
	files, err := filepath.Glob("istio/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for doc := range strings.SplitSeq(string(raw), "---\n") {
			if guards := strings.Contains(doc, "namespace: understudy\n"); guards && !strings.Contains(doc, "      "+label+"\n") {
				t.Errorf("%s: this selects not %s:\n%.300s", file, label, doc)
			}
		}
	}
}
