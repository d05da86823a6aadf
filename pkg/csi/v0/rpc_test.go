package v0

import (
	"context"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	csiv0 "github.com/tarn-csi/tarn/proto/csi/v0"
)

// rpc is one method of the v0 schema beside the v1 call that serves it.
type rpc struct {
	service, name string
	v1            string               // the method of recorder
	request       func() proto.Message // v0
	answer        func() proto.Message // v0
	v1Request     func() proto.Message
	v1Answer      func() proto.Message
}

func (r rpc) path() string { return "/csi.v0." + r.service + "/" + r.name }

// call invokes the method on the v0 servers above v1.
func (r rpc) call(ctx context.Context, v1 *recorder, request proto.Message) (proto.Message, error) {
	servers := map[string]any{"Identity": NewIdentity(v1), "Controller": NewController(v1), "Node": NewNode(v1)}
	method := reflect.ValueOf(servers[r.service]).MethodByName(r.name)
	out := method.Call([]reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(request)})
	err, _ := out[1].Interface().(error)
	return out[0].Interface().(proto.Message), err
}

// rpcs lists the methods of the schema, so that no test can leave one out.
func rpcs(t testing.TB) []rpc {
	t.Helper()
	maker := func(name string) func() proto.Message {
		mt, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return func() proto.Message { return mt.New().Interface() }
	}

	var list []rpc
	services := csiv0.File_csi_v0_csi_proto.Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for j := range methods.Len() {
			name := string(methods.Get(j).Name())
			message, v1 := name, name // the stem of the v1 messages, and the call
			switch name {
			case "NodeGetId":
				message, v1 = "NodeGetInfo", "NodeGetInfo"
			case "ControllerUnpublishVolume":
				v1 = "UnpublishStrict"
			}
			list = append(list, rpc{
				service:   string(services.Get(i).Name()),
				name:      name,
				v1:        v1,
				request:   maker(string(methods.Get(j).Input().FullName())),
				answer:    maker(string(methods.Get(j).Output().FullName())),
				v1Request: maker("csi.v1." + message + "Request"),
				v1Answer:  maker("csi.v1." + message + "Response"),
			})
		}
	}
	if len(list) != 17 {
		t.Fatalf("csi.v0 has 17 methods, found %d", len(list))
	}
	return list
}
