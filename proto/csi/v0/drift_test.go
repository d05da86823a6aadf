package csiv0

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
)

// Each statement of the source is changed once; the comparison must see it.
func TestEveryChangeOfTheSourceIsSeen(t *testing.T) {
	number := regexp.MustCompile(`= \d+;`)
	name := regexp.MustCompile(`(\w+)( = \d+;|\(| \{)`)
	changes := map[string]func(string) string{
		"number": func(line string) string { return number.ReplaceAllString(line, "= 99;") },
		"name":   func(line string) string { return name.ReplaceAllString(line, "other$2") },
		"type": func(line string) string {
			return strings.NewReplacer("string ", "bytes ", "bool ", "int32 ", "int64 ", "uint64 ",
				"string> ", "bytes> ", "Request)", "Response)").Replace(line)
		},
		"label": func(line string) string { return strings.Replace(line, "repeated ", "", 1) },
		"gone":  func(string) string { return "" },
	}

	want := goldenTable()
	lines := strings.Split(source, "\n")
	seen := map[string]int{}
	for i, line := range lines {
		if strings.Contains(line, "//") || strings.Contains(line, "option") || strings.TrimSpace(line) == "" {
			continue
		}
		for kind, change := range changes {
			changed := change(line)
			if changed == line {
				continue
			}
			seen[kind]++
			mutant := slices.Clone(lines)
			mutant[i] = changed
			got, err := sourceTable(strings.Join(mutant, "\n"))
			if err == nil && slices.Equal(got, want) {
				t.Errorf("%s of line %d is not compared: %q became %q", kind, i+1, line, changed)
			}
		}
	}
	for kind := range changes {
		if seen[kind] < 5 {
			t.Errorf("%s was changed %d times: the change does not fit the source any more", kind, seen[kind])
		}
	}
}

// Each element of the descriptor is changed once; the comparison must see it.
func TestEveryChangeOfTheDescriptorIsSeen(t *testing.T) {
	want := goldenTable()
	original := protodesc.ToFileDescriptorProto(File_csi_v0_csi_proto)
	sites := descriptorChanges(proto.CloneOf(original))
	built := 0
	for i := range sites {
		mutant := proto.CloneOf(original)
		site := descriptorChanges(mutant)[i]
		site.apply()
		fd, err := protodesc.FileOptions{AllowUnresolvable: true}.New(mutant, nil)
		if err != nil {
			continue // a schema that does not build cannot drift
		}
		built++
		if slices.Equal(descriptorTable(fd), want) {
			t.Errorf("%s is not compared", site.name)
		}
	}
	if built < 300 {
		t.Errorf("only %d of %d changes were compared", built, len(sites))
	}
}

// change is one way in which a schema can drift; apply makes it in place.
type change struct {
	name  string
	apply func()
}

// descriptorChanges lists every change of the file, always in the same order.
func descriptorChanges(file *descriptorpb.FileDescriptorProto) []change {
	var list []change
	add := func(name string, apply func()) { list = append(list, change{name, apply}) }

	var messages func(scope string, all []*descriptorpb.DescriptorProto)
	messages = func(scope string, all []*descriptorpb.DescriptorProto) {
		for _, message := range all {
			at := scope + "." + message.GetName()
			if message.GetOptions().GetMapEntry() {
				value := message.Field[1]
				add(at+" map value type", func() { value.Type = descriptorpb.FieldDescriptorProto_TYPE_BYTES.Enum() })
				continue
			}
			for _, field := range message.Field {
				fieldChanges(add, at+"."+field.GetName(), field)
			}
			messages(at, message.NestedType)
			for _, enum := range message.EnumType {
				for _, value := range enum.Value {
					if value.GetNumber() != 0 { // proto3 wants a zero, so that one cannot drift
						add(at+" value number", func() { value.Number = proto.Int32(99) })
					}
					add(at+" value name", func() { value.Name = proto.String("OTHER") })
				}
			}
		}
	}
	messages(file.GetPackage(), file.MessageType)

	for _, service := range file.Service {
		for _, method := range service.Method {
			at := service.GetName() + "." + method.GetName()
			add(at+" name", func() { method.Name = proto.String("Other") })
			add(at+" input", func() { method.InputType = proto.String(".csi.v0.Volume") })
			add(at+" output", func() { method.OutputType = proto.String(".csi.v0.Volume") })
			add(at+" client stream", func() { method.ClientStreaming = proto.Bool(true) })
			add(at+" server stream", func() { method.ServerStreaming = proto.Bool(true) })
		}
	}
	return list
}

func fieldChanges(add func(string, func()), at string, field *descriptorpb.FieldDescriptorProto) {
	repeated := field.GetLabel() == descriptorpb.FieldDescriptorProto_LABEL_REPEATED
	add(at+" number", func() { field.Number = proto.Int32(99) })
	add(at+" name", func() { field.Name, field.JsonName = proto.String("other"), nil })
	add(at+" type", func() {
		field.Type, field.TypeName = descriptorpb.FieldDescriptorProto_TYPE_BYTES.Enum(), nil
	})
	if field.OneofIndex != nil {
		add(at+" oneof", func() { field.OneofIndex = nil })
	}
	switch {
	case repeated:
		add(at+" label", func() { field.Label = descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum() })
	case field.OneofIndex == nil:
		add(at+" label", func() { field.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum() })
	}
}
