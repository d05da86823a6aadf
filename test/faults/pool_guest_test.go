//go:build guest

package faults

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/tarn-csi/tarn/test/machine"
)

// property is what ZFS says of a dataset, as a number where it has one.
func property(t *testing.T, name, dataset string) string {
	t.Helper()
	return strings.TrimSpace(machine.Sh(t, "zfs", "get", "-Hp", "-o", "value", name, dataset))
}

func bytesOf(t *testing.T, name, dataset string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(property(t, name, dataset), 10, 64)
	step(t, err)
	return n
}

// filePool makes a pool on a file, for a test that takes it away under the
// daemon.
func filePool(t *testing.T, name string, options ...string) (dir string) {
	t.Helper()
	dir = filepath.Join(host.Daemon.Dir, "pool-"+name)
	step(t, os.Mkdir(dir, 0o755))
	file := filepath.Join(dir, "disk")
	step(t, os.WriteFile(file, nil, 0o600))
	step(t, os.Truncate(file, 512*mib))
	machine.Sh(t, "zpool", append(append([]string{"create"}, options...), "-o", "cachefile=none", "-O", "mountpoint="+filepath.Join(dir, "m"), name, file)...)
	return dir
}

// A pool without features prints dashes: it is available all the same, and an
// odd dataset is in nobody's way.
func TestC14PoolsThatPrintDashes(t *testing.T) {
	filePool(t, "c14", "-d")
	if p := strings.TrimSpace(machine.Sh(t, "zpool", "get", "-H", "-o", "value", "fragmentation", "c14")); p != "-" {
		t.Fatalf("fragmentation prints %q, so this pool shows nothing", p)
	}
	machine.Sh(t, "zfs", "create", "c14/csi")
	d := startDaemon(t, "c14", "p=c14/csi", func() error { return machine.Run("zpool", "destroy", "c14") })
	machine.Sh(t, "zfs", "create", "c14/csi/odd")
	machine.Sh(t, "zfs", "create", "-s", "-V", "1M", "c14/csi/oddzvol")
	machine.Sh(t, "zfs", "set", "tarn:size=-", "tarn:uuid=", "tarn:name=x", "c14/csi/odd")
	for _, p := range []plugin{inV0(daemonConn{d}), inV1(daemonConn{d})} {
		v := newVol(t, p, creation("c14-"+p.version, "nfs", 16*mib, asFilesystem("")))
		must[*csi.ProbeResponse](t, "Probe")(p.Probe(soon(t), &csi.ProbeRequest{}))
		got := must[*csi.GetCapacityResponse](t, "GetCapacity")(p.GetCapacity(soon(t), &csi.GetCapacityRequest{})).GetAvailableCapacity()
		if want := bytesOf(t, "available", "c14/csi"); got < want-mib || got > want+mib {
			t.Errorf("GetCapacity: %d, available: %d", got, want)
		}
		var ids []string
		for _, e := range must[*csi.ListVolumesResponse](t, "ListVolumes")(p.ListVolumes(soon(t), &csi.ListVolumesRequest{})).GetEntries() {
			ids = append(ids, e.GetVolume().GetVolumeId())
		}
		if !strings.Contains(strings.Join(ids, " "), v.id) {
			t.Errorf("listed: %q", ids)
		}
		v.remove()
	}
}

