package sanityv0

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/emptypb"

	csi "github.com/tarn-csi/tarn/proto/csi/v0"
)

// nameServes is the check that always runs first.
const nameServes = "identity/the-endpoint-serves-csi-v0"

func identityChecks() []Check {
	return []Check{
		{Name: nameServes, Section: "intro", run: checkServes},
		{Name: "identity/every-rpc-is-served", Section: "3, last line", run: checkEveryRPC},
		{Name: "identity/both-endpoints-are-one-plugin", Section: "3, GetPluginInfo", needs: needTwoSockets, run: checkOnePlugin},
		{Name: "identity/name-is-a-short-reverse-domain", Section: "3, GetPluginInfo", run: checkPluginName},
		{Name: "identity/vendor-version-is-set", Section: "3, GetPluginInfo", run: checkVendorVersion},
		{Name: "identity/info-is-the-same-each-time", Section: "3, GetPluginInfo", run: checkInfoRepeats},
		{Name: "identity/plugin-capabilities-are-those-of-v0", Section: "2, capabilities enum", run: checkPluginCapabilities},
		{Name: "identity/probe-of-a-healthy-plugin-is-ok", Section: "3, Probe", run: checkProbe},
		{Name: "identity/controller-capabilities-are-those-of-v0", Section: "2, capabilities enum", run: checkControllerCapabilities},
		{Name: "identity/node-capabilities-are-those-of-v0", Section: "2, capabilities enum", run: checkNodeCapabilities},
		{Name: "identity/every-capability-of-v0-is-offered", Section: "3, last line", run: checkAllCapabilities},
		{Name: "identity/node-id-is-set-and-stable", Section: "3, NodeGetId", run: checkNodeID},
	}
}

// checkServes waits for the plugin, learns what it offers, and ends the run
// where it does not speak csi.v0 at all.
func checkServes(c *C) {
	stop := func(format string, args ...any) {
		c.Errorf(format, args...)
		c.stop = c.messages[len(c.messages)-1]
		c.Fatalf("no other check can be run")
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.o.RetryFor)
	defer cancel()
	calls := []struct {
		rpc  string
		conn *grpc.ClientConn
		call func() error
	}{
		{"Identity/GetPluginInfo", c.conns[0], func() error {
			_, err := c.identity.GetPluginInfo(ctx, &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
			return err
		}},
		{"Identity/GetPluginInfo", c.conns[len(c.conns)-1], func() error {
			_, err := c.controllerIdentity.GetPluginInfo(ctx, &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
			return err
		}},
		{"Controller/ControllerGetCapabilities", c.conns[len(c.conns)-1], func() error {
			caps, err := c.controller.ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{})
			c.offers = offered(caps)
			return err
		}},
		{"Node/NodeGetCapabilities", c.conns[0], func() error {
			caps, err := c.node.NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{})
			for _, v := range caps.GetCapabilities() {
				if v.GetRpc().GetType() == csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME {
					c.offers.stage = true
				}
			}
			return err
		}},
		{"Node/NodeGetId", c.conns[0], func() error {
			id, err := c.node.NodeGetId(ctx, &csi.NodeGetIdRequest{})
			c.nodeID = id.GetNodeId()
			return err
		}},
	}
	for _, call := range calls {
		err := call.call()
		switch {
		case err == nil:
		case status.Code(err) != codes.Unimplemented:
			stop("/csi.v0.%s: got %s, want OK", call.rpc, describe(err))
		case servesV1(ctx, call.conn):
			stop("/csi.v0.%s is UNIMPLEMENTED: the endpoint speaks csi.v1 and not csi.v0", call.rpc)
		default:
			stop("/csi.v0.%s is UNIMPLEMENTED: the endpoint does not speak csi.v0", call.rpc)
		}
	}
	if c.offers.list {
		ids, _, err := c.listAll(0)
		if err != nil {
			stop("ListVolumes: %s", describe(err))
		}
		c.before = map[string]bool{}
		for _, e := range ids {
			c.before[e.GetId()] = true
		}
	}
}

