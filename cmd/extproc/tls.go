package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"understudy/pkg/config"
)

// serverCredentials makes mutual TLS of c; none when c is nil.
func serverCredentials(c *config.ServerTLS) ([]grpc.ServerOption, error) {
	if c == nil {
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, fmt.Errorf("server.tls: %w", err)
	}
	pem, err := os.ReadFile(c.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("server.tls.client_ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("server.tls.client_ca: %s holds no PEM certificate", c.ClientCA)
	}
	return []grpc.ServerOption{grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates:          []tls.Certificate{cert},
		ClientCAs:             pool,
		ClientAuth:            tls.RequireAndVerifyClientCert,
		MinVersion:            tls.VersionTLS12,
		VerifyPeerCertificate: named(c.ClientNames),
	}))}, nil
}

// named lets in only peers whose certificate carries one of names; all that client_ca signed when there are none.
func named(names []string) func([][]byte, [][]*x509.Certificate) error {
	return func(_ [][]byte, chains [][]*x509.Certificate) error {
		if len(names) == 0 {
			return nil
		}
		leaf := chains[0][0]
		for _, uri := range leaf.URIs {
			if slices.Contains(names, uri.String()) {
				return nil
			}
		}
		for _, name := range leaf.DNSNames {
			if slices.Contains(names, name) {
				return nil
			}
		}
		return errors.New("the client's certificate carries none of server.tls.client_names")
	}
}
