package csiv0

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// descriptorTable renders a descriptor in the form of schema.golden, one line
// an entry. Everything that the wire depends on is in it.
func descriptorTable(fd protoreflect.FileDescriptor) []string {
	lines := []string{fmt.Sprintf("package %s syntax %s", fd.Package(), fd.Syntax())}
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	local := func(d protoreflect.Descriptor) string {
		return strings.TrimPrefix(string(d.FullName()), string(fd.Package())+".")
	}

	enums := func(list protoreflect.EnumDescriptors) {
		for i := range list.Len() {
			enum := list.Get(i)
			add("enum %s", local(enum))
			for j := range enum.Values().Len() {
				value := enum.Values().Get(j)
				add("  %d %s", value.Number(), value.Name())
			}
		}
	}
	var messages func(protoreflect.MessageDescriptors)
	messages = func(list protoreflect.MessageDescriptors) {
		for i := range list.Len() {
			message := list.Get(i)
			if message.IsMapEntry() {
				continue
			}
			add("message %s", local(message))
			for j := range message.Fields().Len() {
				add("  %s", fieldLine(message.Fields().Get(j), local))
			}
			messages(message.Messages())
			enums(message.Enums())
		}
	}

	for i := range fd.Services().Len() {
		service := fd.Services().Get(i)
		add("service %s", local(service))
		for j := range service.Methods().Len() {
			add("  %s", methodLine(service.Methods().Get(j), local))
		}
	}
	messages(fd.Messages())
	enums(fd.Enums())
	return lines
}

func fieldLine(field protoreflect.FieldDescriptor, local func(protoreflect.Descriptor) string) string {
	kind := func(f protoreflect.FieldDescriptor) string {
		switch {
		case f.Message() != nil:
			return local(f.Message())
		case f.Enum() != nil:
			return local(f.Enum())
		}
		return f.Kind().String()
	}

	line := fmt.Sprintf("%d %s ", field.Number(), field.Name())
	switch {
	case field.IsMap():
		line += fmt.Sprintf("map<%s, %s>", kind(field.MapKey()), kind(field.MapValue()))
	case field.IsList():
		line += "repeated " + kind(field)
	default:
		line += kind(field)
	}
	if oneof := field.ContainingOneof(); oneof != nil {
		line += " oneof " + string(oneof.Name())
	}
	return line
}

func methodLine(method protoreflect.MethodDescriptor, local func(protoreflect.Descriptor) string) string {
	stream := func(on bool) string {
		if on {
			return "stream "
		}
		return ""
	}
	return fmt.Sprintf("%s(%s%s) %s%s", method.Name(),
		stream(method.IsStreamingClient()), local(method.Input()),
		stream(method.IsStreamingServer()), local(method.Output()))
}
