package manifest_test

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/manifest"
	"github.com/tarn-csi/tarn/pkg/volume"
)

const (
	driver = "io.github.tarn-csi"
	gib    = 1 << 30
)

var subdomain = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)

func lasting(id, name, protocol string, bytes int64, caps ...access.Capability) volume.Lasting {
	v := volume.Lasting{Name: name, UUID: strings.Repeat(id[len(id)-1:], 32), Protocol: protocol, Capabilities: caps}
	v.ID, v.CapacityBytes, v.Context = id, bytes, map[string]string{"protocol": protocol}
	return v
}

func mount(m access.Mode, fsType string) access.Capability {
	return access.Capability{Type: access.Mount, Mode: m, FSType: fsType}
}

func owned(v volume.Lasting, namespace, claim, object string) volume.Lasting {
	v.Owner.Namespace, v.Owner.Claim, v.Owner.Volume = namespace, claim, object
	return v
}

// write returns the YAML, which it reads back: it must hold what went in.
func write(t *testing.T, list []manifest.PersistentVolume) string {
	t.Helper()
	var out bytes.Buffer
	if err := manifest.Write(&out, list); err != nil {
		t.Fatal(err)
	}
	d := yaml.NewDecoder(bytes.NewReader(out.Bytes()))
	d.KnownFields(true)
	for _, want := range list {
		var got manifest.PersistentVolume
		if err := d.Decode(&got); err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("read back, it differs (-want +got)\n%s", diff)
		}
	}
	return out.String()
}

func TestObjectsAreWhatTheyWere(t *testing.T) {
	xfs := lasting("tank/b", "pvc-b", volume.ISCSI, 3*gib/2, mount(access.SingleNodeSingleWriter, "xfs"))
	xfs.Context["fsType"], xfs.Context["mountOptions"] = "xfs", "noatime,discard"
	block := lasting("tank/c", "pvc-c", volume.ISCSI, 10*gib, access.Capability{Type: access.Block, Mode: access.MultiNodeMultiWriter})
	block.Context["fsType"] = "ext4"
	list, told := manifest.PersistentVolumes(driver, []volume.Lasting{
		owned(lasting("tank/a", "pvc-a", volume.NFS, 5*gib, mount(access.MultiNodeMultiWriter, ""), mount(access.MultiNodeReaderOnly, "")), "shop", "data", "pvc-a"),
		owned(xfs, "shop", "db", "pvc-b"),
		block,
	}, manifest.Classes{volume.NFS: "tarn-nfs", volume.ISCSI: "tarn-ext4", "iscsi/xfs": "tarn-xfs"})
	if len(told) > 0 {
		t.Errorf("told: %q", told)
	}
	golden, err := os.ReadFile("testdata/volumes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(golden), write(t, list)); diff != "" {
		t.Errorf("it differs (-want +got)\n%s", diff)
	}
}

func TestAccessModes(t *testing.T) {
	all := func(list ...access.Mode) (caps []access.Capability) {
		for _, m := range list {
			caps = append(caps, mount(m, ""))
		}
		return caps
	}
	for _, c := range []struct {
		caps []access.Capability
		want string
	}{
		{all(access.SingleNodeWriter), "ReadWriteOnce"},
		{all(access.SingleNodeMultiWriter), "ReadWriteOnce"},
		{all(access.SingleNodeWriter, access.SingleNodeMultiWriter), "ReadWriteOnce"},
		{all(access.SingleNodeSingleWriter), "ReadWriteOncePod"},
		{all(access.SingleNodeSingleWriter, access.MultiNodeReaderOnly), "ReadOnlyMany ReadWriteOnce"},
		{all(access.SingleNodeSingleWriter, access.SingleNodeWriter), "ReadWriteOnce"},
		{all(access.SingleNodeReaderOnly), "ReadOnlyMany"},
		{all(access.MultiNodeSingleWriter), "ReadWriteMany"},
		// Kubernetes has one volume mode an object.
		{append(all(access.SingleNodeWriter), access.Capability{Type: access.Block, Mode: access.MultiNodeMultiWriter}), "ReadWriteOnce"},
	} {
		list, _ := manifest.PersistentVolumes(driver, []volume.Lasting{lasting("tank/a", "a", volume.NFS, gib, c.caps...)}, nil)
		if got := strings.Join(list[0].Spec.AccessModes, " "); got != c.want || list[0].Spec.VolumeMode != "Filesystem" {
			t.Errorf("%v: %s, want %s", c.caps, got, c.want)
		}
	}
	for m := access.SingleNodeWriter; m.Known(); m++ {
		list, _ := manifest.PersistentVolumes(driver, []volume.Lasting{lasting("tank/a", "a", volume.NFS, gib, mount(m, ""))}, nil)
		if modes := list[0].Spec.AccessModes; len(modes) != 1 || modes[0] == "" {
			t.Errorf("%s: %q", m, modes)
		}
	}
}

