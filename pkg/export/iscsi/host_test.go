package iscsi

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/export/configfs"
	"github.com/tarn-csi/tarn/pkg/export/configfs/fake"
	"github.com/tarn-csi/tarn/pkg/ident"
)

// host is a storage host on which the contract is tested: the fake, or the
// guest.
type host struct {
	fs configfs.FS
	// zvol makes a device that nothing uses and returns its path.
	zvol func(t *testing.T) string
	// device looks at one; nil is HostDevice.
	device func(string) (Device, error)
	// listen has another process listen at ADDRESS:PORT until the returned
	// function is called.
	listen func(t *testing.T, address string) func()
	// fake is nil in the guest.
	fake *fake.FS
}

const zvolBytes = 16 << 20

// backstore prepares an enabled backstore by hand.
func (h *host) backstore(t *testing.T, dir, device string) {
	t.Helper()
	must(t, h.fs.Mkdir(path.Dir(dir)), h.fs.Mkdir(dir), h.fs.Write(dir+"/control", "udev_path="+device))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	must(t, poll(ctx, func() error { return h.fs.Write(dir+"/enable", "1") }))
}

// fakeHost is a host with the target modules loaded.
func fakeHost(*testing.T) *host {
	f := fake.New()
	devices := &fakeDevices{}
	return &host{
		fs:     f,
		fake:   f,
		device: devices.device,
		listen: func(_ *testing.T, address string) func() { return f.Listen(address) },
		zvol: func(*testing.T) string {
			d := devices.add()
			f.AddDevice(d)
			return d.Path
		},
	}
}

// fakeDevices is a /dev.
type fakeDevices struct {
	mu   sync.Mutex
	list []fake.Device
}

func (f *fakeDevices) add() fake.Device {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.list)
	d := fake.Device{Path: fmt.Sprintf("/dev/zvol/tank/csi/v%d", n), Major: 230, Minor: uint32(16 * n), SizeBytes: zvolBytes}
	f.list = append(f.list, d)
	return d
}

func (f *fakeDevices) device(path string) (Device, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.list {
		if d.Path == path {
			return Device{Major: d.Major, Minor: d.Minor, SizeBytes: d.SizeBytes}, nil
		}
	}
	return Device{}, fmt.Errorf("%s: no such device", path)
}

// instance is one Tarn on a host, with what it logged and a way to make it fail.
type instance struct {
	*Exporter
	inject *fake.Injector
	log    *bytes.Buffer
	naming ident.Naming
}

func (h *host) instance(t *testing.T, name string) *instance {
	t.Helper()
	return h.instanceWith(t, name, nil)
}

func (h *host) instanceWith(t *testing.T, name string, change func(*Config)) *instance {
	t.Helper()
	naming, err := ident.NewNaming("iqn.2026-01.io.example", name)
	if err != nil {
		t.Fatal(err)
	}
	i := &instance{inject: fake.Inject(h.fs), log: &bytes.Buffer{}, naming: naming}
	log := logrus.New()
	log.SetLevel(logrus.DebugLevel)
	log.SetOutput(i.log)
	c := Config{
		FS: i.inject, Naming: naming, LockPath: filepath.Join(t.TempDir(), "lock"), Log: log,
		Device: h.device, DeviceWait: 20 * time.Second,
	}
	if change != nil {
		change(&c)
	}
	i.Exporter = New(c)
	return i
}

// uuid returns a volume's uuid; each number is another.
func uuid(n int) string { return fmt.Sprintf("%08x5eed5eed5eed5eed%08x", n, n) }

var (
	portal4 = netip.MustParseAddrPort("127.0.0.1:3266")
	portal6 = netip.MustParseAddrPort("[::1]:3266")
)

// volume is one on a new zvol, published to nobody yet.
func (h *host) volume(t *testing.T, n int) export.Volume {
	t.Helper()
	return volumeOn(h.zvol(t), n)
}

func volumeOn(source string, n int) export.Volume {
	return export.Volume{
		ID: fmt.Sprintf("tank/pvc-%d", n), UUID: uuid(n), Source: source, SizeBytes: zvolBytes,
		Portals: []netip.AddrPort{portal4},
	}
}

// grants returns v with these grants alone.
func grants(v export.Volume, list ...export.Grant) export.Volume {
	v.Grants = list
	return v
}

// The grants that the tests give.
var (
	credentials = chap.Credentials{User: "node-a", Password: "pass-a-sentinel"}
	others      = chap.Credentials{User: "node-a", Password: "other-sentinel"}
	mutual      = chap.Credentials{User: "node-a", Password: "pass-a-sentinel", MutualUser: "tarn", MutualPassword: "mutual-sentinel"}

	openA     = grant("a", nil, false)
	chapA     = grant("a", &credentials, false)
	chapOther = grant("a", &others, false)
	mutualA   = grant("a", &mutual, false)
	readOnlyA = grant("a", &credentials, true)
	openB     = grant("b", nil, false)
	chapB     = grant("b", &chap.Credentials{User: "node-b", Password: "pass-b-sentinel"}, false)
	readOnlyB = grant("b", nil, true)
)

func grant(node string, c *chap.Credentials, readOnly bool) export.Grant {
	return export.Grant{Node: node, Initiator: initiator(node), CHAP: c, ReadOnly: readOnly}
}

func initiator(node string) string { return "iqn.2026-01.io.example:node:" + node }

// view is everything that decides who reaches what, of all targets and
// backstores of the host. Two hosts with the same view serve the same.
func (h *host) view(t *testing.T) []string {
	t.Helper()
	var view []string
	for _, dir := range []string{coreDir, fabricDir} {
		lines, err := fake.Tree(h.fs, dir, deciding.MatchString)
		must(t, err)
		for _, line := range lines {
			if !strings.HasSuffix(line, "/") || made.MatchString(line) {
				view = append(view, line)
			}
		}
	}
	return view
}

// deciding matches the attributes that matter, and made the directories that
// did not come with another.
var (
	deciding = regexp.MustCompile(`/(enable|udev_path|vpd_unit_serial|emulate_tpu|write_protect|authentication|` +
		`generate_node_acls|demo_mode_discovery|prod_mode_write_protect|acls/.*/auth/(userid|password|userid_mutual|password_mutual))$`)
	made = regexp.MustCompile(`/(iblock_[0-9]+|iblock_[0-9]+/[^/]+|iqn\.[^/]+|tpgt_[0-9]+|lun_[0-9]+|np/[^/]+)/$`)
)

// sameView fails the test when two views differ.
func sameView(t *testing.T, what string, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

type fakeOp = fake.Op
