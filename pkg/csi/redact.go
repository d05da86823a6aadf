package csi

import (
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/tarn-csi/tarn/pkg/ident"
)

func printable(s string) string { return ident.Printable(s) }

// redact renders a message after everything sensitive was taken out of a copy:
// fields that csi.v1 marks csi_secret, fields of csi.v0 whose names end in
// _secrets, mount flags, and tokens that orchestrators put into contexts.
func redact(m proto.Message) string {
	c := proto.Clone(m)
	strip(c.ProtoReflect())
	return prototext.MarshalOptions{}.Format(c)
}

func strip(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case sensitive(f):
			m.Clear(f)
		case f.IsMap():
			stripTokens(v.Map())
		case f.Kind() == protoreflect.MessageKind && f.IsList():
			for i := range v.List().Len() {
				strip(v.List().Get(i).Message())
			}
		case f.Kind() == protoreflect.MessageKind:
			strip(v.Message())
		}
		return true
	})
}

func sensitive(f protoreflect.FieldDescriptor) bool {
	name := string(f.Name())
	if name == "mount_flags" || strings.HasSuffix(name, "secrets") {
		return true
	}
	o, ok := f.Options().(*descriptorpb.FieldOptions)
	return ok && o != nil && proto.GetExtension(o, csi.E_CsiSecret).(bool)
}

func stripTokens(m protoreflect.Map) {
	var keys []protoreflect.MapKey
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		if strings.HasSuffix(k.String(), "serviceAccount.tokens") {
			keys = append(keys, k)
		}
		return true
	})
	for _, k := range keys {
		m.Clear(k)
	}
}
