package app

import (
	"context"
	"path/filepath"

	"github.com/tarn-csi/tarn/pkg/attach"
	attachiscsi "github.com/tarn-csi/tarn/pkg/attach/iscsi"
	"github.com/tarn-csi/tarn/pkg/config"
	"github.com/tarn-csi/tarn/pkg/ephemeral"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/node"
	"github.com/tarn-csi/tarn/pkg/run"
	"github.com/tarn-csi/tarn/pkg/volume"
)

// leavings is volume.Leavings of a storage host that is a node, too.
type leavings struct {
	attached func(context.Context) ([]attach.Attachment, error)
	naming   ident.Naming
	// dir holds the node's records where it is this process, and pods those of
	// pods' volumes, which may be another's on this host.
	dir, pods string
}

func newLeavings(c config.Config, naming ident.Naming, runner *run.Runner) volume.Leavings {
	l := leavings{naming: naming, pods: podsDir(c)}
	if c.Mode != config.All {
		return l
	}
	l.dir = filepath.Join(c.StateDir, "node")
	if c.Serves(volume.ISCSI) {
		l.attached = attachiscsi.New(runner, attachiscsi.Config{}).Attachments
	}
	return l
}

// Sessions implements volume.Leavings.
func (l leavings) Sessions(ctx context.Context) (map[string]string, error) {
	if l.attached == nil {
		return nil, nil
	}
	list, err := l.attached(ctx)
	if err != nil {
		return nil, err
	}
	sessions := map[string]string{}
	for _, a := range list {
		if uuid, ours := l.naming.UUID(a.IQN); ours {
			sessions[a.IQN] = uuid
		}
	}
	return sessions, nil
}

// Pods implements volume.Leavings.
func (l leavings) Pods(context.Context) (map[string]bool, bool, error) {
	return ephemeral.Volumes(l.pods)
}

// Staged implements volume.Leavings.
func (l leavings) Staged(context.Context) (map[string]string, error) {
	if l.dir == "" {
		return nil, nil
	}
	records, err := node.Records(l.dir)
	if err != nil {
		return nil, err
	}
	staged := map[string]string{}
	for _, r := range records {
		staged[r.StagingPath] = r.VolumeID
	}
	return staged, nil
}
