// Package access holds the vocabulary of how a volume may be used: as a
// filesystem or as a block device, by one node or by many. It mirrors the CSI
// capability without any protobuf type, for the domain packages.
package access

import "fmt"

// Type is the API through which a volume is used.
type Type int

// The access types. The zero value is none of them and never valid.
const (
	Mount Type = iota + 1
	Block
)

func (t Type) String() string {
	switch t {
	case Mount:
		return "mount"
	case Block:
		return "block"
	}
	return fmt.Sprintf("access type %d", int(t))
}

// Mode is a CSI access mode. The numbers are those of the specification,
// equal in csi.v0 (1-5) and csi.v1 (1-7).
type Mode int

// The access modes. The zero value is UNKNOWN and never valid.
const (
	SingleNodeWriter       Mode = 1
	SingleNodeReaderOnly   Mode = 2
	MultiNodeReaderOnly    Mode = 3
	MultiNodeSingleWriter  Mode = 4
	MultiNodeMultiWriter   Mode = 5
	SingleNodeSingleWriter Mode = 6
	SingleNodeMultiWriter  Mode = 7
)

var modeNames = map[Mode]string{
	SingleNodeWriter:       "SINGLE_NODE_WRITER",
	SingleNodeReaderOnly:   "SINGLE_NODE_READER_ONLY",
	MultiNodeReaderOnly:    "MULTI_NODE_READER_ONLY",
	MultiNodeSingleWriter:  "MULTI_NODE_SINGLE_WRITER",
	MultiNodeMultiWriter:   "MULTI_NODE_MULTI_WRITER",
	SingleNodeSingleWriter: "SINGLE_NODE_SINGLE_WRITER",
	SingleNodeMultiWriter:  "SINGLE_NODE_MULTI_WRITER",
}

// Known reports whether m is a mode of the specification.
func (m Mode) Known() bool { return modeNames[m] != "" }

func (m Mode) String() string {
	if s := modeNames[m]; s != "" {
		return s
	}
	return fmt.Sprintf("access mode %d", int(m))
}

// ParseMode reads what String writes of a known mode.
func ParseMode(s string) (Mode, bool) {
	for m, name := range modeNames {
		if name == s {
			return m, true
		}
	}
	return 0, false
}

// MultiNode reports whether the mode lets several nodes have the volume at once.
func (m Mode) MultiNode() bool {
	return m == MultiNodeReaderOnly || m == MultiNodeSingleWriter || m == MultiNodeMultiWriter
}

// ReaderOnly reports whether the mode forbids every write.
func (m Mode) ReaderOnly() bool {
	return m == SingleNodeReaderOnly || m == MultiNodeReaderOnly
}

// Capability is one way in which a volume is to be used.
type Capability struct {
	Type Type
	Mode Mode
	// FSType is the filesystem asked for; empty means the volume's default.
	// Only for Mount.
	FSType string
	// MountFlags are mount options. They may be sensitive: never stored,
	// compared or logged. Only for Mount.
	MountFlags []string
}

func (c Capability) String() string {
	s := c.Type.String() + "/" + c.Mode.String()
	if c.FSType != "" {
		s += "/" + c.FSType
	}
	return s
}