func offered(caps *csi.ControllerGetCapabilitiesResponse) capabilities {
	var o capabilities
	for _, v := range caps.GetCapabilities() {
		switch v.GetRpc().GetType() {
		case csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME:
			o.createDelete = true
		case csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME:
			o.publish = true
		case csi.ControllerServiceCapability_RPC_LIST_VOLUMES:
			o.list = true
		case csi.ControllerServiceCapability_RPC_GET_CAPACITY:
			o.capacity = true
		}
	}
	return o
}

// servesV1 asks without the binding of csi.v1: an empty message is the request
// of its GetPluginInfo, too.
func servesV1(ctx context.Context, conn *grpc.ClientConn) bool {
	return conn.Invoke(ctx, "/csi.v1.Identity/GetPluginInfo", &emptypb.Empty{}, &emptypb.Empty{}) == nil
}

// checkEveryRPC sends each of the 17 an empty request, which is valid or lacks a
// required field: what it must not be is UNIMPLEMENTED.
func checkEveryRPC(c *C) {
	services := csi.File_csi_v0_csi_proto.Services()
	for i := range services.Len() {
		conns := c.conns[:1]
		switch services.Get(i).Name() {
		case "Identity":
			conns = c.conns
		case "Controller":
			conns = c.conns[len(c.conns)-1:]
		}
		methods := services.Get(i).Methods()
		for j := range methods.Len() {
			m := methods.Get(j)
			method := fmt.Sprintf("/%s/%s", services.Get(i).FullName(), m.Name())
			for _, conn := range conns {
				err := conn.Invoke(c.ctx, method, c.newMessage(m.Input()), c.newMessage(m.Output()))
				if status.Code(err) == codes.Unimplemented {
					c.Errorf("%s is UNIMPLEMENTED", method)
				}
			}
		}
	}
}

func (c *C) newMessage(d protoreflect.MessageDescriptor) proto.Message {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		c.Fatalf("%v", err)
	}
	return t.New().Interface()
}

func checkOnePlugin(c *C) {
	a, err := c.identity.GetPluginInfo(c.ctx, &csi.GetPluginInfoRequest{})
	c.must(err, "GetPluginInfo of the node's endpoint")
	b, err := c.controllerIdentity.GetPluginInfo(c.ctx, &csi.GetPluginInfoRequest{})
	c.must(err, "GetPluginInfo of the controller's endpoint")
	if a.GetName() != b.GetName() {
		c.Errorf("the node's endpoint is %q, the controller's is %q", a.GetName(), b.GetName())
	}
}

