//go:build guest && long

package faults

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/tarn-csi/tarn/test/machine"
)

// A pool that fails, or that is imported late, is in nobody's way: the other
// one's volumes are made, served and used, also by a daemon that starts
// meanwhile. When it is back its volumes are served without a restart or a call.
func TestOnePoolOfTwoFails(t *testing.T) {
	frail := machine.NewFrail(t, "frail", "-m", filepath.Join(host.Daemon.Dir, "frail-m"))
	filePool(t, "sound")
	machine.Sh(t, "zfs", "create", "frail/csi")
	machine.Sh(t, "zfs", "create", "sound/csi")
	d := startDaemon(t, "two", "frail=frail/csi,sound=sound/csi", func() error {
		frail.Heal()
		return machine.Run("zpool", "destroy", "sound")
	})
	p := inV1(daemonConn{d})
	in := func(pool, protocol string) *vol {
		t.Helper()
		r := creation(pool+"-"+protocol, protocol, 32*mib, asFilesystem(""))
		r.Parameters["pool"] = pool
		return newVol(t, p, r)
	}
	published := []*vol{in("frail", "nfs"), in("frail", "iscsi"), in("sound", "nfs"), in("sound", "iscsi")}
	for k, v := range published {
		v.up()
		write(t, v.data(), "kept in "+v.word)
		if k < 2 { // nobody uses it while the pool is away
			v.nodeUnpublish()
			v.unstage()
		}
	}
	share := filepath.Join(host.Daemon.Dir, "frail-m/csi/frail-nfs")
	works := func(when, name string) {
		t.Helper()
		start := time.Now()
		must[*csi.ProbeResponse](t, "Probe")(p.Probe(soon(t), &csi.ProbeRequest{}))
		for _, protocol := range []string{"nfs", "iscsi"} {
			r := creation(name+"-"+protocol, protocol, 32*mib, asFilesystem(""))
			r.Parameters["pool"] = "sound"
			v := newVol(t, p, r)
			v.up()
			write(t, v.data(), "works")
			v.down()
		}
		for _, v := range published[2:] {
			wantText(t, v.data(), "kept in "+v.word)
		}
		t.Logf("%s: two lives took %s", when, time.Since(start).Round(time.Millisecond))
	}
	refused := func(when string) {
		t.Helper()
		for _, v := range published[:2] {
			wantCode(t, when+": delete", v.tryRemove(), `"frail"`, codes.Unavailable)
			_, err := p.ControllerPublishVolume(soon(t), v.publishRequest())
			wantCode(t, when+": publish", err, `"frail"`, codes.Unavailable)
		}
	}
	works("undisturbed", "before")

	frail.Break()
	writer := exec.Command("zfs", "set", "tarn-test:x=1", "frail") // finds out, and may hang until the pool is back
	step(t, writer.Start())
	machine.Eventually(t, "the pool is suspended", frail.Suspended)
	works("suspended", "suspended")
	refused("suspended")
	d.Kill()
	step(t, d.Start(soon(t)))
	works("started while it is suspended", "started")
	refused("started while it is suspended")

	frail.Heal()
	_ = writer.Wait() // whether it succeeds is not asked
	eventually(t, "the pool that is back is used", time.Minute, func() bool { return published[1].tryUnpublish() == nil })
	d.Kill()
	machine.Sh(t, "exportfs", "-u", "127.0.0.1:"+share)
	eventually(t, "the pool is exported", time.Minute, func() bool { return machine.Run("zpool", "export", "frail") == nil })
	step(t, d.Start(soon(t)))
	works("not imported", "away")
	refused("not imported")
	machine.Sh(t, "zpool", "import", "-o", "cachefile=none", "-d", "/dev/mapper", "frail")
	eventually(t, "its volume is served without a call", time.Minute, func() bool { return published[0].tryStage() == nil })
	eventually(t, "its other volume is published again", time.Minute, func() bool {
		_, err := p.ControllerPublishVolume(soon(t), published[1].publishRequest())
		return err == nil
	})
	if twice := strings.Count(machine.Sh(t, "cat", "/proc/self/mounts"), "frail/csi "); twice != 1 {
		t.Errorf("the parent is mounted %d times", twice)
	}
	for _, v := range published {
		if strings.HasPrefix(v.word, "frail") {
			v.publish()
			v.stage()
			v.nodePublish()
		}
		wantText(t, v.data(), "kept in "+v.word)
		v.down()
	}
}
