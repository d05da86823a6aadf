package csiv0

import (
	"testing"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// That this program starts at all is half of the test: protobuf-go panics
// where two files register one name.
func TestBothVersionsLoadInOneProgram(t *testing.T) {
	for path, pkg := range map[string]protoreflect.FullName{
		File_csi_v0_csi_proto.Path(): "csi.v0",
		csi.File_csi_proto.Path():    "csi.v1",
		"csi/v0/csi.proto":           "csi.v0",
	} {
		fd, err := protoregistry.GlobalFiles.FindFileByPath(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if fd.Package() != pkg {
			t.Errorf("%s holds package %s, want %s", path, fd.Package(), pkg)
		}
	}
	for _, name := range []protoreflect.FullName{"csi.v0.Volume", "csi.v1.Volume"} {
		if _, err := protoregistry.GlobalTypes.FindMessageByName(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
