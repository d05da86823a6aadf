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

// readKeys reads what the mode needs. The master key is made at the first
// start of mode all, where both sides are this process; elsewhere it must be
// there, since a new one would lock every node out. A node without a key can
// still use pools of other CHAP modes.
func readKeys(c config.Config) (keys, error) {
	var k keys
	var err error
	switch {
	case c.Mode == config.Node:
		k.node, err = chap.ReadKey(c.NodeKeyFile)
		if errors.Is(err, fs.ErrNotExist) {
			return k, nil
		}
		return k, err
	case !c.NeedsCHAPKey():
		return k, nil
	case c.Mode == config.All:
		k.master, err = chap.CreateKey(c.MasterKeyFile)
	default:
		k.master, err = chap.ReadKey(c.MasterKeyFile)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: make it once with `tarn key --create`, and give each node its own with `tarn key NODE`", err)
		}
	}
	if err != nil || c.Mode != config.All {
		return k, err
	}
	name, err := ident.NodeName(c.NodeName)
	if err != nil {
		return k, err
	}
	k.node = chap.NodeKey(k.master, name)
	return k, nil
}
