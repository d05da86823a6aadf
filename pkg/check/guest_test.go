//go:build guest

package check

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	csi "github.com/tarn-csi/tarn/proto/csi/v0"
	"github.com/tarn-csi/tarn/test/harness"
	"github.com/tarn-csi/tarn/test/machine"
)

// doctor runs the built command beside the daemon, as a person does.
type doctor struct {
	*testing.T
	pool   harness.Pool
	daemon *harness.Daemon
	node   string
}

// check runs `tarn check --json`, and returns its findings and exit status.
func (d *doctor) check() ([]Finding, int) {
	d.Helper()
	root, err := harness.Root()
	if err != nil {
		d.Fatal(err)
	}
	began := time.Now()
	cmd := exec.Command(filepath.Join(root, "bin", "tarn"), "check", "--json", "--pool", d.daemon.Pool, "--address", harness.Address,
		"--node-name", "node-1", "--state-dir", filepath.Join(d.daemon.Dir, "state"), "--run-dir", filepath.Join(d.daemon.Dir, "run"))
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		d.Fatal(err)
	}
	var list []Finding
	if err := json.Unmarshal(out, &list); err != nil {
		d.Fatalf("%v: %s", err, out)
	}
	d.Logf("check took %s", time.Since(began).Round(time.Millisecond))
	return list, cmd.ProcessState.ExitCode()
}

// finds expects exactly these lines not to be OK, and the exit status that
// follows from them.
func (d *doctor) finds(when string, worst map[string]Status) []Finding {
	d.Helper()
	list, status := d.check()
	got := map[string]Status{}
	wantStatus := 0
	for _, f := range list {
		if f.Status != OK {
			got[f.Name] = f.Status
		}
		if f.Status == Fail {
			wantStatus = 1
		}
	}
	if diff := cmp.Diff(worst, got); diff != "" {
		d.Errorf("%s (-want +got)\n%s\n%+v", when, diff, list)
	}
	if status != wantStatus {
		d.Errorf("%s: exit status %d", when, status)
	}
	return list
}

func (d *doctor) must(_ any, err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

func (d *doctor) controller() csi.ControllerClient { return csi.NewControllerClient(d.daemon.Conn()) }

func (d *doctor) capability() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

// publish makes a volume and publishes it.
func (d *doctor) publish(protocol string) string {
	d.Helper()
	v, err := d.controller().CreateVolume(d.Context(), &csi.CreateVolumeRequest{
		Name: "check-" + protocol, CapacityRange: &csi.CapacityRange{RequiredBytes: 64 << 20},
		VolumeCapabilities: []*csi.VolumeCapability{d.capability()}, Parameters: map[string]string{"protocol": protocol},
	})
	d.must(v, err)
	id := v.GetVolume().GetId()
	d.must(d.controller().ControllerPublishVolume(d.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: d.node, VolumeCapability: d.capability()}))
	return id
}

func (d *doctor) unpublish(id string) {
	d.Helper()
	d.must(d.controller().ControllerUnpublishVolume(d.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: d.node}))
}

// setClock tells the kernel that its clock is kept right, or not, as a time
// service would.
func setClock(synchronized bool) error {
	t := unix.Timex{Modes: unix.ADJ_STATUS | unix.ADJ_MAXERROR | unix.ADJ_ESTERROR, Status: unix.STA_UNSYNC, Maxerror: 16_000_000, Esterror: 16_000_000}
	if synchronized {
		t.Status, t.Maxerror, t.Esterror = 0, 0, 0
	}
	_, err := unix.Adjtimex(&t)
	return err
}

