package inprocess

import (
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"

	sanityv1 "github.com/tarn-csi/tarn/test/sanity/v1"
)

// The driver passes the csi.v1 suite of csi-test for each kind of volume.
func TestSanityV1(t *testing.T) {
	var kinds []sanityv1.Kind
	for _, u := range []use{overNFS, asExt4, asBlock} {
		d := Start(t)
		kinds = append(kinds, sanityv1.Kind{
			Name: u.name, Address: d.Endpoint, Parameters: u.parameters, Block: u.block,
			SizeBytes: 64 << 20, ExpandedBytes: 128 << 20, Dir: d.Storage.Dir(""),
			Mutable: map[string]string{"zfs.compression": "lz4"}, Skips: sanityv1.NeverRun,
			CheckPath: func(path string) (sanity.PathKind, error) {
				mounts, err := d.Node.Mounted(path)
				switch {
				case err != nil || mounts == 0:
					return sanity.PathIsNotFound, err
				case u.block:
					return sanity.PathIsFile, nil
				}
				return sanity.PathIsDir, nil
			},
		})
	}
	sanityv1.Run(t, kinds...)
}
