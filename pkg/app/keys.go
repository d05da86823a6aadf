package app

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/config"
	"github.com/tarn-csi/tarn/pkg/ident"
)

// keys are the CHAP keys of this process.
type keys struct{ master, node chap.Key }

// readKeys reads what the mode needs, before the root is changed: a container
// has its secrets inside. A node without a key can still use pools of other
// CHAP modes.
func readKeys(c config.Config) (keys, error) {
	var k keys
	var err error
	switch {
	case c.Mode == config.Node:
		k.node, err = chap.ReadKey(c.NodeKeyFile)
		if errors.Is(err, fs.ErrNotExist) {
			return k, nil
		}
	case c.NeedsCHAPKey():
		k.master, err = chap.ReadKey(c.MasterKeyFile)
		if errors.Is(err, fs.ErrNotExist) && c.Mode == config.All {
			return k, nil // complete makes it
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: make it once with `tarn key --create`, and give each node its own with `tarn key NODE`", err)
		}
	}
	return k, err
}

// complete makes the master key at the first start of mode all, on the host.
// There both sides are this process; elsewhere a new key would lock every node
// out.
func (k *keys) complete(c config.Config) error {
	if c.Mode != config.All || !c.NeedsCHAPKey() {
		return nil
	}
	var err error
	if k.master == nil {
		if k.master, err = chap.CreateKey(c.MasterKeyFile); err != nil {
			return err
		}
	}
	name, err := ident.NodeName(c.NodeName)
	if err != nil {
		return err
	}
	k.node = chap.NodeKey(k.master, name)
	return nil
}