// Without its key a dataset is not served, nor is the directory under it; other
// datasets are, and with the key the next call works.
func TestC17AKeyThatIsNotLoaded(t *testing.T) {
	dir := filePool(t, "c17")
	key := filepath.Join(t.TempDir(), "key")
	step(t, os.WriteFile(key, []byte("sentinel-passphrase"), 0o600))
	machine.Sh(t, "zfs", "create", "-o", "encryption=on", "-o", "keyformat=passphrase", "-o", "keylocation=file://"+key, "c17/enc")
	machine.Sh(t, "zfs", "set", "keylocation=prompt", "c17/enc")
	machine.Sh(t, "zfs", "create", "c17/csi")
	d := startDaemon(t, "c17", "enc=c17/enc,csi=c17/csi", func() error { return machine.Run("zpool", "destroy", "c17") }, "--reconcile-interval", "2s")
	in := func(p plugin, pool, name, protocol string) *vol {
		t.Helper()
		r := creation(name, protocol, 16*mib, asFilesystem(""))
		r.Parameters["pool"] = pool
		return newVol(t, p, r)
	}
	v0, v1 := inV0(daemonConn{d}), inV1(daemonConn{d})
	locked := []*vol{in(v0, "enc", "c17-nfs", "nfs"), in(v1, "enc", "c17-zvol", "iscsi")}
	open := in(v1, "csi", "c17-open", "nfs")
	locked[0].up()
	write(t, locked[0].data(), "kept")
	locked[0].nodeUnpublish()
	locked[0].unstage()
	d.Kill() // published, as before a power loss
	share := filepath.Join(dir, "m/enc/c17-nfs")
	machine.Sh(t, "exportfs", "-u", "127.0.0.1:"+share)
	eventually(t, "the pool is exported", time.Minute, func() bool { return machine.Run("zpool", "export", "c17") == nil })
	machine.Sh(t, "zpool", "import", "-o", "cachefile=none", "-d", dir, "c17")
	if status := property(t, "keystatus", "c17/enc"); status != "unavailable" {
		t.Fatalf("the key is %s", status)
	}
	step(t, d.Start(soon(t))) // ready, since the other pool is
	must[*csi.ProbeResponse](t, "Probe")(v0.Probe(soon(t), &csi.ProbeRequest{}))

	refused := func(what string, err error) {
		t.Helper()
		wantCode(t, what, err, "key", codes.FailedPrecondition, codes.Unavailable)
		if err != nil && strings.Contains(err.Error(), "sentinel") {
			t.Errorf("%s: the key is in the message", what)
		}
	}
	for k, v := range locked {
		r := creation(v.word, []string{"nfs", "iscsi"}[k], 16*mib, asFilesystem(""))
		r.Parameters["pool"] = "enc"
		_, err := v.p.CreateVolume(soon(t), r)
		refused("replay of "+v.word, err)
		_, err = v.p.ControllerPublishVolume(soon(t), v.publishRequest())
		refused("publish "+v.word, err)
		refused("delete "+v.word, v.tryRemove())
	}
	r := creation("c17-new", "nfs", 16*mib, asFilesystem(""))
	r.Parameters["pool"] = "enc"
	_, err := v1.CreateVolume(soon(t), r)
	refused("a new volume", err)
	if err := locked[0].tryStage(); err == nil {
		t.Error("a volume without its key is staged")
	}
	if text, err := os.ReadFile("/proc/fs/nfsd/exports"); err == nil && strings.Contains(string(text), share) {
		t.Errorf("the directory under the dataset is served: %s", text)
	}
	open.up()
	write(t, open.data(), "works all the time")
	open.down()

	machine.Sh(t, "zfs", "load-key", "-L", "file://"+key, "c17/enc")
	eventually(t, "the pool is used without a restart", 2*time.Minute, func() bool {
		_, err := v1.ControllerPublishVolume(soon(t), locked[0].publishRequest())
		return err == nil
	})
	for _, v := range locked {
		v.publish()
		v.stage()
		v.nodePublish()
		if v == locked[0] {
			wantText(t, v.data(), "kept")
		}
		v.down()
	}
	if strings.Contains(d.Log(), "sentinel-passphrase") {
		t.Error("the key is in the log")
	}
}

// A boot imports a pool without mounts, and mounts all of it a moment later. A
// daemon that starts in between leaves nothing in the way of that.
func TestABootThatMountsAfterTheDaemon(t *testing.T) {
	dir := filePool(t, "bare")
	machine.Sh(t, "zfs", "create", "bare/a")
	machine.Sh(t, "zfs", "create", "bare/a/csi")
	d := startDaemon(t, "bare", "p=bare/a/csi", func() error { return machine.Run("zpool", "destroy", "bare") })
	v := newVol(t, inV1(daemonConn{d}), creation("bare-nfs", "nfs", 16*mib, asFilesystem("")))
	v.up()
	write(t, v.data(), "kept")
	v.nodeUnpublish()
	v.unstage()
	d.Kill()
	machine.Sh(t, "exportfs", "-u", "127.0.0.1:"+filepath.Join(dir, "m/a/csi/bare-nfs"))
	eventually(t, "the pool is exported", time.Minute, func() bool { return machine.Run("zpool", "export", "bare") == nil })
	machine.Sh(t, "zpool", "import", "-N", "-o", "cachefile=none", "-d", dir, "bare")
	step(t, d.Start(soon(t)))
	machine.Sh(t, "zfs", "mount", "-a")
	for dataset, below := range map[string]string{"bare": "", "bare/a": "a", "bare/a/csi": "a/csi", "bare/a/csi/bare-nfs": "a/csi/bare-nfs"} {
		// What the path leads to, which is not what the table of mounts says of one that
		// is covered.
		at := filepath.Join(dir, "m", below)
		if found := strings.TrimSpace(machine.Sh(t, "findmnt", "-n", "-o", "SOURCE", "--target", at)); found != dataset {
			t.Errorf("%s leads to %s, not to %s", at, found, dataset)
		}
	}
	v.stage()
	v.nodePublish()
	wantText(t, v.data(), "kept")
	v.down()
	v.remove()
}
