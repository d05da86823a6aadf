package node

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/file"
)

// ledger keeps the records, one small file each. A name is made of hashes, so
// that the records of a volume, and those of a path, are found by name.
type ledger struct {
	dir  string
	disk disk
}

const (
	stagePrefix   = "stage-"
	publishPrefix = "publish-"
	recordSuffix  = ".json"
)

// open makes the directory and removes what a power loss left of a write.
func (l ledger) open() error {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return fault.New(fault.Unavailable, "the state directory cannot be made: %w", err)
	}
	for _, prefix := range []string{stagePrefix, publishPrefix} {
		if err := file.RemoveUnfinished(l.dir, prefix); err != nil {
			return fault.New(fault.Unavailable, "the state directory cannot be cleaned: %w", err)
		}
	}
	return nil
}

// check reports why nothing can be recorded, or nil.
func (l ledger) check() error {
	if err := unix.Access(l.dir, unix.W_OK|unix.X_OK); err != nil {
		return fault.New(fault.Unavailable, "stage records cannot be written to %s: %w", l.dir, err)
	}
	return nil
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:12])
}

func (l ledger) name(prefix, volumeID, path string) string {
	return filepath.Join(l.dir, prefix+digest(volumeID)+"-"+digest(path)+recordSuffix)
}

// stage returns the record of the volume at the staging path, or nil.
func (l ledger) stage(volumeID, path string) (*stageRecord, error) {
	var r stageRecord
	name := l.name(stagePrefix, volumeID, path)
	found, err := l.read(name, &r)
	if err != nil || !found {
		return nil, err
	}
	if r.Version != recordVersion || r.VolumeID != volumeID || r.StagingPath != path {
		return nil, unreadable(name, errors.New("it is another version's, or of another volume"))
	}
	return &r, nil
}

// publish returns the record of the volume at the target path, or nil.
func (l ledger) publish(volumeID, path string) (*publishRecord, error) {
	var r publishRecord
	name := l.name(publishPrefix, volumeID, path)
	found, err := l.read(name, &r)
	if err != nil || !found {
		return nil, err
	}
	if r.Version != recordVersion || r.VolumeID != volumeID || r.TargetPath != path {
		return nil, unreadable(name, errors.New("it is another version's, or of another volume"))
	}
	return &r, nil
}

// stages returns the stage records of one volume, or of all for "".
func (l ledger) stages(volumeID string) ([]*stageRecord, error) {
	return list[stageRecord](l, stagePrefix, volumeID, "")
}

// stagesAt returns the stage records of any volume at one staging path.
func (l ledger) stagesAt(path string) ([]*stageRecord, error) {
	return list[stageRecord](l, stagePrefix, "", path)
}

// publishes returns the publish records of one volume.
func (l ledger) publishes(volumeID string) ([]*publishRecord, error) {
	return list[publishRecord](l, publishPrefix, volumeID, "")
}

// publishesAt returns the publish records of any volume at one target path.
func (l ledger) publishesAt(path string) ([]*publishRecord, error) {
	return list[publishRecord](l, publishPrefix, "", path)
}

// list reads the records of one kind, narrowed to a volume or a path where one
// is given. Only names are read of the others.
func list[R any](l ledger, prefix, volumeID, path string) ([]*R, error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "the state directory cannot be read: %w", err)
	}
	var all []*R
	for _, e := range entries {
		hashes, ok := strings.CutPrefix(e.Name(), prefix)
		if !ok {
			continue
		}
		if hashes, ok = strings.CutSuffix(hashes, recordSuffix); !ok {
			continue
		}
		if volumeID != "" && !strings.HasPrefix(hashes, digest(volumeID)+"-") ||
			path != "" && !strings.HasSuffix(hashes, "-"+digest(path)) {
			continue
		}
		r := new(R)
		found, err := l.read(filepath.Join(l.dir, e.Name()), r)
		if err != nil {
			return nil, err
		}
		if found {
			all = append(all, r)
		}
	}
	return all, nil
}

func (l ledger) read(name string, r any) (found bool, err error) {
	b, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fault.New(fault.Unavailable, "a record cannot be read: %w", err)
	}
	if err := json.Unmarshal(b, r); err != nil {
		return false, unreadable(name, err)
	}
	return true, nil
}

// unreadable has no kind: records are replaced in one step, so this is damage
// or a downgrade, and acting without the record could cut off a volume in use.
func unreadable(name string, err error) error {
	return fmt.Errorf("record %s cannot be used: %w: unmount what it names by hand, then remove it", name, err)
}

func (l ledger) saveStage(r *stageRecord) error {
	r.Version = recordVersion
	return l.save(l.name(stagePrefix, r.VolumeID, r.StagingPath), r)
}

func (l ledger) savePublish(r *publishRecord) error {
	r.Version = recordVersion
	return l.save(l.name(publishPrefix, r.VolumeID, r.TargetPath), r)
}

// save writes the record, also when it is there as it should be: a crash may
// have come between its rename and the sync of the directory.
func (l ledger) save(name string, r any) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write a record: %w", err)
	}
	if err := l.disk.write(name, append(b, '\n')); err != nil {
		return fault.New(fault.Unavailable, "a record cannot be written: see to %s and repeat the call: %w", l.dir, err)
	}
	return nil
}

func (l ledger) removeStage(r *stageRecord) error {
	return l.remove(l.name(stagePrefix, r.VolumeID, r.StagingPath))
}

func (l ledger) removePublish(volumeID, path string) error {
	return l.remove(l.name(publishPrefix, volumeID, path))
}

func (l ledger) remove(name string) error {
	if err := l.disk.erase(name); err != nil {
		return fault.New(fault.Unavailable, "a record cannot be removed: repeat the call: %w", err)
	}
	return nil
}
