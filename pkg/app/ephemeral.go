package app

import (
	"path/filepath"

	"github.com/sirupsen/logrus"

	"github.com/tarn-csi/tarn/pkg/config"
	"github.com/tarn-csi/tarn/pkg/csi"
	"github.com/tarn-csi/tarn/pkg/ephemeral"
	"github.com/tarn-csi/tarn/pkg/node"
	"github.com/tarn-csi/tarn/pkg/volume"
)

// podsDir is where the records of pods' own volumes are.
func podsDir(c config.Config) string { return filepath.Join(c.StateDir, "ephemeral") }

// newEphemeral wires the node's side of pods' own volumes, and returns what ends
// it. Where no new one is made, those of before are still destroyed. volumes is nil
// where the controller is another process: two never write one pool.
func newEphemeral(c config.Config, n *node.Service, volumes *volume.Service, log logrus.FieldLogger) (*ephemeral.Service, func() error, error) {
	cfg := ephemeral.Config{
		Pool: c.Ephemeral.Pool, Protocols: c.Protocols,
		DefaultBytes: c.Ephemeral.DefaultBytes, MaxBytes: c.Ephemeral.MaxBytes, MaxVolumes: c.Ephemeral.MaxVolumes,
		Controller: volumes, Node: n, Dir: podsDir(c), Log: log,
	}
	end := func() error { return nil }
	if volumes == nil {
		socket, err := config.SocketPath(c.ControllerEndpoint)
		if err != nil {
			return nil, nil, err
		}
		remote, err := csi.NewRemote(socket)
		if err != nil {
			return nil, nil, err
		}
		cfg.Controller, end = remote, remote.Close
	}
	s, err := ephemeral.New(cfg)
	return s, end, err
}
