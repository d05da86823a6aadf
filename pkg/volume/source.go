package volume

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// Source is what a volume is made from: a snapshot, another volume, or nothing.
type Source struct{ SnapshotID, VolumeID string }

// source is a Source as it is stored. The zero value is nothing.
type source struct {
	// Snapshot or Volume is the id that the orchestrator gave.
	Snapshot string `json:"snapshot,omitempty"`
	Volume   string `json:"volume,omitempty"`
	// Origin is the uuid of the volume whose blocks a linked clone shares.
	Origin string `json:"origin,omitempty"`
	// GUID is of the snapshot that a full copy was made of.
	GUID string `json:"guid,omitempty"`
}

func (s source) source() Source { return Source{SnapshotID: s.Snapshot, VolumeID: s.Volume} }

func (s Source) String() string {
	switch {
	case s.SnapshotID != "":
		return "snapshot " + ident.Printable(s.SnapshotID)
	case s.VolumeID != "":
		return "volume " + ident.Printable(s.VolumeID)
	}
	return "empty"
}

// sourceID is a Source whose ids have been read.
type sourceID struct {
	volume ident.VolumeID
	// snapshot is empty where the volume itself is the source.
	snapshot string
}

// parseSource reads a source that must name a pool of the configuration; nil
// when it is nothing.
func (s *Service) parseSource(r Source) (*sourceID, error) {
	switch {
	case r.SnapshotID != "" && r.VolumeID != "":
		return nil, fault.New(fault.Invalid, "a volume cannot be made from a snapshot and from a volume")
	case r.SnapshotID != "":
		id, err := s.parseSnapshot(r.SnapshotID)
		return &sourceID{volume: id.Volume, snapshot: id.Component}, err
	case r.VolumeID != "":
		id, err := s.parse(r.VolumeID)
		return &sourceID{volume: id}, err
	}
	return nil, nil
}

// origin is a source as it is now.
type origin struct {
	// what names it in messages.
	what string
	pool string
	// dataset is the volume, or the tombstone that it is now; snapshot is the
	// full name of the snapshot, empty where the volume itself is the source.
	dataset, snapshot string
	guid, uuid        string
	params            params
	caps              []string
	bytes             int64
}

// read takes over the snapshot that the source is now.
func (o *origin) read(d zfs.Dataset) {
	o.snapshot = d.Name
	o.dataset, _, _ = cutSnapshot(d.Name)
	o.guid, _ = d.Value("guid")
}

// origin reads the source. locked tells that the caller holds its volume's lock.
// fault.NotFound when it does not exist.
func (s *Service) origin(ctx context.Context, id sourceID, locked bool) (*origin, error) {
	if id.snapshot == "" {
		_, r, err := s.find(ctx, id.volume)
		if err != nil {
			return nil, err
		}
		return &origin{
			what: "volume " + id.volume.String(), pool: id.volume.Pool, dataset: r.dataset.Name, uuid: r.uuid,
			params: r.params, caps: r.request.Capabilities, bytes: r.sizeBytes,
		}, nil
	}
	n, err := s.findSnapshot(ctx, ident.SnapshotID{Volume: id.volume, Component: id.snapshot}, locked)
	if err != nil {
		return nil, err
	}
	o := &origin{what: "snapshot " + n.id.String(), pool: id.volume.Pool, uuid: n.uuid(), bytes: n.bytes}
	o.read(n.dataset)
	// The snapshot inherits its volume's request.
	var q request
	raw, _ := n.dataset.Value(propRequest)
	if err = json.Unmarshal([]byte(raw), &q); err == nil {
		o.params, err = fromCanonical(q.Parameters)
	}
	if err != nil {
		return nil, fault.New(fault.Precondition, "%s: property %s of %s makes no sense (%v): set it again by hand", o.what, propRequest, o.dataset, err)
	}
	o.caps = q.Capabilities
	return o, nil
}

