package volume_test

import (
	"slices"
	"testing"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/volume"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

func TestParameters(t *testing.T) {
	good := []struct{ protocol, key, value, property, want string }{
		{"nfs", "pool", "tank", "", ""},
		{"nfs", "thin", "true", "refreservation", "0"},
		{"nfs", "thin", "false", "refreservation", "1073741824"},
		{"iscsi", "thin", "false", "volmode", "dev"},
		{"iscsi", "fsType", "xfs", "volmode", "dev"},
		{"iscsi", "fsType", "ext3", "volsize", "1073741824"},
		{"nfs", "squash", "all", "", ""},
		{"nfs", "anonuid", "1000", "", ""},
		{"nfs", "anongid", "1000", "", ""},
		{"nfs", "uid", "1000", "", ""},
		{"nfs", "gid", "4294967294", "", ""},
		{"nfs", "mode", "2775", "", ""},
		{"nfs", "mountOptions", "nconnect=4,noatime", "", ""},
		{"nfs", "cloneMode", "linked", "", ""},
		{"iscsi", "cloneMode", "full", "", ""},
		{"nfs", "zfs.compression", "zstd-3", "compression", "zstd-3"},
		{"nfs", "zfs.recordsize", "16K", "recordsize", "16384"},
		{"nfs", "zfs.recordsize", "1M", "recordsize", "1048576"},
		{"iscsi", "zfs.volblocksize", "8K", "volblocksize", "8192"},
		{"iscsi", "zfs.volblocksize", "16384", "volblocksize", "16384"},
		{"nfs", "zfs.sync", "disabled", "sync", "disabled"},
		{"iscsi", "zfs.logbias", "throughput", "logbias", "throughput"},
		{"nfs", "zfs.atime", "off", "atime", "off"},
		{"nfs", "zfs.xattr", "sa", "xattr", "sa"},
		{"nfs", "zfs.acltype", "posix", "acltype", "posix"},
		{"iscsi", "zfs.copies", "2", "copies", "2"},
		{"nfs", "zfs.dedup", "sha256,verify", "dedup", "sha256,verify"},
		{"nfs", "zfs.primarycache", "metadata", "primarycache", "metadata"},
		{"iscsi", "zfs.secondarycache", "none", "secondarycache", "none"},
		{"iscsi", "zfs.checksum", "sha512", "checksum", "sha512"},
		{"nfs", "csi.storage.k8s.io/pvc/name", "x", "", ""},
		{"nfs", "csiProvisionerSecretName", "x", "", ""},
		{"nfs", "csiNodePublishSecretNamespace", "x", "", ""},
	}
	seen := map[string]bool{"protocol": true}
	for _, c := range good {
		seen[c.key] = true
		t.Run(c.protocol+" "+c.key+"="+c.value, func(t *testing.T) {
			e := newEnv(t)
			e.create(with(request("v", c.protocol), c.key, c.value))
			d, err := e.ZFS().Get(t.Context(), parent+"/v")
			must(t, err)
			if got, _ := d.Value(c.property); c.property != "" && got != c.want {
				t.Errorf("%s is %q, want %q", c.property, got, c.want)
			}
		})
	}
	for _, key := range volume.KnownParameters() {
		if !seen[key] {
			t.Errorf("parameter %s is in no case", key)
		}
	}
}

func TestRefusedParameters(t *testing.T) {
	cases := []struct{ name, protocol, key, value, says string }{
		{"unknown", "nfs", "colour", "blue", `"colour" is unknown; known are anongid, anonuid, cloneMode, fsType, gid`},
		{"of another case", "nfs", "FSType", "ext4", "known are"},
		{"a property that is not allowed", "nfs", "zfs.mountpoint", "/etc", "known are"},
		{"a share of ZFS's own", "nfs", "zfs.sharenfs", "on", "known are"},
		{"quota", "nfs", "zfs.refquota", "1G", "known are"},
		{"a user property", "nfs", "zfs.tarn:node.x", "{}", "known are"},
		{"a key that looks like the orchestrator's", "nfs", "csi.storage.k8s.io", "x", "known are"},
		{"no pool of that name", "nfs", "pool", "other", "there are tank"},
		{"no such protocol", "smb", "thin", "true", "serves iscsi, nfs"},
		{"no bool", "nfs", "thin", "yes", "true or false"},
		{"squash", "nfs", "squash", "some", "none, root or all"},
		{"uid -1", "nfs", "uid", "4294967295", "numeric id"},
		{"a name for an id", "nfs", "anonuid", "nobody", "numeric id"},
		{"no octal mode", "nfs", "mode", "0888", "octal"},
		{"a mode that is too large", "nfs", "mode", "17777", "octal"},
		{"two lines", "nfs", "mountOptions", "a\nb", "one line"},
		{"a value of no form", "nfs", "zfs.compression", "best", "form"},
		{"a value with more behind it", "nfs", "zfs.sync", "always,x", "form"},
		{"no power of two", "nfs", "zfs.recordsize", "100K", "power of two"},
		{"a block that is too large", "iscsi", "zfs.volblocksize", "256K", "power of two"},
		{"fsType of nfs", "nfs", "fsType", "ext4", "no use for protocol nfs"},
		{"an unknown filesystem", "iscsi", "fsType", "btrfs", "ext4, ext3 or xfs"},
		{"mode of iscsi", "iscsi", "mode", "0755", "no use for protocol iscsi"},
		{"squash of iscsi", "iscsi", "squash", "none", "no use for protocol iscsi"},
		{"uid of iscsi", "iscsi", "uid", "0", "no use for protocol iscsi"},
		{"recordsize of iscsi", "iscsi", "zfs.recordsize", "16K", "for protocol nfs"},
		{"volblocksize of nfs", "nfs", "zfs.volblocksize", "16K", "for protocol iscsi"},
		{"atime of iscsi", "iscsi", "zfs.atime", "on", "for protocol nfs"},
	}
	e := newEnv(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := e.Create(t.Context(), with(request("v", c.protocol), c.key, c.value))
			wantKind(t, err, fault.Invalid, c.says)
			e.wantDatasets()
		})
	}
}

// The message lists everything that is known, so that a typing error is found.
func TestUnknownParameterNamesTheKnown(t *testing.T) {
	e := newEnv(t)
	_, err := e.Create(t.Context(), with(request("v", "nfs"), "fstype", "ext4"))
	wantKind(t, err, fault.Invalid, volume.KnownParameters()...)
	if !slices.IsSorted(volume.KnownParameters()) {
		t.Error("they are not sorted")
	}
}

// With one protocol it need not be named; with two it must.
func TestDefaultProtocol(t *testing.T) {
	e := newEnv(t, only("iscsi"))
	r := request("v", "")
	r.Parameters = nil
	if v := e.create(r); v.Context["protocol"] != "iscsi" {
		t.Errorf("context %v", v.Context)
	}
	_, err := newEnv(t).Create(t.Context(), r)
	wantKind(t, err, fault.Invalid, "iscsi, nfs")
}

func TestRootOfAnNFSVolume(t *testing.T) {
	e := newEnv(t)
	r := with(with(with(request("v", "nfs"), "uid", "1000"), "gid", "2000"), "mode", "2770")
	e.create(r)
	if got, want := e.Pool.RootOf(parent+"/v"), (zfs.Root{UID: 1000, GID: 2000, Mode: 0o2770}); got != want {
		t.Errorf("root is %+v, want %+v", got, want)
	}
}
