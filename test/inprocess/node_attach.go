package inprocess

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"github.com/tarn-csi/tarn/pkg/attach"
	"github.com/tarn-csi/tarn/pkg/chap"
	configfsfake "github.com/tarn-csi/tarn/pkg/export/configfs/fake"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/step"
)

// nfsClient attaches NFS exports: there is nothing to do, but it looks whether
// the server would serve this node.
type nfsClient struct{ *Node }

func (c nfsClient) Attach(_ context.Context, t attach.Target, _ *chap.Credentials) (attach.Device, error) {
	if granted, _ := c.storage.Granted(t.Share, c.ID.Addresses[0]); !granted {
		return attach.Device{}, fault.New(fault.Precondition, "%s refuses %s to %s", t.Server, t.Share, c.ID)
	}
	return attach.Device{Path: t.Server + ":" + t.Share}, nil
}

func (c nfsClient) Find(_ context.Context, t attach.Target) (attach.Device, bool, error) {
	return attach.Device{Path: t.Server + ":" + t.Share}, true, nil
}

func (nfsClient) Detach(context.Context, attach.Target) error { return nil }

func (nfsClient) Rescan(context.Context, attach.Target) error { return nil }

func (nfsClient) Reachable(context.Context, attach.Target) error { return nil }

func (nfsClient) Ready(context.Context) error { return nil }

// initiator attaches iSCSI disks.
type initiator struct{ *Node }

// session is a login of the node, which open-iscsi keeps up: one that the
// target has dropped is made again, where it is let in.
type session struct {
	target      attach.Target
	credentials chap.Credentials
	login       *configfsfake.Session
	number      number
	path        string
	// sizeBytes is what the disk said when it was last asked.
	sizeBytes int64
	// readOnly is what blockdev(8) has set.
	readOnly bool
}

func (a initiator) Attach(ctx context.Context, t attach.Target, c *chap.Credentials) (attach.Device, error) {
	ended, err := step.Begin(ctx, step.Child, "iscsiadm login")
	if err != nil {
		return attach.Device{}, err
	}
	defer ended()
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.sessions[t.IQN]; s != nil {
		return s.device(), nil
	}
	s := &session{target: t}
	if c != nil {
		s.credentials = *c
	}
	if err := a.login(s); err != nil {
		return attach.Device{}, err
	}
	d := s.login.Disks()[lun(t)]
	if d.Serial != t.Serial {
		return attach.Device{}, fault.New(fault.Precondition, "the disk says its serial is %q, not %q", d.Serial, t.Serial)
	}
	s.sizeBytes = a.storage.Disk(d.Device).SizeBytes()
	s.number = number{8, a.nextMinor}
	a.nextMinor += 16
	s.path = filepath.Join(a.dir, "dev", fmt.Sprintf("sd%d", s.number.minor))
	if err := os.WriteFile(s.path, nil, 0o600); err != nil {
		return attach.Device{}, err
	}
	a.sessions[t.IQN] = s
	return s.device(), nil
}

func lun(t attach.Target) string { return fmt.Sprintf("lun_%d", t.LUN) }

// login asks each portal whether the target is there, then the target.
func (n *Node) login(s *session) error {
	t := s.target
	portals := path.Join("target/iscsi", t.IQN, "tpgt_1/np")
	found := false
	for _, p := range t.Portals {
		_, err := n.storage.Configfs.List(path.Join(portals, p))
		found = found || err == nil
	}
	if !found {
		return fault.New(fault.Unavailable, "no portal of %v has target %s", t.Portals, t.IQN)
	}
	auth := path.Join("target/iscsi", t.IQN, "tpgt_1/acls", t.Initiator, "auth")
	for file, want := range map[string]string{"userid_mutual": s.credentials.MutualUser, "password_mutual": s.credentials.MutualPassword} {
		if have, err := n.storage.Configfs.Read(path.Join(auth, file)); err == nil && have != want {
			return fault.New(fault.Precondition, "target %s does not know the mutual CHAP pair", t.IQN)
		}
	}
	s.login = n.storage.Configfs.Login(t.IQN, t.Initiator, s.credentials.User, s.credentials.Password)
	if s.login == nil {
		return fault.New(fault.Precondition, "target %s refuses initiator %s", t.IQN, t.Initiator)
	}
	if _, ok := s.login.Disks()[lun(t)]; !ok {
		return fault.New(fault.Unavailable, "target %s has no LUN %d", t.IQN, t.LUN)
	}
	return nil
}

// reach is an access to the disk.
func (n *Node) reach(s *session) (configfsfake.Disk, error) {
	if n.sessions[s.target.IQN] != s {
		return configfsfake.Disk{}, syscall.ENODEV
	}
	if !s.login.Alive() {
		fresh := *s
		if err := n.login(&fresh); err != nil {
			return configfsfake.Disk{}, syscall.EIO
		}
		s.login = fresh.login
	}
	d, ok := s.login.Disks()[lun(s.target)]
	if !ok || d.Serial != s.target.Serial || n.storage.Disk(d.Device) == nil {
		return d, syscall.EIO
	}
	return d, nil
}

func (s *session) device() attach.Device {
	return attach.Device{Path: s.path, Major: uint32(s.number.major), Minor: uint32(s.number.minor)}
}

func (n *Node) sessionAt(device string) *session {
	for _, s := range n.sessions {
		if s.path == device {
			return s
		}
	}
	return nil
}

func (a initiator) Find(_ context.Context, t attach.Target) (attach.Device, bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sessions[t.IQN]
	if s == nil {
		return attach.Device{}, false, nil
	}
	return s.device(), true, nil
}

// Detach logs out. The kernel lets it happen under a mounted disk; a driver must
// not.
func (a initiator) Detach(ctx context.Context, t attach.Target) error {
	ended, err := step.Begin(ctx, step.Child, "iscsiadm logout")
	if err != nil {
		return err
	}
	defer ended()
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sessions[t.IQN]
	if s == nil {
		return nil
	}
	for _, i := range a.mounts {
		if a.behind[i.ID].session == s {
			a.violation("logout from %s, which is mounted at %s", t.IQN, i.Target)
		}
	}
	delete(a.sessions, t.IQN)
	return os.Remove(s.path)
}

// Rescan asks the disk for its size.
func (a initiator) Rescan(ctx context.Context, t attach.Target) error {
	ended, err := step.Begin(ctx, step.Child, "rescan")
	if err != nil {
		return err
	}
	defer ended()
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sessions[t.IQN]
	if s == nil {
		return fault.New(fault.Precondition, "LUN %d of %s is not attached", t.LUN, t.IQN)
	}
	d, err := a.reach(s)
	if err != nil {
		return fault.New(fault.Unavailable, "the session with %s is lost: %w", t.IQN, err)
	}
	s.sizeBytes = a.storage.Disk(d.Device).SizeBytes()
	return nil
}

// Reachable is what the states of a session and its disk tell.
func (a initiator) Reachable(_ context.Context, t attach.Target) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sessions[t.IQN]
	if s == nil {
		return fault.New(fault.Precondition, "there is no session with %s", t.IQN)
	}
	if _, err := a.reach(s); err != nil {
		return fault.New(fault.Unavailable, "the session with %s is lost: %w", t.IQN, err)
	}
	return nil
}

func (initiator) Ready(context.Context) error { return nil }

// TargetOfDevice is what sysfs tells.
func (a initiator) TargetOfDevice(major, minor int) (iqn string, lun int, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for iqn, s := range a.sessions {
		if s.number == (number{major, minor}) {
			return iqn, s.target.LUN, true
		}
	}
	return "", 0, false
}
