package app

import (
	"context"
	"path/filepath"

	"github.com/tarn-csi/tarn/pkg/attach"
	attachiscsi "github.com/tarn-csi/tarn/pkg/attach/iscsi"
	"github.com/tarn-csi/tarn/pkg/config"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/node"
	"github.com/tarn-csi/tarn/pkg/run"
	"github.com/tarn-csi/tarn/pkg/volume"
)

// leavings is volume.Leavings of a storage host that is a node, too.
type leavings struct {
	attached func(context.Context) ([]attach.Attachment, error)
	naming   ident.Naming
	dir      string
}

// newLeavings returns nil where the host is no node.
func newLeavings(c config.Config, naming ident.Naming, runner *run.Runner) volume.Leavings {
	if c.Mode != config.All {
		return nil
	}
	l := leavings{naming: naming, dir: filepath.Join(c.StateDir, "node")}
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

// Staged implements volume.Leavings.
func (l leavings) Staged(context.Context) (map[string]string, error) {
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
