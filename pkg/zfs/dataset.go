package zfs

import (
	"slices"
	"strconv"
	"strings"
)

// Type is a dataset's type.
type Type string

// The types that a Dataset can have.
const (
	Filesystem Type = "filesystem"
	Volume     Type = "volume"
)

// Property is a value and where it comes from: local, received, inherited,
// default, "-" for what is not set but is so, such as used bytes.
type Property struct{ Value, Source string }

// unreadable is the source of a property that is set, but whose value cannot be
// told from what other values pretend to be.
const unreadable = "unreadable"

// Dataset is what one read of ZFS said.
type Dataset struct {
	Name       string
	properties map[string]Property
}

// NewDataset returns a dataset with the given properties; for fakes.
func NewDataset(name string, properties map[string]Property) Dataset {
	return Dataset{Name: name, properties: properties}
}

// Type tells a zvol from a filesystem, and a zvol's snapshot from a
// filesystem's: only a zvol and its snapshots have a volsize.
func (d Dataset) Type() Type {
	if _, ok := d.properties["volsize"]; ok {
		return Volume
	}
	return Filesystem
}

// Snapshot tells a snapshot from the dataset that it is of.
func (d Dataset) Snapshot() bool { return strings.Contains(d.Name, "@") }

// Clones returns the names of the datasets that were made from a snapshot.
func (d Dataset) Clones() []string {
	names, ok := d.Value("clones")
	if !ok || names == "" {
		return nil
	}
	return strings.Split(names, ",")
}

// Value returns a property's value whatever its source; false when it is
// unset, which ZFS prints as "-".
func (d Dataset) Value(name string) (string, bool) {
	p, ok := d.properties[name]
	if !ok || p.Value == "-" || p.Source == unreadable {
		return "", false
	}
	return p.Value, true
}

// Own returns a property that is set on this very dataset, here or, after a
// replication, on the host that it was received from. Inherited values do not
// count: children and clones would show them too.
func (d Dataset) Own(name string) (string, bool) {
	p, ok := d.properties[name]
	if !ok || !p.own() {
		return "", false
	}
	return p.Value, true
}

func (p Property) own() bool { return p.Source == "local" || p.Source == "received" }

// OwnNames returns the names of the properties that are set on this very dataset
// and begin with prefix, sorted.
func (d Dataset) OwnNames(prefix string) []string {
	var names []string
	for name, p := range d.properties {
		if strings.HasPrefix(name, prefix) && (p.own() || p.Source == unreadable) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Local returns a property that is set on this very dataset, on this host.
func (d Dataset) Local(name string) (string, bool) {
	p, ok := d.properties[name]
	if !ok || p.Source != "local" {
		return "", false
	}
	return p.Value, true
}

// LocalPrefix returns the local properties whose names begin with prefix, by
// the rest of their names.
func (d Dataset) LocalPrefix(prefix string) map[string]string {
	found := map[string]string{}
	for name, p := range d.properties {
		if rest, ok := strings.CutPrefix(name, prefix); ok && p.Source == "local" {
			found[rest] = p.Value
		}
	}
	return found
}

// Bytes returns a number of bytes. What is unset ("-", "none") or no number is
// zero.
func (d Dataset) Bytes(name string) int64 {
	v, ok := d.Value(name)
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Unmarked reports that no user property is set on the dataset itself, as on
// one that a power loss left between the kernel's two steps of creating it.
func (d Dataset) Unmarked() bool {
	for name, p := range d.properties {
		if strings.Contains(name, ":") && (p.own() || p.Source == unreadable) {
			return false
		}
	}
	return true
}

// KeyMissing reports that the dataset is encrypted and its key is not loaded.
func (d Dataset) KeyMissing() bool {
	v, _ := d.Value("keystatus")
	return v == "unavailable"
}
