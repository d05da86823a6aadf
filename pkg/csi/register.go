package csi

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	v0 "github.com/tarn-csi/tarn/pkg/csi/v0"
	csiv0 "github.com/tarn-csi/tarn/proto/csi/v0"
)

// Register serves both versions of CSI on one gRPC server. controller and node
// are nil where the mode does not have them.
func Register(server *grpc.Server, identity *Identity, controller *Controller, node *Node) {
	csi.RegisterIdentityServer(server, identity)
	csiv0.RegisterIdentityServer(server, v0.NewIdentity(identity))
	if controller != nil {
		csi.RegisterControllerServer(server, controller)
		csi.RegisterGroupControllerServer(server, &GroupController{Volumes: controller.Volumes})
		csiv0.RegisterControllerServer(server, v0.NewController(controller))
	}
	if node != nil {
		csi.RegisterNodeServer(server, node)
		csiv0.RegisterNodeServer(server, v0.NewNode(node))
	}
}
