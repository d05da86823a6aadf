package zfs

import (
	"context"
	"slices"
	"strings"

	gozfs "github.com/mistifyio/go-zfs/v4"

	"github.com/tarn-csi/tarn/pkg/run"
)

// SnapshotSpec is one or several snapshots to be taken at one instant.
type SnapshotSpec struct {
	// Names are "dataset@snapshot", all in one pool, one of each dataset.
	Names []string
	// Properties are user properties that every one of them gets. Native
	// properties are refused.
	Properties []Setting
}

// Snapshot takes snapshots: all of them exist with all properties, or none does.
// ErrNotExist when a dataset is missing, ErrExists when one of the snapshots is
// not, ErrNoSpace when a dataset's reservation cannot be given a second time,
// ErrBusy for a dataset that is being received, ErrSuspended, ErrBadValue.
func (c *Client) Snapshot(ctx context.Context, s SnapshotSpec) error {
	args := []string{"snapshot"}
	for _, p := range s.Properties {
		args = append(args, "-o", p.Name+"="+p.Value)
	}
	_, err := c.run.Run(ctx, run.Cmd{Tool: "zfs", Args: append(args, s.Names...)})
	if err == nil {
		return nil
	}
	about := slices.Clone(s.Names)
	for _, name := range s.Names {
		dataset, _, _ := strings.Cut(name, "@")
		// zfs(8) opens the dataset first, and adds its usage to this message.
		if said, ok := after(run.Stderr(err), dataset); ok && said == notThere {
			return &causeError{cause: ErrNotExist, err: err}
		}
		about = append(about, dataset)
	}
	return classify(err, "", about...)
}

// Snapshots reads the properties that are set (local, received) on the snapshots
// of all datasets below parent, at any depth, with one command. Snapshots
// without any are left out, as nearly all of other tools are; those of zvols
// always have their volsize. ErrNoParent when the parent does not exist.
func (c *Client) Snapshots(ctx context.Context, parent string) ([]Dataset, error) {
	known := func(name string) bool {
		dataset, _, isSnapshot := strings.Cut(name, "@")
		return isSnapshot && (dataset == parent || strings.HasPrefix(dataset, parent+"/"))
	}
	list, err := c.listOwn(ctx, parent, known, "-r", "-t", "snapshot")
	if err != nil {
		return nil, err
	}
	return below(list, parent), nil
}

// DestroyLater destroys a snapshot at once when nothing needs it, and else marks
// it (property defer_destroy): it goes with its last clone and its last hold.
// Until then it keeps its name, unless it is renamed, and can still be cloned
// and held. A marked one is marked again without an error. ErrNotExist,
// ErrNoParent when its dataset does not exist.
func (c *Client) DestroyLater(ctx context.Context, snapshot string) error {
	if err := oneSnapshot(snapshot); err != nil {
		return err
	}
	return c.viaLibrary(ctx, "destroy", snapshot, func() error {
		return (&gozfs.Dataset{Name: snapshot}).Destroy(gozfs.DestroyDeferDeletion)
	})
}

// oneSnapshot keeps zfs-destroy(8) from reading a name as several: "a@b,c" is a
// list there and "a@b%c" everything between two snapshots.
func oneSnapshot(name string) error {
	if _, snapshot, ok := strings.Cut(name, "@"); ok && strings.ContainsAny(snapshot, "%,") {
		return &causeError{cause: ErrNotExist, err: &run.Error{Line: "zfs destroy " + name, Code: -1, Err: errSeveral}}
	}
	return nil
}
