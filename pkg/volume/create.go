package volume

import (
	"context"
	"errors"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// CreateRequest asks for a volume.
type CreateRequest struct {
	Name         string
	Size         Range
	Capabilities []access.Capability
	Parameters   map[string]string
	// Mutable are parameters that may change later, and so are not compared when
	// the request is repeated. They win over Parameters.
	Mutable map[string]string
	Source  Source
}

// Create makes a volume, or finds the one that an earlier call of the same
// name made. Nothing is exported yet.
//
// Errors: fault.Invalid, fault.Range and fault.Exhausted; fault.NotFound for the
// source; fault.Exists when the name is taken by a volume made from another
// request, naming the field that differs.
func (s *Service) Create(ctx context.Context, r CreateRequest) (Volume, error) {
	if r.Name == "" {
		return Volume{}, fault.New(fault.Invalid, "the volume name is empty")
	}
	params, err := s.parseParams(r.Parameters)
	if err != nil {
		return Volume{}, err
	}
	if err := checkCapabilities(params.Protocol, r.Capabilities); err != nil {
		return Volume{}, err
	}
	if err := r.Size.check(); err != nil {
		return Volume{}, err
	}
	mutable, err := parseMutable(params.Protocol, r.Mutable)
	if err != nil {
		return Volume{}, err
	}
	from, err := s.parseSource(r.Source)
	if err != nil {
		return Volume{}, err
	}
	c := creation{
		Service: s,
		id:      ident.VolumeID{Pool: params.Pool, Component: ident.Component(r.Name)},
		request: r,
		params:  params,
		zfs:     merge(params.ZFS, mutable),
		owner:   ownerOf(r.Parameters),
		caps:    canonicalCaps(params, r.Capabilities),
		from:    from,
	}
	ids, timeout := []ident.VolumeID{c.id}, s.cfg.Operation
	switch {
	case from != nil && params.Full:
		timeout = copyTimeout // its source is locked for a moment only
	case from != nil:
		ids = append(ids, from.volume)
	default:
		if c.bytes, err = sizeFor(params, r.Capabilities, r.Size); err != nil {
			return Volume{}, err
		}
	}
	var v Volume
	err = s.lockFor(ctx, timeout, "CreateVolume", ids, nil, func(ctx context.Context) error {
		var err error // the operation may outlive this call
		v, err = c.run(ctx)
		return err
	})
	if err != nil {
		return Volume{}, err
	}
	return v, nil
}

// creation is one call of Create after its request has been checked.
type creation struct {
	*Service
	id      ident.VolumeID
	request CreateRequest
	params  params
	// zfs are the native properties that the volume begins with.
	zfs   map[string]string
	owner owner
	caps  []string
	// from is nil for a volume without a source, whose bytes are known before it
	// is read.
	from  *sourceID
	bytes int64
}

func (c creation) run(ctx context.Context) (Volume, error) {
	p, err := c.pool(c.id.Pool)
	if err != nil {
		return Volume{}, err
	}
	if c.from != nil {
		return c.runFrom(ctx, p)
	}
	spec, err := c.spec(p, newUUID())
	if err != nil {
		return Volume{}, err
	}
	err = c.cfg.ZFS.Create(ctx, spec)
	if errors.Is(err, zfs.ErrExists) {
		return c.existing(ctx, p, spec)
	}
	if err != nil {
		return Volume{}, describe(err, "create volume %s", c.id)
	}
	return c.finish(ctx, p, spec.Name)
}

// spec is the dataset to be made, with every fact about it, in one command.
func (c creation) spec(p *pool, uuid string) (zfs.Spec, error) {
	spec := sizeSpec(c.params, c.bytes)
	spec.Name = p.dataset(c.id.Component)
	marks, err := settings(c.request.Name, uuid, c.params, c.caps, c.bytes)
	if err != nil {
		return spec, err
	}
	spec.Properties = append(spec.Properties, marks...)
	spec.Properties = append(spec.Properties, c.owner.settings()...)
	for name, value := range c.zfs {
		spec.Properties = append(spec.Properties, zfs.Setting{Name: name, Value: value})
	}
	if c.params.Protocol == ISCSI {
		// The host must not look for partitions in what belongs to a node.
		spec.Properties = append(spec.Properties, zfs.Setting{Name: "volmode", Value: "dev"})
		return spec, nil
	}
	if _, err := p.mountpoint(c.id.Component); err != nil {
		return spec, err
	}
	spec.Properties = append(spec.Properties,
		// A client's set-uid file or device node must not work on this host.
		zfs.Setting{Name: "setuid", Value: "off"},
		zfs.Setting{Name: "devices", Value: "off"},
		// A share of ZFS's own would open the volume beside its publications.
		zfs.Setting{Name: "sharenfs", Value: "off"},
	)
	return spec, nil
}

// existing answers for a dataset that was there before.
func (c creation) existing(ctx context.Context, p *pool, spec zfs.Spec) (Volume, error) {
	d, err := c.cfg.ZFS.Get(ctx, spec.Name)
	if err != nil {
		return Volume{}, describe(err, "read volume %s", c.id)
	}
	r, ours := readRecord(c.id, d)
	if !ours {
		return c.adoptBare(ctx, p, d, spec)
	}
	return c.answer(ctx, p, r)
}

// answer answers for a volume that was there before.
func (c creation) answer(ctx context.Context, p *pool, r *record) (Volume, error) {
	if r.err != nil {
		return Volume{}, r.err
	}
	if c.from != nil {
		c = c.adopt(r.params)
	}
	if diff := r.differs(c); diff != "" {
		return Volume{}, fault.New(fault.Exists, "volume %s exists and was made from another request: %s", c.id, diff)
	}
	if d := r.dataset; d.KeyMissing() {
		return Volume{}, fault.New(fault.Precondition, "volume %s: the encryption key of %s is not loaded: run `zfs load-key`", c.id, d.Name)
	}
	if err := c.complete(ctx, p, r); err != nil {
		return Volume{}, err
	}
	return r.volume(), nil
}

// adoptBare completes what a power loss left between the kernel's two steps of
// creating a dataset. It is made anew, as its block size may be another.
func (c creation) adoptBare(ctx context.Context, p *pool, d zfs.Dataset, spec zfs.Spec) (Volume, error) {
	if err := c.removeBare(ctx, d); err != nil {
		return Volume{}, err
	}
	if err := c.cfg.ZFS.Create(ctx, spec); err != nil {
		return Volume{}, describe(err, "create volume %s", c.id)
	}
	return c.finish(ctx, p, spec.Name)
}

// removeBare destroys a dataset of our exact name in which nothing is, with
// nothing set. Anything else of that name is not touched: fault.Exists.
func (c creation) removeBare(ctx context.Context, d zfs.Dataset) error {
	foreign := fault.New(fault.Exists, "dataset %s exists and was not made by this driver: rename it, or ask for another name", d.Name)
	if !d.Unmarked() {
		return foreign
	}
	empty, err := c.cfg.Host.LooksEmpty(ctx, d)
	if err != nil {
		return describe(err, "look into dataset %s", d.Name)
	}
	if !empty {
		return foreign
	}
	if err := c.cfg.ZFS.Destroy(ctx, d.Name); err != nil {
		if errors.Is(err, zfs.ErrDependents) {
			return foreign
		}
		return describe(err, "replace the unfinished dataset %s", d.Name)
	}
	return nil
}

// finish makes a fresh dataset usable.
func (c creation) finish(ctx context.Context, p *pool, dataset string) (Volume, error) {
	v := Volume{ID: c.id.String(), CapacityBytes: c.bytes, Context: c.params.context(), Source: c.request.Source}
	if c.params.Protocol == ISCSI {
		return v, nil
	}
	dir, err := p.mountpoint(c.id.Component)
	if err != nil {
		return Volume{}, err
	}
	atime := c.zfs["atime"] != "off"
	if err := c.cfg.Host.Mount(ctx, dataset, dir, atime); err != nil {
		return Volume{}, describe(err, "mount volume %s", c.id)
	}
	if c.from != nil {
		return v, nil // the root is as it was in the source
	}
	if err := c.cfg.Host.SetRoot(ctx, dir, c.params.Root); err != nil {
		return Volume{}, describe(err, "set owner and mode of volume %s", c.id)
	}
	return v, nil
}

// complete does what an interrupted creation left out.
func (c creation) complete(ctx context.Context, p *pool, r *record) error {
	if err := c.grow(ctx, r); err != nil {
		return err
	}
	if r.params.Protocol == ISCSI {
		return nil
	}
	dir, err := c.mounted(ctx, p, r)
	if err != nil || c.from != nil {
		return err
	}
	return describe(c.cfg.Host.SetRoot(ctx, dir, r.params.Root), "set owner and mode of volume %s", c.id)
}
