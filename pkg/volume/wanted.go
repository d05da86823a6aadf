package volume

import (
	"strings"

	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// Wanted is an export that a volume's properties ask for.
type Wanted struct {
	// Dataset is the volume's.
	Dataset string
	// Protocol is nfs or iscsi.
	Protocol string
	// Export has everything but what is secret or only known when it is served:
	// CHAP pairs, portals and the size.
	Export export.Volume
}

// ReadWanted reads, for one who only looks, the published volumes among the
// datasets below a pool's parent. base is the parent's mountpoint. A volume
// whose properties make no sense is an error in the second list; the others do
// not suffer from it.
func ReadWanted(cfg PoolConfig, naming ident.Naming, base string, datasets []zfs.Dataset) ([]Wanted, []error) {
	p := &pool{cfg: cfg, base: base}
	var list []Wanted
	var broken []error
	for _, d := range datasets {
		id := ident.VolumeID{Pool: cfg.Name, Component: strings.TrimPrefix(d.Name, cfg.Parent+"/")}
		if _, err := ident.ParseVolumeID(id.String()); err != nil {
			continue
		}
		r, ours := readRecord(id, d)
		if !ours {
			continue
		}
		w, err := r.wanted(p, naming)
		if err != nil {
			broken = append(broken, err)
		} else if len(w.Export.Grants) > 0 {
			list = append(list, w)
		}
	}
	return list, broken
}

func (r *record) wanted(p *pool, naming ident.Naming) (Wanted, error) {
	if r.err != nil {
		return Wanted{}, r.err
	}
	w := Wanted{Dataset: r.dataset.Name, Protocol: r.params.Protocol, Export: export.Volume{ID: r.id.String(), UUID: r.uuid}}
	if w.Protocol == NFS {
		w.Export.Source = r.mountpoint(p)
	}
	for _, name := range r.nodes() {
		pub := r.publications[name]
		node, err := ident.ParseNodeID(pub.NodeID)
		if err != nil {
			return Wanted{}, fault.New(fault.Precondition, "volume %s: property %s%s holds node id %q, which makes no sense: unpublish the volume there",
				r.id, propNode, name, ident.Printable(pub.NodeID))
		}
		w.Export.Grants = append(w.Export.Grants, export.Grant{
			Node: name, Addresses: node.Addresses, Initiator: naming.Initiator(name), ReadOnly: pub.closed(),
		})
	}
	return w, nil
}
