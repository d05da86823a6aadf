package csi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	csiv0 "github.com/tarn-csi/tarn/proto/csi/v0"
)

const (
	secret   = "sentinel-secret"
	harmless = "harmless-text"
	token    = "csi.storage.k8s.io/serviceAccount.tokens"
)

// isSecret is the rule of both specifications, written apart from the code. The
// options are not asked: the names are the same in all versions of the schema.
func isSecret(f protoreflect.FieldDescriptor) bool {
	return strings.HasSuffix(string(f.Name()), "secrets") || f.Name() == "mount_flags"
}

// filler puts a text into every string of a message, the secret one below a
// secret field, and counts those.
type filler struct {
	pick    int // which member of each oneof
	secrets map[protoreflect.FullName]bool
}

func (f *filler) fill(m protoreflect.Message, text string, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if o := fd.ContainingOneof(); o != nil && o.Fields().Get(f.pick%o.Fields().Len()) != fd {
			continue
		}
		own := text
		if isSecret(fd) {
			own = secret
			f.secrets[fd.FullName()] = true
		}
		switch {
		case fd.IsMap():
			entry := m.Mutable(fd).Map()
			entry.Set(protoreflect.ValueOfString(own+"-key").MapKey(), protoreflect.ValueOfString(own))
			entry.Set(protoreflect.ValueOfString(token).MapKey(), protoreflect.ValueOfString(secret))
		case fd.Kind() == protoreflect.StringKind && fd.IsList():
			m.Mutable(fd).List().Append(protoreflect.ValueOfString(own))
		case fd.Kind() == protoreflect.StringKind:
			m.Set(fd, protoreflect.ValueOfString(own))
		case fd.Kind() == protoreflect.BytesKind:
			m.Set(fd, protoreflect.ValueOfBytes([]byte(own)))
		case fd.Kind() == protoreflect.MessageKind && depth > 8:
		case fd.Kind() == protoreflect.MessageKind && fd.IsList():
			f.fill(m.Mutable(fd).List().AppendMutable().Message(), own, depth+1)
		case fd.Kind() == protoreflect.MessageKind:
			f.fill(m.Mutable(fd).Message(), own, depth+1)
		}
	}
}

// messages lists the types of a file, nested ones too.
func messages(list protoreflect.MessageDescriptors) []protoreflect.MessageDescriptor {
	var all []protoreflect.MessageDescriptor
	for i := range list.Len() {
		if d := list.Get(i); !d.IsMapEntry() {
			all = append(append(all, d), messages(d.Messages())...)
		}
	}
	return all
}

func TestC58NothingSecretIsRenderedInAnyMessageOfBothVersions(t *testing.T) {
	for _, c := range []struct {
		file    protoreflect.FileDescriptor
		secrets int // how many fields the schema has
	}{
		{csi.File_csi_proto, markedSecrets(csi.File_csi_proto) + 1},
		{csiv0.File_csi_v0_csi_proto, 6 + 1},
	} {
		all := &filler{secrets: map[protoreflect.FullName]bool{}}
		for _, d := range messages(c.file.Messages()) {
			for all.pick = range 4 {
				m := dynamicpb.NewMessage(d)
				all.fill(m, harmless, 0)
				before := proto.Clone(m)
				text := Redact(m)
				if strings.Contains(text, secret) {
					t.Errorf("%s: %s", d.FullName(), text)
				}
				if fmt.Sprint(m) != fmt.Sprint(before) && !proto.Equal(m, before) {
					t.Errorf("%s: the request itself was changed", d.FullName())
				}
				if strings.Contains(before.(fmt.Stringer).String(), harmless) && !strings.Contains(text, harmless) {
					t.Errorf("%s: nothing is left: %s", d.FullName(), text)
				}
			}
		}
		if len(all.secrets) != c.secrets {
			t.Errorf("%s: found %d secret fields, want %d: %v", c.file.Path(), len(all.secrets), c.secrets, all.secrets)
		}
	}
}

// markedSecrets counts the fields that the schema itself marks. mount_flags is
// secret only by its comment.
func markedSecrets(file protoreflect.FileDescriptor) int {
	n := 0
	for _, d := range messages(file.Messages()) {
		for i := range d.Fields().Len() {
			if proto.GetExtension(d.Fields().Get(i).Options(), csi.E_CsiSecret).(bool) {
				n++
			}
		}
	}
	return n
}

func TestRedactOfRealRequests(t *testing.T) {
	flags := &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{
		FsType: "ext4", MountFlags: []string{"password=" + secret}}}}
	flags0 := &csiv0.VolumeCapability{AccessType: &csiv0.VolumeCapability_Mount{Mount: &csiv0.VolumeCapability_MountVolume{
		FsType: "ext4", MountFlags: []string{"password=" + secret}}}}
	pair := map[string]string{"node.session.auth.password": secret}
	for _, m := range []proto.Message{
		&csi.NodeStageVolumeRequest{VolumeId: harmless, Secrets: pair, VolumeCapability: flags},
		&csi.NodePublishVolumeRequest{VolumeId: harmless, Secrets: pair, VolumeCapability: flags, VolumeContext: map[string]string{token: secret}},
		&csi.CreateVolumeRequest{Name: harmless, Secrets: pair, VolumeCapabilities: []*csi.VolumeCapability{flags, flags}},
		&csiv0.NodeStageVolumeRequest{VolumeId: harmless, NodeStageSecrets: pair, VolumeCapability: flags0},
		&csiv0.ControllerPublishVolumeRequest{VolumeId: harmless, ControllerPublishSecrets: pair, VolumeCapability: flags0},
		&csiv0.CreateVolumeRequest{Name: harmless, ControllerCreateSecrets: pair, VolumeCapabilities: []*csiv0.VolumeCapability{flags0, flags0}},
	} {
		text := Redact(m)
		if strings.Contains(text, secret) || !strings.Contains(text, harmless) || !strings.Contains(text, "ext4") {
			t.Errorf("%T: %s", m, text)
		}
	}
	if got := Redact("a " + secret); got != "string" {
		t.Errorf("what is no message is %s", got)
	}
	if got := Redact(nil); strings.Contains(got, secret) {
		t.Error(got)
	}
}
