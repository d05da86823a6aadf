package volume

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/access"
)

// Lasting is a volume with all that an orchestrator knew of it, as far as the
// pool tells: for one that has lost its own objects.
type Lasting struct {
	Volume
	// Name is the one that the orchestrator gave.
	Name     string
	UUID     string
	Protocol string
	Owner    owner
	// Capabilities are those that it was made for.
	Capabilities []access.Capability
}

// LeftOut is a dataset of this driver's that no orchestrator can have back as a
// volume, and why.
type LeftOut struct{ Dataset, Why string }

// Lasting lists the volumes of every pool by id, and what of the pools is no
// volume, or none any more: deleted ones, unfinished copies, damaged ones. Like
// Inventory it works beside the process that holds the parents, and changes
// nothing. It starts three commands a pool. What there is comes together with the
// error of a pool that cannot be read.
func (s *Service) Lasting(ctx context.Context) ([]Lasting, []LeftOut, error) {
	var all []Lasting
	var left []LeftOut
	var errs []error
	for _, name := range s.order {
		list, without, err := s.poolLasting(ctx, s.pools[name])
		all, left, errs = append(all, list...), append(left, without...), append(errs, err)
	}
	slices.SortFunc(all, func(a, b Lasting) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(left, func(a, b LeftOut) int { return strings.Compare(a.Dataset, b.Dataset) })
	return all, left, errors.Join(errs...)
}

func (s *Service) poolLasting(ctx context.Context, p *pool) ([]Lasting, []LeftOut, error) {
	if _, err := s.sightOf(ctx, p); err != nil {
		return nil, nil, err
	}
	var all []Lasting
	var left []LeftOut
	err := s.read(ctx, "list volumes", p.cfg.Name, func(ctx context.Context) error {
		if err := s.survey(ctx, p); err != nil {
			return err
		}
		records, err := s.listRecords(ctx, p)
		if err != nil {
			return err
		}
		list, err := s.cfg.ZFS.Inventory(ctx, p.cfg.Parent)
		if err != nil {
			return ofParent(err, "list what is in pool %q", p.cfg.Name)
		}
		for _, r := range records {
			v, why := r.lasting()
			if why != "" {
				left = append(left, LeftOut{r.dataset.Name, why})
				continue
			}
			all = append(all, v)
		}
		left = append(left, p.noVolumes(sortBelow(list))...)
		return nil
	})
	if err != nil {
		return nil, nil, err // the operation may still run, and append
	}
	return all, left, nil
}

// noVolumes are the datasets that have the mark of a volume and are none.
func (p *pool) noVolumes(found below) (left []LeftOut) {
	for _, d := range found.datasets {
		if _, marked := d.Own(propName); !marked {
			continue
		}
		if o, orphan := p.orphan(d, found); orphan {
			left = append(left, LeftOut{d.Name, o.Why})
		}
	}
	return left
}

// lasting is the volume, or why it cannot be told whole.
func (r *record) lasting() (Lasting, string) {
	if r.err != nil {
		return Lasting{}, r.err.Error()
	}
	if r.params.Ephemeral {
		return Lasting{}, "it is ephemeral: it was made for " + orDash(readOwner(r.dataset).String()) + ", whose node destroys it"
	}
	v := Lasting{Volume: r.volume(), UUID: r.uuid, Protocol: r.params.Protocol, Owner: readOwner(r.dataset)}
	if err := json.Unmarshal([]byte(r.name), &v.Name); err != nil {
		return Lasting{}, "property " + propName + " is no name: " + err.Error()
	}
	for _, text := range r.request.Capabilities {
		c, ok := access.ParseCapability(text)
		if !ok {
			return Lasting{}, "property " + propRequest + " has a capability that makes no sense: set it again by hand or delete the volume"
		}
		v.Capabilities = append(v.Capabilities, c)
	}
	switch {
	case len(v.Capabilities) == 0:
		return Lasting{}, "property " + propRequest + " has no capabilities: set it again by hand or delete the volume"
	case v.CapacityBytes <= 0:
		return Lasting{}, "its size cannot be read: a filesystem needs a refquota, which is the volume's size"
	}
	return v, ""
}