// Whatever names the owner and the volume have: the YAML holds one object of a
// valid name, and a claimRef only for a claim that there can be.
func TestHostileNames(t *testing.T) {
	for _, name := range []string{
		"", "x\"\n---\nkind: Secret", `"},{"`, "a: b", "- a", "{a", "*a", "&a", "!!str a", "# a", "a #b", "%YAML", "@", "`", "\x00", "\u2028", "\u00fc", "A", "_a", "a_b", "-a", "a-", "a..b", ".a", "../x", "a/b", strings.Repeat("a", 254), "a\n", "<script>",
	} {
		v := owned(lasting("tank/a", name, volume.NFS, gib, mount(access.SingleNodeWriter, "")), name, name, name)
		list, told := manifest.PersistentVolumes(driver, []volume.Lasting{v}, manifest.Classes{volume.NFS: "c"})
		text := write(t, list)
		if strings.Count(text, "kind:") != 1 || list[0].Metadata.Name != "tarn-"+v.UUID || list[0].Spec.ClaimRef != nil || list[0].Spec.StorageClass != "" {
			t.Errorf("%q:\n%s", name, text)
		}
		if want := min(len(name), 1); len(told) != want || want == 1 && strings.ContainsAny(told[0], "\n\x00\u2028") {
			t.Errorf("%q: told %q", name, told)
		}
	}
}

// A claim is one with its namespace, which has no dots.
func TestANamespaceIsALabel(t *testing.T) {
	for _, namespace := range []string{"", "a.b", "A", strings.Repeat("a", 64)} {
		v := owned(lasting("tank/a", "a", volume.NFS, gib, mount(access.SingleNodeWriter, "")), namespace, "data", "")
		list, told := manifest.PersistentVolumes(driver, []volume.Lasting{v}, manifest.Classes{volume.NFS: "fast"})
		if list[0].Spec.ClaimRef != nil || list[0].Spec.StorageClass != "" || len(told) != 1 {
			t.Errorf("%q: %+v, told %q", namespace, list[0].Spec, told)
		}
	}
}

// Names that Kubernetes takes and YAML takes for something else are quoted, for
// readers of YAML 1.1 too.
func TestNamesThatLookLikeOtherValues(t *testing.T) {
	for _, name := range []string{"true", "no", "on", "y", "null", "0", "0123", "0o17", "0x1f", "0b1", "1e3", "1.5", "12e03", "2026-11-30", "190"} {
		v := owned(lasting("tank/a", "a", volume.NFS, gib, mount(access.SingleNodeWriter, "")), "shop", name, name)
		list, _ := manifest.PersistentVolumes(driver, []volume.Lasting{v}, manifest.Classes{volume.NFS: name})
		text := write(t, list)
		if n := strings.Count(text, `name: "`+name+"\"\n"); n != 2 || !strings.Contains(text, `storageClassName: "`+name+`"`) {
			t.Errorf("%s is not quoted:\n%s", name, text)
		}
	}
}

// Two volumes of one claim: nobody but a person knows which one it used.
func TestAClaimOfTwoVolumesGetsNeither(t *testing.T) {
	rw := mount(access.SingleNodeWriter, "")
	list, told := manifest.PersistentVolumes(driver, []volume.Lasting{
		owned(lasting("tank/a", "a", volume.NFS, gib, rw), "shop", "data", "pvc-1"),
		owned(lasting("tank/b", "b", volume.NFS, gib, rw), "shop", "data", "pvc-2"),
		owned(lasting("tank/c", "c", volume.NFS, gib, rw), "bank", "data", "pvc-2"),
		lasting("tank/d", "pvc-1", volume.NFS, gib, rw),
		lasting("tank/e", "e", volume.NFS, gib, rw),
	}, manifest.Classes{volume.NFS: "fast"})
	var got []string
	for _, o := range list {
		line := o.Metadata.Name + " " + o.Spec.StorageClass
		if r := o.Spec.ClaimRef; r != nil {
			line += " " + r.Namespace + "/" + r.Name
		}
		got = append(got, line)
		if !subdomain.MatchString(o.Metadata.Name) {
			t.Errorf("no object can be named %q", o.Metadata.Name)
		}
	}
	id := func(s string) string { return "tarn-" + strings.Repeat(s, 32) }
	want := []string{id("a") + " ", id("b") + " ", id("c") + " fast bank/data", id("d") + " ", "e "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("it differs (-want +got)\n%s", diff)
	}
	if len(told) != 2 || !strings.Contains(told[0], "shop/data is the owner of tank/a and tank/b") {
		t.Errorf("told: %q", told)
	}
}

func TestParseClasses(t *testing.T) {
	for _, c := range []struct {
		given string
		want  manifest.Classes // nil: refused
	}{
		{"", manifest.Classes{}},
		{"fast", manifest.Classes{"nfs": "fast", "iscsi": "fast"}},
		{"nfs=a iscsi=b.c", manifest.Classes{"nfs": "a", "iscsi": "b.c"}},
		{"iscsi=b", manifest.Classes{"iscsi": "b"}},
		{"a b", nil},
		{"nfs=a b", nil},
		{"iscsi=a iscsi/xfs=b iscsi/block=c", manifest.Classes{"iscsi": "a", "iscsi/xfs": "b", "iscsi/block": "c"}},
		{"smb=a", nil},
		{"nfs/xfs=a", nil},
		{"nfs=", nil},
		{"A", nil},
		{"a_b", nil},
	} {
		got, err := manifest.ParseClasses(strings.Fields(c.given))
		if (err == nil) != (c.want != nil) || err == nil && !cmp.Equal(got, c.want) {
			t.Errorf("%q: %v, %v", c.given, got, err)
		}
	}
}
