package v0

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// filler gives every field a value that occurs nowhere else, as far as its
// type allows it. Of a oneof it fills the alternative-th member.
type filler struct {
	alternative int
	n           int
}

func (f *filler) fill(message proto.Message) { f.message(message.ProtoReflect()) }

func (f *filler) message(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if oneof := field.ContainingOneof(); oneof != nil {
			members := oneof.Fields()
			if members.Get(f.alternative%members.Len()) != field {
				continue
			}
		}
		switch {
		case field.IsMap():
			entries := m.Mutable(field).Map()
			for range 2 {
				entries.Set(f.scalar(field.MapKey()).MapKey(), f.scalar(field.MapValue()))
			}
		case field.IsList():
			list := m.Mutable(field).List()
			for range 2 {
				if field.Message() != nil {
					f.message(list.AppendMutable().Message())
				} else {
					list.Append(f.scalar(field))
				}
			}
		case field.Message() != nil:
			f.message(m.Mutable(field).Message())
		default:
			m.Set(field, f.scalar(field))
		}
	}
}

func (f *filler) scalar(field protoreflect.FieldDescriptor) protoreflect.Value {
	f.n++
	switch field.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(fmt.Sprintf("%s %d", field.FullName(), f.n))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(f.n))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(f.n))
	case protoreflect.EnumKind:
		values := field.Enum().Values()
		return protoreflect.ValueOfEnum(values.Get(1 + f.n%(values.Len()-1)).Number())
	}
	panic(fmt.Sprintf("%s: no value for a %s", field.FullName(), field.Kind()))
}
