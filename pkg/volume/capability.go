package volume

import (
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/access"
	"github.com/tarn-csi/tarn/pkg/fault"
	"github.com/tarn-csi/tarn/pkg/ident"
	"github.com/tarn-csi/tarn/pkg/mount/minsize"
)

func checkFSType(fsType string) error {
	if !minsize.Known(fsType) {
		return fault.New(fault.Invalid, "filesystem type %q is not supported: use ext4, ext3 or xfs", ident.Printable(fsType))
	}
	return nil
}

// checkCapability refuses a capability that the protocol cannot serve.
func checkCapability(protocol string, c access.Capability) error {
	switch {
	case c.Type != access.Mount && c.Type != access.Block:
		return fault.New(fault.Invalid, "the capability has neither access type: set block or mount")
	case !c.Mode.Known():
		return fault.New(fault.Invalid, "the capability's access mode is unset or unknown (%d)", int(c.Mode))
	}
	if protocol == NFS {
		if c.Type == access.Block {
			return fault.New(fault.Invalid, "protocol nfs cannot serve a block volume: use protocol iscsi")
		}
		if c.FSType != "" && c.FSType != "nfs" && c.FSType != "nfs4" {
			return fault.New(fault.Invalid, "protocol nfs cannot serve filesystem type %q: leave the type empty", ident.Printable(c.FSType))
		}
		return nil
	}
	if c.Type == access.Mount {
		if c.FSType != "" {
			if err := checkFSType(c.FSType); err != nil {
				return err
			}
		}
		if c.Mode == access.MultiNodeMultiWriter || c.Mode == access.MultiNodeSingleWriter {
			return fault.New(fault.Invalid, "protocol iscsi cannot serve a filesystem as %s: two nodes would destroy it; use protocol nfs or a block volume", c.Mode)
		}
		return nil
	}
	if c.Mode == access.MultiNodeSingleWriter {
		return fault.New(fault.Invalid, "protocol iscsi does not serve %s: use MULTI_NODE_MULTI_WRITER or MULTI_NODE_READER_ONLY", c.Mode)
	}
	return nil
}

func checkCapabilities(protocol string, caps []access.Capability) error {
	if len(caps) == 0 {
		return fault.New(fault.Invalid, "no volume capability is given")
	}
	for _, c := range caps {
		if err := checkCapability(protocol, c); err != nil {
			return err
		}
	}
	return nil
}

// canonicalCaps is the form in which capabilities are stored and compared:
// sorted, each once, without mount flags, which may be sensitive.
func canonicalCaps(p params, caps []access.Capability) []string {
	var list []string
	for _, c := range caps {
		if p.Protocol == NFS {
			c.FSType = ""
		} else if c.Type == access.Mount {
			c.FSType = p.fsTypeOf(c)
		}
		list = append(list, c.String())
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func joinCaps(list []string) string { return strings.Join(list, ", ") }