// pluginName: letters, digits, dashes, underscores and dots; a letter at both ends.
var pluginName = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9._-]*[A-Za-z])?$`)

func checkPluginName(c *C) {
	resp, err := c.identity.GetPluginInfo(c.ctx, &csi.GetPluginInfoRequest{})
	c.must(err, "GetPluginInfo")
	name := resp.GetName()
	switch {
	case name == "":
		c.Errorf("the name is empty")
	case len(name) > 63:
		c.Errorf("the name %q has %d characters, more than 63", name, len(name))
	case !pluginName.MatchString(name):
		c.Errorf("the name %q does not begin and end with a letter, with letters, digits, '-', '_' and '.' between", name)
	case !strings.Contains(name, ".") || slices.Contains(strings.Split(name, "."), ""):
		c.Errorf("the name %q is no reverse domain", name)
	}
}

func checkVendorVersion(c *C) {
	resp, err := c.identity.GetPluginInfo(c.ctx, &csi.GetPluginInfoRequest{})
	c.must(err, "GetPluginInfo")
	if resp.GetVendorVersion() == "" {
		c.Errorf("vendor_version is empty")
	}
}

func checkInfoRepeats(c *C) {
	first, err := c.identity.GetPluginInfo(c.ctx, &csi.GetPluginInfoRequest{})
	c.must(err, "GetPluginInfo")
	second, err := c.identity.GetPluginInfo(c.ctx, &csi.GetPluginInfoRequest{})
	c.must(err, "GetPluginInfo again")
	c.wantEqual("GetPluginInfo again", first, second)
}

func checkProbe(c *C) {
	_, err := c.identity.Probe(c.ctx, &csi.ProbeRequest{})
	c.want(err, "Probe", codes.OK)
	_, err = c.controllerIdentity.Probe(c.ctx, &csi.ProbeRequest{})
	c.want(err, "Probe of the controller's endpoint", codes.OK)
}

// wantCapabilities judges a list of capability numbers: set, known to csi.v0,
// none twice.
func wantCapabilities[E ~int32](c *C, list []E, known map[int32]string) {
	seen := map[E]bool{}
	for _, v := range list {
		switch {
		case v == 0:
			c.Errorf("a capability has no type, or is UNKNOWN")
		case known[int32(v)] == "":
			c.Errorf("capability %d does not exist in csi.v0 (it knows %v)", v, slices.Sorted(maps.Values(known)))
		case seen[v]:
			c.Errorf("capability %s is listed twice", known[int32(v)])
		}
		seen[v] = true
	}
}

func checkPluginCapabilities(c *C) {
	resp, err := c.identity.GetPluginCapabilities(c.ctx, &csi.GetPluginCapabilitiesRequest{})
	c.must(err, "GetPluginCapabilities")
	list := make([]csi.PluginCapability_Service_Type, 0, len(resp.GetCapabilities()))
	for _, v := range resp.GetCapabilities() {
		list = append(list, v.GetService().GetType())
	}
	wantCapabilities(c, list, csi.PluginCapability_Service_Type_name)
	if !slices.Contains(list, csi.PluginCapability_Service_CONTROLLER_SERVICE) {
		c.Errorf("CONTROLLER_SERVICE is not listed (got %v): no orchestrator would call the controller", list)
	}
}

func checkControllerCapabilities(c *C) {
	resp, err := c.controller.ControllerGetCapabilities(c.ctx, &csi.ControllerGetCapabilitiesRequest{})
	c.must(err, "ControllerGetCapabilities")
	list := make([]csi.ControllerServiceCapability_RPC_Type, 0, len(resp.GetCapabilities()))
	for _, v := range resp.GetCapabilities() {
		list = append(list, v.GetRpc().GetType())
	}
	wantCapabilities(c, list, csi.ControllerServiceCapability_RPC_Type_name)
}

func checkNodeCapabilities(c *C) {
	resp, err := c.node.NodeGetCapabilities(c.ctx, &csi.NodeGetCapabilitiesRequest{})
	c.must(err, "NodeGetCapabilities")
	list := make([]csi.NodeServiceCapability_RPC_Type, 0, len(resp.GetCapabilities()))
	for _, v := range resp.GetCapabilities() {
		list = append(list, v.GetRpc().GetType())
	}
	wantCapabilities(c, list, csi.NodeServiceCapability_RPC_Type_name)
}

func checkAllCapabilities(c *C) {
	if c.o.Partial {
		c.Skipf("the plugin need not offer all (option partial)")
	}
	for _, v := range []struct {
		name string
		have bool
	}{
		{"CREATE_DELETE_VOLUME", c.offers.createDelete},
		{"PUBLISH_UNPUBLISH_VOLUME", c.offers.publish},
		{"LIST_VOLUMES", c.offers.list},
		{"GET_CAPACITY", c.offers.capacity},
		{"STAGE_UNSTAGE_VOLUME", c.offers.stage},
	} {
		if !v.have {
			c.Errorf("%s is not offered; its checks are skipped", v.name)
		}
	}
}

func checkNodeID(c *C) {
	first, err := c.node.NodeGetId(c.ctx, &csi.NodeGetIdRequest{})
	c.must(err, "NodeGetId")
	if first.GetNodeId() == "" {
		c.Errorf("the node id is empty")
	}
	second, err := c.node.NodeGetId(c.ctx, &csi.NodeGetIdRequest{})
	c.must(err, "NodeGetId again")
	c.wantEqual("NodeGetId again", first, second)
}

// wantEqual compares two answers field by field.
func (c *C) wantEqual(what string, want, got proto.Message) {
	if diff := diffMessages(want, got); diff != "" {
		c.Errorf("%s: the answer differs (-before +now):\n%s", what, diff)
	}
}
