//go:build e2e

package envoyconf

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"understudy/pkg/config"
)

// TestEnvoyAccepts asks the Envoys of the matrix about every shape over every kind of hop. Envoy reads certificates
// and secrets' files while it validates, so these are real.
func TestEnvoyAccepts(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	write(t, secret, []byte("sk-from-a-file"))
	cert, key := selfSigned(t, dir)
	for _, version := range []string{"1.36.4", "1.39.3", "1.40.0"} {
		envoy := envoyBinary(t, version)
		for _, s := range shapes {
			for _, hop := range []Hop{Internal, TCP, UDS} {
				t.Run(version+"/"+s.file+"/"+string(hop), func(t *testing.T) {
					c := edited(t, s.file, "/run/secrets/local", secret)
					trustOnly(c, cert, key)
					b, err := Bootstrap(c, hop)
					if err != nil {
						t.Fatal(err)
					}
					file := filepath.Join(t.TempDir(), "envoy.yaml")
					write(t, file, toYAML(t, b))
					out, err := exec.CommandContext(t.Context(), envoy, "--mode", "validate", "-c", file, "-l", "warn").CombinedOutput()
					if err != nil || !strings.Contains(string(out), "OK") {
						t.Errorf("envoy %s --mode validate = %v\n%s", version, err, out)
					}
				})
			}
		}
	}
}

// trustOnly puts real files where c names files.
func trustOnly(c *config.Config, cert, key string) {
	c.Envoy.CAFile = cert
	for _, p := range c.Providers {
		if p.CA != "" {
			p.CA = cert
		}
	}
	if t := c.Envoy.TLS; t != nil {
		t.Cert, t.Key, t.CA = cert, key, cert
	}
}

func envoyBinary(t *testing.T, version string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "../../scripts/envoy.sh", version).Output()
	if err != nil {
		t.Fatalf("scripts/envoy.sh %s: %v", version, err)
	}
	return strings.TrimSpace(string(out))
}

func selfSigned(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		DNSNames: []string{"understudy.mesh"},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	write(t, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	write(t, key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
	return cert, key
}

func write(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
