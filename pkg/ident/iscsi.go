package ident

import (
	"regexp"
	"strings"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// Naming derives every iSCSI name of one Tarn instance. Two instances on one
// host have different namings and so never touch each other's targets.
type Naming struct {
	base string
}

var (
	iqnPrefix       = regexp.MustCompile(`^iqn\.[0-9]{4}-[0-9]{2}\.[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[a-z0-9._-]+)*$`)
	instancePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
)

// maxBase leaves room for ":" and "node:" and the longest node name.
const maxBase = MaxIQN - MaxNodeName - len(":node:")

// NewNaming returns the naming of an instance below a prefix such as
// iqn.2026-01.io.github.tarn-csi. iSCSI names are case-insensitive and the
// kernel compares bytes, so everything is lower case from here on (RFC 3722).
func NewNaming(prefix, instance string) (Naming, error) {
	prefix, instance = strings.ToLower(prefix), strings.ToLower(instance)
	if !iqnPrefix.MatchString(prefix) {
		return Naming{}, fault.New(fault.Invalid, "iqn prefix %q has not the form iqn.YYYY-MM.reversed.domain[:text]", Printable(prefix))
	}
	if !instancePattern.MatchString(instance) {
		return Naming{}, fault.New(fault.Invalid, "instance %q may hold only lower-case letters, digits, '-' and '.'", Printable(instance))
	}
	base := prefix + ":" + instance
	if len(base) > maxBase {
		return Naming{}, fault.New(fault.Invalid, "iqn prefix and instance have %d bytes together; at most %d are possible", len(base), maxBase)
	}
	return Naming{base: base}, nil
}

// Target is the IQN of a volume.
func (n Naming) Target(uuid string) string { return n.base + ":" + uuid }

// UUID returns the volume whose target the IQN is, and false for an IQN that
// is not this instance's.
func (n Naming) UUID(iqn string) (string, bool) {
	rest, ok := strings.CutPrefix(iqn, n.base+":")
	if !ok || !ValidUUID(rest) {
		return "", false
	}
	return rest, true
}

// Initiator is the IQN with which a node logs in.
func (n Naming) Initiator(node string) string { return n.base + ":node:" + node }

// Instance is the naming's identity, for files and backstores that need a
// mark of their owner.
func (n Naming) Instance() string { return n.base }
