//go:build guest

package iscsi

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tarn-csi/tarn/pkg/chap"
)

// Exit statuses of iscsiadm, include/iscsi_err.h of open-iscsi.
const (
	loggedIn     = 0
	noReason     = 5 // the connection was gone before the answer was read
	unauthorised = 24
)

// login is one node's session with a target, by open-iscsi.
type login struct {
	iqn    string
	portal netip.AddrPort
	node   string
}

// newLogin prepares the record. The initiator name is that of the node. A record
// replaces that of another node at the same portal, so log in with one before
// making the next.
func newLogin(t *testing.T, iqn string, portal netip.AddrPort, node string, c *chap.Credentials) login {
	t.Helper()
	l := login{iqn: iqn, portal: portal, node: node}
	if _, err := command("iscsiadm", "-m", "iface", "-I", node); err != nil {
		sh(t, "iscsiadm", "-m", "iface", "-I", node, "-o", "new")
		sh(t, "iscsiadm", "-m", "iface", "-I", node, "-o", "update", "-n", "iface.initiatorname", "-v", initiator(node))
	}
	sh(t, append(l.record(), "-o", "new")...)
	settings := []string{
		"node.session.initial_login_retry_max", "0",
		"node.conn[0].timeo.login_timeout", "15",
		"node.session.timeo.replacement_timeout", "1",
	}
	if c != nil {
		settings = append(settings, "node.session.auth.authmethod", "CHAP",
			"node.session.auth.username", c.User, "node.session.auth.password", c.Password)
		if c.MutualUser != "" {
			settings = append(settings, "node.session.auth.username_in", c.MutualUser, "node.session.auth.password_in", c.MutualPassword)
		}
	}
	argv := append(l.record(), "-o", "update")
	for k := 0; k < len(settings); k += 2 {
		argv = append(argv, "-n", settings[k], "-v", settings[k+1])
	}
	sh(t, argv...)
	t.Cleanup(func() {
		l.stop(t)
		_, _ = command(append(l.record(), "-o", "delete")...)
	})
	return l
}

func (l login) record() []string {
	return []string{"iscsiadm", "-m", "node", "-T", l.iqn, "-p", l.portal.String(), "-I", l.node}
}

// start logs in and returns the exit status. A failure without a reason is tried
// again, as the driver does: a target that refuses closes the connection, and
// iscsid may see that before it has read why.
func (l login) start() int {
	status := noReason
	for try := 0; try < 3 && status == noReason; try++ {
		_, err := command(append(l.record(), "--login")...)
		var exit *exec.ExitError
		switch {
		case err == nil:
			status = loggedIn
		case errors.As(err, &exit):
			status = exit.ExitCode()
		default:
			status = -1
		}
	}
	return status
}

// stop logs out, if there is a session.
func (l login) stop(t *testing.T) {
	t.Helper()
	session, err := l.session()
	if err != nil {
		return
	}
	number := strings.TrimPrefix(filepath.Base(session), "session")
	if out, err := command("iscsiadm", "-m", "session", "-r", number, "--logout"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// mustStart logs in and returns the disk.
func (l login) mustStart(t *testing.T) disk {
	t.Helper()
	if code := l.start(); code != loggedIn {
		t.Fatalf("login of %s: status %d", l.node, code)
	}
	var d disk
	eventually(t, "the disk of "+l.node, func() (err error) {
		d, err = l.disk()
		return err
	})
	return d
}

// session is the folder of the session in sysfs.
func (l login) session() (string, error) {
	names, err := filepath.Glob("/sys/class/iscsi_session/session*/targetname")
	if err != nil {
		return "", err
	}
	for _, name := range names {
		dir := filepath.Dir(name)
		who, _ := os.ReadFile(filepath.Join(dir, "initiatorname"))
		iqn, _ := os.ReadFile(name)
		if strings.TrimSpace(string(iqn)) == l.iqn && strings.TrimSpace(string(who)) == initiator(l.node) {
			return dir, nil
		}
	}
	return "", errors.New("no session")
}

// disk is a SCSI disk of this machine.
type disk struct {
	name string // sdX
	lun  string
}

func (d disk) dev() string { return "/dev/" + d.name }

func (d disk) sys(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("/sys/block", d.name, file))
	must(t, err)
	return strings.TrimSpace(string(b))
}

func (l login) disk() (disk, error) {
	session, err := l.session()
	if err != nil {
		return disk{}, err
	}
	blocks, err := filepath.Glob(filepath.Join(session, "device/target*/*:*:*:*/block/*"))
	if err != nil {
		return disk{}, err
	}
	if len(blocks) != 1 {
		return disk{}, fmt.Errorf("%d disks in %s: %v", len(blocks), session, blocks)
	}
	address := strings.Split(filepath.Base(filepath.Dir(filepath.Dir(blocks[0]))), ":")
	d := disk{name: filepath.Base(blocks[0]), lun: address[len(address)-1]}
	f, err := os.Open(d.dev())
	if err != nil {
		return d, err
	}
	return d, f.Close()
}

// state is what the session's state file says.
func (l login) state() string {
	session, err := l.session()
	if err != nil {
		return err.Error()
	}
	b, err := os.ReadFile(filepath.Join(session, "state"))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b))
}

// eventually polls until try succeeds.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// readDirect reads the first 4096 bytes of a device past the page cache.
func readDirect(device string) ([]byte, error) {
	return exec.Command("dd", "if="+device, "bs=4096", "count=1", "iflag=direct", "status=none").Output()
}

// writePattern fills the start of a device.
func writePattern(device string, b byte) error {
	cmd := exec.Command("dd", "of="+device, "bs=64k", "iflag=fullblock", "oflag=direct", "count=1", "status=none")
	cmd.Stdin = strings.NewReader(strings.Repeat(string([]byte{b}), 64<<10))
	return cmd.Run()
}
