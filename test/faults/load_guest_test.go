//go:build guest

package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/tarn-csi/tarn/test/faults/storm"
	"github.com/tarn-csi/tarn/test/harness"
	"github.com/tarn-csi/tarn/test/machine"
)

// Many callers and many volumes at once, on real kernels: no two volumes for one
// name, and configfs, mountd's table and the pool as the model has them.
func TestStorm(t *testing.T) {
	d := ownDaemon(t, "storm")
	node := must[*csi.NodeGetInfoResponse](t, "NodeGetInfo")(inV1(daemonConn{d}).NodeGetInfo(soon(t), &csi.NodeGetInfoRequest{})).GetNodeId()
	seed, err := storm.Seed()
	if err != nil {
		t.Fatal(err)
	}
	w := storm.World{
		Conn: d.Conn(), NodeID: node, SizeBytes: 64 * mib,
		Parameters: []map[string]string{{"protocol": "nfs"}, {"protocol": "iscsi"}},
		Volumes:    500, Callers: 64, Calls: 4000, Patience: 10 * time.Minute, Seed: seed,
	}
	if testing.Short() {
		w.Volumes, w.Callers, w.Calls = 8, 8, 32
	}
	t.Logf("repeat with TARN_SEED=%d", w.Seed)
	s := storm.New(w)
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Listed(t.Context()); err != nil {
		t.Error(err)
	}
	if err := shown(t, host.Pool.Name+"/storm", s.Volumes()); err != nil {
		t.Error(err)
	}
	if err := s.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := shown(t, host.Pool.Name+"/storm", s.Volumes()); err != nil {
		t.Error(err)
	}
}

// shown compares the pool's, the kernel's and mountd's tables with the model.
func shown(t *testing.T, parent string, volumes []*storm.Volume) error {
	t.Helper()
	var want, have []string
	uuids := map[string]string{}
	for line := range strings.Lines(machine.Sh(t, "zfs", "get", "-H", "-r", "-d", "1", "-t", "filesystem,volume", "-s", "local", "-o", "name,value", "tarn:uuid", parent)) {
		name, uuid, _ := strings.Cut(strings.TrimSpace(line), "\t")
		uuids[name] = uuid
		have = append(have, "dataset "+name)
	}
	for _, v := range volumes {
		dataset := parent + "/" + v.Name
		if v.Exists {
			want = append(want, "dataset "+dataset)
		}
		if v.Published && v.Parameters["protocol"] == "nfs" {
			want = append(want, "export /"+dataset)
		} else if v.Published {
			want = append(want, "target "+uuids[dataset])
		}
	}
	raw, err := os.ReadFile("/var/lib/nfs/etab")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(raw)) {
		path, _, _ := strings.Cut(line, "\t")
		if _, below, ok := strings.Cut(path, "/"+parent+"/"); ok {
			have = append(have, "export /"+parent+"/"+below)
		}
	}
	found, err := filepath.Glob(targets + "/iqn*:storm:*/tpgt_1/lun/lun_1/*/udev_path")
	if err != nil {
		return err
	}
	for _, file := range found {
		iqn := strings.Split(strings.TrimPrefix(file, targets+"/"), "/")[0]
		uuid := iqn[strings.LastIndexByte(iqn, ':')+1:]
		have = append(have, "target "+uuid)
		device, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if name := strings.TrimPrefix(strings.TrimSpace(string(device)), "/dev/zvol/"); uuids[name] != uuid {
			return fmt.Errorf("the target of %s serves %s", uuid, name)
		}
	}
	return storm.Same("what is shown", want, have)
}

// holdings is what a daemon and its host hold.
type holdings struct {
	goroutines, files, sessions, configfs, mounts int
	rssBytes                                      int64
}

// holds is what the kernel shows of a daemon, which ends with it: a Go program
// that is told to quit lists its goroutines.
func holds(t *testing.T, d *harness.Daemon) holdings {
	t.Helper()
	var h holdings
	dir := filepath.Join("/proc", strconv.Itoa(d.PID()))
	files, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		t.Fatal(err)
	}
	h.files = len(files)
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			h.rssBytes = kib << 10
		}
	}
	h.sessions = len(sessions(t))
	h.configfs = len(targetsLeft(t))
	table, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	h.mounts = strings.Count(string(table), "\n")
	h.goroutines = goroutines(t, d)
	return h
}

// goroutines ends the daemon and returns how many goroutines it had.
func goroutines(t *testing.T, d *harness.Daemon) int {
	t.Helper()
	before := len(d.Log())
	if err := syscall.Kill(d.PID(), syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	for ctx := soon(t); !strings.Contains(d.Log()[before:], "rflags"); { // the registers are printed last
		if ctx.Err() != nil {
			t.Fatal("the daemon does not quit")
		}
		time.Sleep(10 * time.Millisecond)
	}
	d.Kill() // which waits for its end
	return strings.Count(d.Log()[before:], "\ngoroutine ")
}

// Many volumes live and go, one after the other: what the daemon and the host
// hold at the end is what they held after the first ones.
func TestSoak(t *testing.T) {
	cycles, warm := 2000, 200
	if testing.Short() {
		cycles, warm = 4, 2
	}
	d := ownDaemon(t, "soak")
	live := func(cycles int) holdings {
		p := inV1(daemonConn{d})
		for i := range cycles {
			v := newVol(t, p, creation(fmt.Sprintf("soak-%d", i), []string{"nfs", "iscsi"}[i%2], 64*mib, asFilesystem("")))
			v.up()
			v.down()
			if err := os.RemoveAll(v.dir); err != nil {
				t.Fatal(err)
			}
		}
		return holds(t, d)
	}
	first := live(warm)
	if err := d.Start(soon(t)); err != nil {
		t.Fatal(err)
	}
	last := live(cycles)
	t.Logf("after %d cycles %+v, after %d %+v", warm, first, cycles, last)
	if most := first.rssBytes + first.rssBytes/10; last.rssBytes > most && !testing.Short() {
		t.Errorf("the daemon holds %d bytes of memory, after %d cycles it was %d", last.rssBytes, warm, first.rssBytes)
	}
	first.rssBytes, last.rssBytes = 0, 0
	if first != last {
		t.Errorf("after %d cycles there were %+v, now %+v", warm, first, last)
	}
}
