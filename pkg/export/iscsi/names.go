package iscsi

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"path"
	"strings"

	"github.com/tarn-csi/tarn/pkg/ident"
)

const (
	fabricDir = "target/iscsi"
	coreDir   = "target/core"
)

// lunDir is the name of the LUN, in the portal group and in each ACL.
var lunDir = fmt.Sprintf("lun_%d", LUN)

// firstHBA is where our range of iblock_N begins. The tools that number HBAs
// one after the other look for a free one below 2^20 (rtslib-fb).
const firstHBA = 1 << 30

// names holds the paths of one volume. All derive from instance and uuid, so
// what an earlier process made is found again.
type names struct {
	uuid string
	iqn  string

	target string
	tpg    string
	lun    string
	// lunLink is the link that maps the backstore.
	lunLink string

	hba       string
	backstore string
}

func (e *Exporter) names(uuid string) names {
	mark := markOf(e.naming)
	n := names{uuid: uuid, iqn: e.naming.Target(uuid)}
	n.target = path.Join(fabricDir, n.iqn)
	n.tpg = path.Join(n.target, "tpgt_1")
	n.lun = path.Join(n.tpg, "lun", lunDir)
	n.hba = mark.hba()
	n.backstore = path.Join(n.hba, mark.prefix()+uuid)
	n.lunLink = path.Join(n.lun, path.Base(n.backstore))
	return n
}

// acl is the path of an initiator's ACL.
func (n names) acl(initiator string) string { return path.Join(n.tpg, "acls", initiator) }

// mark tells the backstores of one instance from those of all others: 30 bits
// of a digest choose the HBA, and 32 others are in each backstore's name.
type mark struct {
	number uint32
	digits string
}

func markOf(naming ident.Naming) mark {
	sum := sha256.Sum256([]byte(naming.Instance()))
	return mark{
		number: firstHBA | binary.BigEndian.Uint32(sum[:4])&(firstHBA-1),
		digits: hex.EncodeToString(sum[4:8]),
	}
}

func (m mark) hba() string { return path.Join(coreDir, fmt.Sprintf("iblock_%d", m.number)) }

func (m mark) prefix() string { return "tarn-" + m.digits + "-" }

// backstoreUUID returns the volume of a backstore of ours.
func (m mark) backstoreUUID(name string) (string, bool) {
	uuid, ok := strings.CutPrefix(name, m.prefix())
	return uuid, ok && ident.ValidUUID(uuid)
}
