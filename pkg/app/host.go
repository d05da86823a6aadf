package app

import (
	"context"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/config"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/run"
	"github.com/tarn-csi/tarn/pkg/volume"
)

// Look returns the storage host's volumes for a command that looks at them,
// beside the daemon that serves them. It enters the host's root.
func Look(c config.Config, log logrus.FieldLogger) (*volume.Service, error) {
	if c.Mode == config.Node {
		return nil, notHere()
	}
	if err := Enter(c.HostRoot); err != nil {
		return nil, err
	}
	return newVolumes(c, nil, run.New(log), log, true)
}

func notHere() error {
	return fault.New(fault.Invalid, "this is a command of the storage host, and mode is node: run it there")
}

// offline works while no daemon serves the pool.
type offline struct{ *volume.Service }

func (o offline) nodes(ctx context.Context, volumeID string) ([]string, error) {
	v, err := o.Get(ctx, volumeID)
	return v.Nodes, err
}
