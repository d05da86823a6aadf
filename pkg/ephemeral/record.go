package ephemeral

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

	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/file"
)

// recordVersion changes when an older daemon could misread a record.
const recordVersion = 1

// The states of a volume.
const (
	// begun: the controller may have been asked to make it.
	begun = "begun"
	// made: it is there, and this node's.
	made = "made"
	// published: it was once seen at the target path.
	published = "published"
)

// A record is what is remembered of one volume, from before the controller is
// asked to make it until it is destroyed. It holds no secret and no mount flag.
type record struct {
	Version int `json:"version"`
	// Handle is the orchestrator's own id of the volume, VolumeID the controller's.
	Handle     string `json:"handle"`
	VolumeID   string `json:"volumeID"`
	TargetPath string `json:"targetPath"`
	// NodeID is to whom it is published.
	NodeID string `json:"nodeID"`
	// Pod is for people.
	Pod string `json:"pod,omitempty"`
	// Attributes are what the pod's author gave: a repeat must give the same. The
	// rest is what came of them then, whatever the configuration is by now.
	Attributes map[string]string `json:"attributes"`
	Parameters map[string]string `json:"parameters"`
	Bytes      int64             `json:"bytes"`
	LimitBytes int64             `json:"limitBytes"`
	State      string            `json:"state"`
}

// ledger keeps the records, one small file each, and beside each the staging path.
type ledger struct{ dir string }

const recordSuffix = ".json"

// open makes the directory and removes what a power loss left of a write.
func (l ledger) open() error {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return fault.New(fault.Unavailable, "the directory of ephemeral volumes cannot be made: %w", err)
	}
	if err := file.RemoveUnfinished(l.dir, ""); err != nil {
		return fault.New(fault.Unavailable, "the directory of ephemeral volumes cannot be cleaned: %w", err)
	}
	return nil
}

// staging is the volume's staging path.
func (l ledger) staging(handle string) string {
	sum := sha256.Sum256([]byte(handle))
	return filepath.Join(l.dir, hex.EncodeToString(sum[:16]))
}

func (l ledger) name(handle string) string { return l.staging(handle) + recordSuffix }

// read returns the record of a volume, or nil. What cannot be understood has no
// kind: records are replaced in one step, so it is damage or a downgrade.
func (l ledger) read(handle string) (*record, error) {
	b, err := os.ReadFile(l.name(handle))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fault.New(fault.Unavailable, "the record of an ephemeral volume cannot be read: %w", err)
	}
	var r record
	err = json.Unmarshal(b, &r)
	if err == nil && (r.Version != recordVersion || r.Handle != handle) {
		err = errors.New("it is another version's, or of another volume")
	}
	if err != nil {
		return nil, fmt.Errorf("record %s cannot be used: %w: undo by hand what it names, then remove it", l.name(handle), err)
	}
	return &r, nil
}

// save writes the record, also when it is there as it should be: a crash may have
// come between its rename and the sync of the directory.
func (l ledger) save(r *record) error {
	r.Version = recordVersion
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write a record: %w", err)
	}
	if err := file.Replace(l.name(r.Handle), append(b, '\n'), 0o600); err != nil {
		return fault.New(fault.Unavailable, "the record of an ephemeral volume cannot be written: see to %s and repeat the call: %w", l.dir, err)
	}
	return nil
}

func (l ledger) remove(handle string) error {
	if err := file.Remove(l.name(handle)); err != nil {
		return fault.New(fault.Unavailable, "the record of an ephemeral volume cannot be removed: repeat the call: %w", err)
	}
	return nil
}

// names are the files of all records.
func (l ledger) names() ([]string, error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "the directory of ephemeral volumes cannot be read: %w", err)
	}
	var list []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), recordSuffix) {
			list = append(list, filepath.Join(l.dir, e.Name()))
		}
	}
	return list, nil
}

// Volumes are the ids of the volumes that the records in a directory name, as
// Config.Dir is one. known is false where there is no such directory. It changes
// nothing, beside the service that keeps them.
func Volumes(dir string) (ids map[string]bool, known bool, err error) {
	names, err := ledger{dir}.names()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}
	ids = map[string]bool{}
	for _, name := range names {
		var r record
		b, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has gone meanwhile
		}
		if err == nil {
			err = json.Unmarshal(b, &r)
		}
		if err != nil {
			return nil, false, fmt.Errorf("record %s of an ephemeral volume cannot be read: %w", name, err)
		}
		ids[r.VolumeID] = true
	}
	return ids, true, nil
}
