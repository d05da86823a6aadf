// Package faults shows what Tarn does about faults that users of such storage have
// reported: docs/cases.md. What is about a kernel runs on a real one, with the
// built daemon (build tag guest); the rest runs without root on test/inprocess.
package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/tarn-csi/tarn/proto/csi/v0" // registers its messages
)

// plugin is a driver as one version of CSI shows it. What csi.v0 has not fails.
type plugin struct {
	csi.IdentityClient
	csi.ControllerClient
	csi.NodeClient
	version string
}

func inV1(conn grpc.ClientConnInterface) plugin {
	return plugin{csi.NewIdentityClient(conn), csi.NewControllerClient(conn), csi.NewNodeClient(conn), "v1"}
}

func inV0(conn grpc.ClientConnInterface) plugin {
	p := inV1(oldWire{conn})
	p.version = "v0"
	return p
}

// oldWire carries calls of csi.v1 as those of csi.v0, by field names: so a test
// is written once. It knows only the messages, nothing of the driver.
type oldWire struct{ conn grpc.ClientConnInterface }

func (w oldWire) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, fmt.Errorf("csi.v0 has no streams")
}

func (w oldWire) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	name := method[strings.LastIndexByte(method, '/')+1:]
	if name == "NodeGetInfo" {
		method, name = "/csi.v1.Node/NodeGetId", "NodeGetId"
	}
	request, err := oldMessage(name + "Request")
	if err != nil {
		return err
	}
	response, err := oldMessage(name + "Response")
	if err != nil {
		return err
	}
	names := renamed(name)
	if err := carry(request, args.(proto.Message), func(s string) string { return names[s] }, false); err != nil {
		return fmt.Errorf("csi.v0 cannot say this: %w", err)
	}
	if err := w.conn.Invoke(ctx, strings.Replace(method, "csi.v1", "csi.v0", 1), request, response, opts...); err != nil {
		return err
	}
	back := map[string]string{"id": "volume_id", "attributes": "volume_context", "publish_info": "publish_context"}
	if err := carry(reply.(proto.Message), response, func(s string) string { return back[s] }, true); err != nil {
		return err
	}
	if r, ok := reply.(*csi.ValidateVolumeCapabilitiesResponse); ok {
		f := response.ProtoReflect()
		if f.Get(f.Descriptor().Fields().ByName("supported")).Bool() {
			r.Confirmed = &csi.ValidateVolumeCapabilitiesResponse_Confirmed{}
		}
	}
	return nil
}

// renamed are the fields of a request that have another name in csi.v0.
func renamed(rpc string) map[string]string {
	names := map[string]string{"volume_context": "volume_attributes", "publish_context": "publish_info"}
	switch rpc {
	case "CreateVolume", "DeleteVolume":
		names["secrets"] = "controller_" + strings.ToLower(strings.TrimSuffix(rpc, "Volume")) + "_secrets"
	case "ControllerPublishVolume":
		names["secrets"] = "controller_publish_secrets"
	case "ControllerUnpublishVolume":
		names["secrets"] = "controller_unpublish_secrets"
	case "NodeStageVolume":
		names["secrets"] = "node_stage_secrets"
	case "NodePublishVolume":
		names["secrets"] = "node_publish_secrets"
	}
	return names
}

func oldMessage(name string) (proto.Message, error) {
	t, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName("csi.v0." + name))
	if err != nil {
		return nil, fmt.Errorf("csi.v0 has no %s: %w", name, err)
	}
	return t.New().Interface(), nil
}

// carry copies a message into one of another version, field by field. Fields
// that the other one has not are an error, or left out.
func carry(to, from proto.Message, rename func(string) string, leaveOut bool) error {
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(from)
	if err != nil {
		return err
	}
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		return err
	}
	if raw, err = json.Marshal(rekey(fields, rename)); err != nil {
		return err
	}
	return protojson.UnmarshalOptions{DiscardUnknown: leaveOut}.Unmarshal(raw, to)
}

// userData are maps whose keys are no field names.
var userData = []string{"parameters", "attributes", "publish_info", "volume_attributes", "volume_context", "publish_context"}

func rekey(v any, rename func(string) string) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			if !isUserData(key) {
				value = rekey(value, rename)
			}
			if other := rename(key); other != "" {
				key = other
			}
			out[key] = value
		}
		return out
	case []any:
		for k := range v {
			v[k] = rekey(v[k], rename)
		}
	}
	return v
}

func isUserData(key string) bool {
	if strings.HasSuffix(key, "secrets") {
		return true
	}
	for _, name := range userData {
		if key == name {
			return true
		}
	}
	return false
}
