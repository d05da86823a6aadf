package node

import (
	"errors"
	"io/fs"
	"os"
)

// Staged is what a stage record names.
type Staged struct{ VolumeID, StagingPath, IQN string }

// Records reads the stage records in a directory, as Config.StateDir is one. It
// changes nothing, beside the node service that keeps them too.
func Records(dir string) ([]Staged, error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil // nothing was ever staged here
	}
	records, err := ledger{dir: dir}.stages("")
	if err != nil {
		return nil, err
	}
	var list []Staged
	for _, r := range records {
		list = append(list, Staged{VolumeID: r.VolumeID, StagingPath: r.StagingPath, IQN: r.Target.IQN})
	}
	return list, nil
}