// world is what a look must not change: kernel tables, modules, files.
func world(t *testing.T) []string {
	t.Helper()
	var list []string
	for _, name := range []string{"/proc/modules", "/proc/self/mountinfo", "/proc/fs/nfsd/threads", "/var/lib/nfs/etab"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if name == "/proc/modules" {
				line, _, _ = strings.Cut(line, " ")
			}
			list = append(list, name+" "+line)
		}
	}
	for _, root := range []string{"/etc", "/var/lib", "/sys/kernel/config/target"} {
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			line := path
			if root != "/sys/kernel/config/target" { // times there are those of the look
				st, err := e.Info()
				if err != nil {
					return err
				}
				line += st.ModTime().String()
			}
			list = append(list, line)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// One host in one life: sound; then the faults that a reboot in the wrong order
// makes, one after the other.
func TestDoctorOnARealHost(t *testing.T) {
	dir, err := os.MkdirTemp("", "check-")
	if err != nil {
		t.Fatal(err)
	}
	const lvmLocal = "/etc/lvm/lvmlocal.conf"
	lvmBefore, lvmErr := os.ReadFile(lvmLocal)
	if lvmErr != nil && !errors.Is(lvmErr, fs.ErrNotExist) {
		t.Fatal(lvmErr)
	}
	d := &doctor{T: t, pool: harness.Pool{Name: "tarncheck", Dir: dir}}
	d.must(nil, os.WriteFile(lvmLocal, []byte("devices { global_filter = [ \"r|^/dev/zd|\", \"r|^/dev/zvol/|\" ] }\n"), 0o644))
	d.must(nil, setClock(true))
	d.must(nil, d.pool.Up(t.Context()))
	d.daemon = &harness.Daemon{Dir: dir, Pool: "p=" + d.pool.Parent(), Args: []string{"--reconcile-interval", "12h"}}
	t.Cleanup(func() {
		d.daemon.Kill()
		err := errors.Join(setClock(false), machine.Run("exportfs", "-r"), d.pool.Down(context.Background()), harness.RemoveDir(dir))
		if lvmErr == nil {
			err = errors.Join(err, os.WriteFile(lvmLocal, lvmBefore, 0o644))
		} else {
			err = errors.Join(err, os.Remove(lvmLocal))
		}
		if err != nil {
			t.Error(err)
		}
	})
	d.must(nil, d.daemon.Start(t.Context()))
	id, err := csi.NewNodeClient(d.daemon.Conn()).NodeGetId(t.Context(), &csi.NodeGetIdRequest{})
	d.must(id, err)
	d.node = id.GetNodeId()
	nfs, iscsi := d.publish("nfs"), d.publish("iscsi")

	seen := world(t)
	list := d.finds("a sound host", map[string]Status{})
	want(t, named(t, list, "nfs exports of p"), OK, "1 published")
	want(t, named(t, list, "iscsi exports of p"), OK, "1 published")
	want(t, named(t, list, "portal 127.0.0.1:3260"), OK, "answers")
	want(t, named(t, list, "zfs version"), OK, "module 2.")
	want(t, named(t, list, "tool iscsiadm"), OK, "version 2.")
	if diff := cmp.Diff(seen, world(t)); diff != "" {
		t.Errorf("the look changed the host (-before +after)\n%s", diff)
	}
	if real := (&Checker{host: host{root: "/"}}).readUnits(); !real.after(nfsUnit, zfsMountUnit) {
		t.Errorf("the distribution's own units are not understood: %v", real.before[nfsUnit])
	}

	// The daemon dies, and the server stops.
	d.unpublish(iscsi)
	d.daemon.Kill()
	machine.Sh(t, "rpc.nfsd", "0")
	d.finds("nfsd stopped", map[string]Status{"nfs server": Fail, "portal 127.0.0.1:2049": Fail})

	// The wrong boot: the server is up before the pool, and the pool before its mounts.
	machine.Sh(t, "exportfs", "-ua")
	machine.Eventually(t, "the export of the pool", func() bool { return machine.Run("zpool", "export", d.pool.Name) == nil })
	_ = machine.Run("exportfs", "-r") // it complains of paths that do not exist
	machine.Sh(t, "rpc.nfsd", "8")
	list = d.finds("the pool is not imported", map[string]Status{"pool tarncheck": Fail})
	want(t, named(t, list, "pool tarncheck"), Fail, "zpool import tarncheck")

	// As far apart as a clock of whole seconds and the units of /proc can tell.
	time.Sleep((slack + 1) * time.Second)
	machine.Sh(t, "zpool", "import", "-N", "-o", "cachefile=none", "-d", dir, d.pool.Name)
	list = d.finds("nothing is mounted", map[string]Status{"nfs exports of p": Fail, "start order of p": Warn})
	want(t, named(t, list, "nfs exports of p"), Fail, nfs+" (not mounted at ", "before pool tarncheck was imported")

	// What it advises helps; what the nodes were told stays said.
	d.must(nil, d.daemon.Start(t.Context()))
	list = d.finds("the daemon runs again", map[string]Status{"start order of p": Warn})
	want(t, named(t, list, "start order of p"), Warn, "the NFS server was started", "ESTALE")
	d.unpublish(nfs)
	d.must(nil, d.daemon.Stop(t.Context()))
}
