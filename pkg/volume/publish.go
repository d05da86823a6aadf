package volume

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/export"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/publish"
	"github.com/tarn-csi/tarn/pkg/zfs"
)

// PublishRequest asks to open a volume to a node.
type PublishRequest struct {
	VolumeID, NodeID string
	Capability       access.Capability
	ReadOnly         bool
	Secrets          map[string]string
}

// Publish opens a volume to one node and returns what the node needs to find
// it. A publication that is there already is a success; new addresses of the
// node replace the old ones.
//
// Errors: fault.NotFound for the volume or the node; fault.Exists when it is
// published to the node in another way; fault.Precondition when it is
// published elsewhere, naming where.
func (s *Service) Publish(ctx context.Context, r PublishRequest) (map[string]string, error) {
	id, err := s.parse(r.VolumeID)
	if err != nil {
		return nil, err
	}
	node, err := s.parseNode(r.NodeID)
	if err != nil {
		return nil, err
	}
	var info map[string]string
	err = s.lock(ctx, "ControllerPublishVolume", id, func(ctx context.Context) error {
		p, rec, err := s.find(ctx, id)
		if err != nil {
			return err
		}
		info, err = s.publish(ctx, p, rec, node, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return info, nil
}

// parseNode reads a node id whose addresses are allowed.
func (s *Service) parseNode(id string) (ident.NodeID, error) {
	node, err := ident.ParseNodeID(id)
	if err != nil {
		return node, err
	}
	for _, a := range node.Addresses {
		if len(s.cfg.NodeNetworks) > 0 && !slices.ContainsFunc(s.cfg.NodeNetworks, func(n netip.Prefix) bool { return n.Contains(a) }) {
			return node, fault.New(fault.NotFound, "node %s is unknown: its address %s is in none of nodeNetworks", node.Name, a)
		}
	}
	return node, nil
}

func (s *Service) publish(ctx context.Context, p *pool, r *record, node ident.NodeID, req PublishRequest) (map[string]string, error) {
	protocol := r.params.Protocol
	exporter := s.cfg.Exporters[protocol]
	if exporter == nil {
		return nil, fault.New(fault.Precondition, "volume %s is of protocol %s, which this driver does not serve now: start it with --protocols %s", r.id, protocol, protocol)
	}
	if err := checkCapability(protocol, req.Capability); err != nil {
		return nil, err
	}
	wanted := publication{NodeID: node.String(), Mode: req.Capability.Mode, Type: req.Capability.Type, ReadOnly: req.ReadOnly}
	if err := r.admits(node.Name, wanted); err != nil {
		return nil, err
	}
	if protocol == ISCSI && p.cfg.CHAP == chap.Secrets {
		c, err := chap.FromSecrets(req.Secrets)
		if err != nil {
			return nil, err
		}
		if err := s.cfg.Secrets.Put(r.uuid, node.Name, c); err != nil {
			return nil, err
		}
	}
	if r.publications[node.Name] != wanted {
		value, err := json.Marshal(wanted)
		if err != nil {
			return nil, err
		}
		if err := s.mark(ctx, r, zfs.Setting{Name: propNode + node.Name, Value: string(value)}); err != nil {
			return nil, describe(err, "publish volume %s to %s", r.id, node.Name)
		}
		r.publications[node.Name] = wanted
	}
	if err := s.expose(ctx, p, r, exporter); err != nil {
		return nil, err
	}
	return s.publishContext(p, r, node.Name, wanted), nil
}

// mark sets the property of a publication. A clone is made with canmount=noauto,
// as nothing else keeps zfs-clone(8) from mounting it; from its first publication
// on, a boot mounts it before the NFS server is there, like any other volume.
func (s *Service) mark(ctx context.Context, r *record, publication zfs.Setting) error {
	if v, _ := r.dataset.Own("canmount"); v != "noauto" {
		return s.cfg.ZFS.Set(ctx, r.dataset.Name, publication)
	}
	return s.cfg.ZFS.SetAll(ctx, r.dataset.Name, []zfs.Setting{{Name: "canmount", Value: "on"}, publication})
}

// admits refuses a publication that contradicts the ones that exist.
func (r *record) admits(node string, w publication) error {
	if have, ok := r.publications[node]; ok {
		switch {
		case have.Mode != w.Mode:
			return fault.New(fault.Exists, "volume %s is published to %s with access mode %s, and now %s is asked: unpublish it first", r.id, node, have.Mode, w.Mode)
		case have.Type != w.Type:
			return fault.New(fault.Exists, "volume %s is published to %s with access type %s, and now %s is asked: unpublish it first", r.id, node, have.Type, w.Type)
		case have.ReadOnly != w.ReadOnly:
			return fault.New(fault.Exists, "volume %s is published to %s with readonly=%t, and now readonly=%t is asked: unpublish it first", r.id, node, have.ReadOnly, w.ReadOnly)
		}
	}
	for _, other := range r.nodes() {
		if other == node {
			continue
		}
		have := r.publications[other]
		if !have.Mode.MultiNode() || !w.Mode.MultiNode() {
			return fault.New(fault.Precondition, "volume %s is published to node %s (%s): unpublish it there first", r.id, other, have.Mode)
		}
		if !w.closed() && !have.closed() && (w.Mode == access.MultiNodeSingleWriter || have.Mode == access.MultiNodeSingleWriter) {
			return fault.New(fault.Precondition, "volume %s is published to node %s for writing (%s): publish it read-only, or unpublish it there first", r.id, other, have.Mode)
		}
		// A filesystem on a block device survives one writer alone.
		if r.params.Protocol == ISCSI && (w.Type == access.Mount || have.Type == access.Mount) && !(w.closed() && have.closed()) {
			return fault.New(fault.Precondition, "volume %s is published to node %s: a filesystem over iscsi may have several readers or one writer", r.id, other)
		}
	}
	return nil
}

// expose brings the export of one volume to what its publications say.
func (s *Service) expose(ctx context.Context, p *pool, r *record, e export.Exporter) error {
	if r.params.Protocol == NFS {
		if _, err := s.mounted(ctx, p, r); err != nil {
			return err
		}
	}
	return s.ensure(ctx, p, r, e)
}

// ensure is expose of a volume that is mounted, if it has to be.
func (s *Service) ensure(ctx context.Context, p *pool, r *record, e export.Exporter) error {
	v := s.export(p, r)
	var err error
	if v.Grants, err = s.grants(p, r); err != nil {
		return err
	}
	s.remember(r)
	return e.Ensure(ctx, v)
}

// grants are the publications as the exporter wants them. One whose CHAP pair
// is not on this host is left out, and so stays closed.
func (s *Service) grants(p *pool, r *record) ([]export.Grant, error) {
	var list []export.Grant
	for _, name := range r.nodes() {
		pub := r.publications[name]
		node, err := ident.ParseNodeID(pub.NodeID)
		if err != nil {
			return nil, fault.New(fault.Precondition, "volume %s: property %s%s holds node id %q, which makes no sense: unpublish the volume there", r.id, propNode, name, ident.Printable(pub.NodeID))
		}
		g := export.Grant{Node: name, Addresses: node.Addresses, Initiator: s.cfg.Naming.Initiator(name), ReadOnly: pub.closed()}
		if r.params.Protocol == ISCSI {
			ok, err := s.credentials(p, r, &g)
			if err != nil {
				return nil, err
			}
			if !ok {
				s.cfg.Log.WithField("volume", r.id.String()).WithField("node", name).
					Error("the CHAP pair of this publication is not on this host: it stays closed until it is published again")
				continue
			}
		}
		list = append(list, g)
	}
	return list, nil
}

// credentials gives a grant its CHAP pair; false when the pool's mode is
// secrets and the pair is not on this host.
func (s *Service) credentials(p *pool, r *record, g *export.Grant) (bool, error) {
	switch p.cfg.CHAP {
	case chap.None:
		return true, nil
	case chap.Secrets:
		c, ok, err := s.cfg.Secrets.Get(r.uuid, g.Node)
		if err != nil || !ok {
			return false, err
		}
		g.CHAP = &c
	default:
		c := chap.Derive(chap.NodeKey(s.cfg.MasterKey, g.Node), g.Node, r.uuid)
		g.CHAP = &c
	}
	return true, nil
}

// remember keeps which addresses use this host.
func (s *Service) remember(r *record) {
	u := use{nfs: r.params.Protocol == NFS}
	for _, pub := range r.publications {
		if node, err := ident.ParseNodeID(pub.NodeID); err == nil {
			u.addresses = append(u.addresses, node.Addresses...)
		}
	}
	s.published.set(r.uuid, u)
}

// publishContext is what the node needs; the portal is today's.
func (s *Service) publishContext(p *pool, r *record, node string, pub publication) map[string]string {
	c := publish.Context{Protocol: r.params.Protocol, ReadOnly: pub.closed(), Mode: pub.Mode}
	if c.Protocol == NFS {
		c.Server = p.cfg.Addresses[0].String()
		c.Share = r.mountpoint(p)
		return c.Map()
	}
	c.IQN = s.cfg.Naming.Target(r.uuid)
	for _, a := range p.cfg.Addresses {
		c.Portals = append(c.Portals, netip.AddrPortFrom(a, p.cfg.ISCSIPort).String())
	}
	c.LUN = 1
	c.Serial = r.uuid
	c.Initiator = s.cfg.Naming.Initiator(node)
	c.CHAP = p.cfg.CHAP
	return c.Map()
}

// Unpublish closes a volume to a node, or to every node when nodeID is empty,
// and drops live sessions. A node that it is not published to is a success.
// The node is known by its name alone, since detach may bring an older id.
//
// fault.NotFound when the volume does not exist or the node id is none.
func (s *Service) Unpublish(ctx context.Context, volumeID, nodeID string) error {
	id, err := s.parse(volumeID)
	if err != nil {
		return err
	}
	var node ident.NodeID
	if nodeID != "" {
		if node, err = ident.ParseNodeID(nodeID); err != nil {
			return err
		}
	}
	return s.lock(ctx, "ControllerUnpublishVolume", id, func(ctx context.Context) error {
		p, r, err := s.find(ctx, id)
		if err != nil {
			return err
		}
		nodes := r.nodes()
		if nodeID != "" {
			nodes = []string{node.Name}
		}
		return s.unpublish(ctx, p, r, nodes)
	})
}

// unpublish closes first and forgets then: cut off in between, the property
// still says what the orchestrator will ask to undo again.
func (s *Service) unpublish(ctx context.Context, p *pool, r *record, nodes []string) error {
	exporter := s.cfg.Exporters[r.params.Protocol]
	if exporter == nil {
		return fault.New(fault.Precondition, "volume %s is of protocol %s, which this driver does not serve now: start it with --protocols %s", r.id, r.params.Protocol, r.params.Protocol)
	}
	var gone []string
	for _, n := range nodes {
		if _, ok := r.publications[n]; ok {
			gone = append(gone, n)
			delete(r.publications, n)
		}
	}
	v := s.export(p, r)
	var err error
	if v.Grants, err = s.grants(p, r); err != nil {
		return err
	}
	if err := exporter.Ensure(ctx, v); err != nil {
		return err
	}
	for _, n := range gone {
		if err := s.cfg.ZFS.Inherit(ctx, r.dataset.Name, propNode+n); err != nil {
			return describe(err, "unpublish volume %s from %s", r.id, n)
		}
	}
	if p.cfg.CHAP == chap.Secrets {
		for _, n := range nodes {
			if err := s.cfg.Secrets.Remove(r.uuid, n); err != nil {
				return err
			}
		}
	}
	s.remember(r)
	return nil
}
