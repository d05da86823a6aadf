package v0

import (
	"context"
	"net"
	"testing"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/testing/protocmp"

	csiv0 "github.com/tarn-csi/tarn/proto/csi/v0"
)

// Over a connection, and beside v1 on the same server.
func TestEveryMethodIsServed(t *testing.T) {
	v1 := &recorder{}
	server := grpc.NewServer()
	csiv0.RegisterIdentityServer(server, NewIdentity(v1))
	csiv0.RegisterControllerServer(server, NewController(v1))
	csiv0.RegisterNodeServer(server, NewNode(v1))
	csi.RegisterIdentityServer(server, v1)
	csi.RegisterControllerServer(server, v1)
	csi.RegisterNodeServer(server, v1)

	listener := bufconn.Listen(1 << 16)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient("passthrough:///bufconn",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })

	for _, rpc := range rpcs(t) {
		request, want, answer := rpc.request(), rpc.v1Request(), rpc.answer()
		(&filler{alternative: 1}).fill(request)
		copyByName(t, request.ProtoReflect(), want.ProtoReflect())
		v1.answer = rpc.v1Answer()
		if err := conn.Invoke(t.Context(), rpc.path(), request, answer); err != nil {
			t.Errorf("%s: %v", rpc.path(), err)
			continue
		}
		if v1.method != rpc.v1 {
			t.Errorf("%s called %s, want %s", rpc.path(), v1.method, rpc.v1)
		}
		if diff := cmp.Diff(want, v1.request, protocmp.Transform()); diff != "" {
			t.Errorf("%s request (-want +got):\n%s", rpc.path(), diff)
		}
	}

	v1.answer = &csi.ControllerUnpublishVolumeResponse{}
	if _, err := csi.NewControllerClient(conn).ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{}); err != nil {
		t.Error(err)
	}
	if v1.method != "ControllerUnpublishVolume" {
		t.Errorf("v1 on the same connection called %s", v1.method)
	}
}
