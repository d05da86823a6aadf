package v0

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// v1Name is the name in v1 of a field of v0.
func v1Name(name protoreflect.Name) protoreflect.Name {
	switch name {
	case "id":
		return "volume_id"
	case "attributes", "volume_attributes":
		return "volume_context"
	case "publish_info":
		return "publish_context"
	}
	if strings.HasSuffix(string(name), "_secrets") {
		return "secrets"
	}
	return name
}

// pair is one field that both versions have.
type pair struct{ from, to protoreflect.FieldDescriptor }

// pairs goes through the fields of the v0 message, which is either side.
func pairs(t testing.TB, from, to protoreflect.MessageDescriptor) []pair {
	t.Helper()
	old, young := from, to
	if to.ParentFile().Package() == "csi.v0" {
		old, young = to, from
	}
	var list []pair
	for i := range old.Fields().Len() {
		field := old.Fields().Get(i)
		other := young.Fields().ByName(v1Name(field.Name()))
		if other == nil || other.Kind() != field.Kind() || other.Cardinality() != field.Cardinality() {
			t.Fatalf("%s has no partner in %s", field.FullName(), young.FullName())
		}
		if old == from {
			list = append(list, pair{field, other})
		} else {
			list = append(list, pair{other, field})
		}
	}
	return list
}

// copyByName carries every field that v0 has from one version to the other by
// its name alone. It is what the translation is compared with.
func copyByName(t testing.TB, from, to protoreflect.Message) {
	t.Helper()
	for _, p := range pairs(t, from.Descriptor(), to.Descriptor()) {
		switch {
		case !from.Has(p.from):
		case p.from.IsMap():
			from.Get(p.from).Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
				to.Mutable(p.to).Map().Set(key, value)
				return true
			})
		case p.from.IsList():
			list := from.Get(p.from).List()
			for i := range list.Len() {
				if p.from.Message() != nil {
					copyByName(t, list.Get(i).Message(), to.Mutable(p.to).List().AppendMutable().Message())
				} else {
					to.Mutable(p.to).List().Append(list.Get(i))
				}
			}
		case p.from.Message() != nil:
			copyByName(t, from.Get(p.from).Message(), to.Mutable(p.to).Message())
		default:
			to.Set(p.to, from.Get(p.from))
		}
	}
}