// adopt gives a volume that is made from another what it has from there where
// the request does not say it: the block size, which a clone cannot change, and
// the filesystem that is on it.
func (p params) adopt(from params, given map[string]string) params {
	if p.Protocol != ISCSI || from.Protocol != ISCSI {
		return p
	}
	if given["zfs.volblocksize"] == "" {
		p.ZFS = merge(p.ZFS, map[string]string{"volblocksize": from.ZFS["volblocksize"]})
	}
	if given["fsType"] == "" {
		p.FSType = from.FSType
	}
	return p
}

// fits refuses a source from which the wanted volume cannot be made, and
// returns the size that it gets. p has adopted the source's parameters.
func (o *origin) fits(p params, caps []access.Capability, size Range) (int64, error) {
	switch was, is := o.params.ZFS["volblocksize"], p.ZFS["volblocksize"]; {
	case p.Protocol != o.params.Protocol:
		return 0, fault.New(fault.Invalid, "parameter protocol is %s, but %s has %s: a volume keeps its source's protocol", p.Protocol, o.what, o.params.Protocol)
	case was != is:
		return 0, fault.New(fault.Invalid, "parameter zfs.volblocksize is %s, but %s has %s, which a copy keeps: leave it out", is, o.what, was)
	case p.Pool != o.pool && !p.Full:
		return 0, fault.New(fault.Invalid, "%s is in pool %s, and the volume would be in %s: a linked clone stays in its source's pool; use parameter cloneMode full",
			o.what, o.pool, p.Pool)
	}
	if err := o.fitsFilesystems(p, caps); err != nil {
		return 0, err
	}
	return o.size(p, size)
}

// fitsFilesystems refuses to serve a source's filesystem as another one.
func (o *origin) fitsFilesystems(p params, caps []access.Capability) error {
	if p.Protocol != ISCSI {
		return nil
	}
	var has []string
	for _, c := range o.caps {
		if rest, ok := strings.CutPrefix(c, access.Mount.String()+"/"); ok {
			_, fsType, _ := strings.Cut(rest, "/")
			has = append(has, fsType)
		}
	}
	for _, c := range caps {
		if want := p.fsTypeOf(c); c.Type == access.Mount && len(has) > 0 && !slices.Contains(has, want) {
			return fault.New(fault.Invalid, "filesystem type %s is asked for, but %s has %s: a volume keeps its source's filesystem", want, o.what, strings.Join(has, ", "))
		}
	}
	return nil
}

// size is what is required, at least what the source needs.
func (o *origin) size(p params, r Range) (int64, error) {
	switch {
	case r.RequiredBytes > MaxBytes:
		return 0, fault.New(fault.Range, "%d bytes are more than the %d that a volume can have", r.RequiredBytes, MaxBytes)
	case r.RequiredBytes > 0 && r.RequiredBytes < o.bytes:
		return 0, fault.New(fault.Range, "%d bytes are too small: %s needs %d", r.RequiredBytes, o.what, o.bytes)
	}
	block := p.blockBytes()
	bytes := roundUp(max(r.RequiredBytes, o.bytes, MinBytes), block)
	if !r.holds(bytes) {
		return 0, fault.New(fault.Range, "the smallest possible size is %d bytes (%s needs %d, and it is a multiple of %d), which is above the limit of %d",
			bytes, o.what, o.bytes, block, r.LimitBytes)
	}
	return bytes, nil
}

// mark is the property that says from what a volume was made.
func (o *origin) mark(r Source, full bool) (zfs.Setting, error) {
	m := source{Snapshot: r.SnapshotID, Volume: r.VolumeID}
	if full {
		m.GUID = o.guid
	} else {
		m.Origin = o.uuid
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return zfs.Setting{}, fmt.Errorf("encode the content source: %w", err)
	}
	return zfs.Setting{Name: propSource, Value: string(raw)}, nil
}
