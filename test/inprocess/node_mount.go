package inprocess

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/mount"
	"github.com/tarn-csi/tarn/pkg/step"
)

// Mounts implements node.Mounter.
func (n *Node) Mounts(ctx context.Context) ([]mount.Info, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	table := slices.Clone(n.mounts)
	for k := range table {
		i := &table[k]
		if sb := n.supers[number{i.Major, i.Minor}]; sb != nil && sb.readOnly {
			i.SuperOptions = []string{"ro"}
		}
		if b := n.behind[i.ID]; b.node && n.sessions[b.session.target.IQN] != b.session {
			i.Root += "//deleted"
		}
		// rmdir(2) and unlink(2) of a mount point are EBUSY; here they are done
		// by the real kernel, which knows nothing of these mounts.
		if _, err := os.Lstat(i.Target); err != nil {
			n.violation("the mount point %s was removed", i.Target)
		}
	}
	return table, nil
}

// At implements node.Mounter.
func (n *Node) At(ctx context.Context, target string) ([]mount.Info, error) {
	table, err := n.Mounts(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(table, func(i mount.Info) bool { return i.Target != target }), nil
}

// Mount implements node.Mounter.
func (n *Node) Mount(ctx context.Context, source, target, fsType string, options, sensitive []string) error {
	ended, err := step.Begin(ctx, step.Child, "mount")
	if err != nil {
		return err
	}
	defer ended()
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if st, err := os.Stat(target); err != nil || !st.IsDir() {
		return fault.New(fault.Precondition, "mount: %s: mount point does not exist", target)
	}
	readOnly := slices.Contains(append(slices.Clone(options), sensitive...), "ro")
	if fsType == "nfs" {
		return n.mountNFS(source, target, readOnly)
	}
	s := n.sessionAt(source)
	if s == nil {
		return fault.New(fault.Precondition, "mount: %s: no such device", source)
	}
	d, err := n.reach(s)
	if err != nil {
		return fault.New(fault.Unavailable, "mount: %s: can't read superblock: %w", source, err)
	}
	switch have := n.storage.Disk(d.Device).FSType(); {
	case have != fsType:
		return fault.New(fault.Precondition, "mount: %s: wrong fs type: it holds %q", source, have)
	case (d.ReadOnly || s.readOnly) && !readOnly:
		return fault.New(fault.Precondition, "mount: %s: cannot mount read-only device", source)
	}
	if sb := n.supers[s.number]; sb == nil {
		n.supers[s.number] = &super{readOnly: readOnly}
	} else if sb.readOnly != readOnly {
		return fault.New(fault.Precondition, "mount: %s: already mounted or mount point busy", source)
	}
	n.add(mount.Info{Source: source, Target: target, Root: "/", FSType: fsType, Major: s.number.major, Minor: s.number.minor}, readOnly, behind{session: s})
	return nil
}

// mountNFS is refused where mountd does not serve the path to this node. A
// mount that is writable of an export that is not succeeds, as the real one.
func (n *Node) mountNFS(source, target string, readOnly bool) error {
	_, share, _ := strings.Cut(source, ":")
	if granted, _ := n.storage.Granted(share, n.ID.Addresses[0]); !granted {
		return fault.New(fault.Precondition, "mount.nfs: access denied by server while mounting %s", source)
	}
	at := number{}
	for _, i := range n.mounts {
		if i.Source == source && n.supers[number{i.Major, i.Minor}].readOnly == readOnly {
			at = number{i.Major, i.Minor} // the client shares a superblock
		}
	}
	if at == (number{}) {
		n.nextMinor++
		at = number{0, n.nextMinor}
		n.supers[at] = &super{readOnly: readOnly}
	}
	n.add(mount.Info{Source: source, Target: target, Root: "/", FSType: "nfs4", Minor: at.minor}, readOnly, behind{share: share})
	return nil
}

func (n *Node) add(i mount.Info, readOnly bool, b behind) {
	n.nextID++
	i.ID = n.nextID
	i.Options, i.SuperOptions = []string{"rw", "relatime"}, []string{"rw"}
	if readOnly {
		i.Options[0] = "ro"
	}
	n.mounts = append(n.mounts, i)
	if b != (behind{}) {
		n.behind[i.ID] = b
	}
}

// Bind implements node.Mounter: a directory at a directory, anything else at a
// file. A directory that is no mount shows what holds it, the node's own disk at
// the end.
func (n *Node) Bind(ctx context.Context, source, target string, readOnly bool) error {
	ended, err := step.Begin(ctx, step.Child, "mount --bind")
	if err != nil {
		return err
	}
	defer ended()
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	from, err := os.Stat(source)
	if err != nil {
		return fault.New(fault.Precondition, "mount: %s: special device does not exist", source)
	}
	to, err := os.Stat(target)
	if err != nil || from.IsDir() != to.IsDir() {
		return fault.New(fault.Precondition, "mount: %s: mount point does not exist, or is of the other kind", target)
	}
	if s := n.sessionAt(source); s != nil {
		n.add(mount.Info{Source: "udev", Target: target, Root: "/" + filepath.Base(source), FSType: "devtmpfs", Minor: 6}, readOnly, behind{session: s, node: true})
		return nil
	}
	i, ok := n.top(source)
	if !ok {
		for _, m := range n.mounts {
			if within(source, m.Target) && len(m.Target) >= len(i.Target) {
				i = m
			}
		}
		i.Root = filepath.Join(i.Root, strings.TrimPrefix(source, i.Target))
	}
	b := n.behind[i.ID]
	i.Target = target
	n.add(i, readOnly || slices.Contains(i.Options, "ro"), b)
	return nil
}

// Unmount implements node.Mounter. What is mounted below, or used, is busy; a
// bind of the same filesystem elsewhere is no hindrance.
func (n *Node) Unmount(ctx context.Context, target string) error {
	ended, err := step.Begin(ctx, step.Child, "umount")
	if err != nil {
		return err
	}
	defer ended()
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if n.busy[target] || slices.ContainsFunc(n.mounts, func(i mount.Info) bool { return i.Target != target && within(i.Target, target) }) {
		return fault.New(fault.Precondition, "umount: %s: target is busy", target)
	}
	n.mounts = slices.DeleteFunc(n.mounts, func(i mount.Info) bool {
		if i.Target == target {
			delete(n.behind, i.ID)
		}
		return i.Target == target
	})
	for at := range n.supers {
		if !slices.ContainsFunc(n.mounts, func(i mount.Info) bool { return number{i.Major, i.Minor} == at }) {
			delete(n.supers, at)
		}
	}
	return nil
}

// Stack mounts once more what is at target.
func (n *Node) Stack(target string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i, ok := n.top(target); ok {
		n.add(i, slices.Contains(i.Options, "ro"), n.behind[i.ID])
	}
}
