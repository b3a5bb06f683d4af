package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"understudy/pkg/admin"
)

// asks opens the stream of an Envoy that asks for its clusters, and gives its first answer.
func (s *service) asks(version *typev3.SemanticVersion) (discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient, *discovery.DiscoveryRequest, *discovery.DiscoveryResponse) {
	s.t.Helper()
	conn, err := grpc.NewClient("unix://"+s.cfg.Server.GRPC.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	req := &discovery.DiscoveryRequest{TypeUrl: resource.ClusterType, Node: &corev3.Node{
		Id: "envoy-<1>", UserAgentVersionType: &corev3.Node_UserAgentBuildVersion{UserAgentBuildVersion: &corev3.BuildVersion{Version: version}}}}
	if err := stream.Send(req); err != nil {
		s.t.Fatal(err)
	}
	resp, err := stream.Recv()
	if err != nil {
		s.t.Fatal(err)
	}
	return stream, req, resp
}

// wantPeer waits until the status tells of the one Envoy what ok wants.
func (s *service) wantPeer(what string, ok func(admin.Peer) bool) {
	s.t.Helper()
	eventually(s.t, func(context.Context) error {
		_, body := s.get("/api/status")
		var got admin.Status
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			return err
		}
		if c := got.Envoy.Connected; c == nil || len(*c) != 1 || !ok((*c)[0]) {
			return fmt.Errorf("%s: the Envoys are %+v", what, c)
		}
		return nil
	})
}

func TestAnEnvoyThatRefusesIsOnThePageUntilItAccepts(t *testing.T) {
	dir := folder(t)
	s := beginWith(t, dir, embedded(dir), serviceYAML+"envoy: {xds: true}\n")
	defer s.end()
	if _, page := s.get("/"); !strings.Contains(page, "None is connected to this replica.") {
		t.Error("the page does not say that no Envoy is connected")
	}
	stream, req, resp := s.asks(&typev3.SemanticVersion{MajorNumber: 1, MinorNumber: 35})
	req.ResponseNonce, req.ErrorDetail = resp.Nonce, &rpcstatus.Status{Message: "no <such> field"}
	if err := stream.Send(req); err != nil {
		t.Fatal(err)
	}
	s.wantPeer("after its no", func(p admin.Peer) bool {
		return p.Node == "envoy-<1>" && p.Version == "1.35.0" && !p.Supported && p.Refusing && p.Refused["cds"] == "no <such> field" && len(p.Accepted) == 0
	})
	eventually(t, func(context.Context) error {
		_, page := s.get("/")
		for _, want := range []string{"Envoy envoy-&lt;1&gt; goes on with an older configuration", "no &lt;such&gt; field", "not one that this is made for"} {
			if !strings.Contains(page, want) {
				return fmt.Errorf("the page does not say %q", want)
			}
		}
		return nil
	})
	req.ErrorDetail, req.VersionInfo = nil, resp.VersionInfo
	if err := stream.Send(req); err != nil {
		t.Fatal(err)
	}
	s.wantPeer("after its yes", func(p admin.Peer) bool { return !p.Refusing && p.Accepted["cds"] == resp.VersionInfo })
	_ = stream.CloseSend()
}
