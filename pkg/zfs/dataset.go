package zfs

import (
	"fmt"
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

// Property is a value and where it comes from, as `zfs get` prints it.
type Property struct{ Value, Source string }

// Dataset is what one read of ZFS said.
type Dataset struct {
	Name       string
	properties map[string]Property
}

// NewDataset returns a dataset with the given properties; for fakes.
func NewDataset(name string, properties map[string]Property) Dataset {
	return Dataset{Name: name, properties: properties}
}

// Type tells a zvol from a filesystem: only a zvol has a volsize.
func (d Dataset) Type() Type {
	if _, ok := d.properties["volsize"]; ok {
		return Volume
	}
	return Filesystem
}

// Value returns a property's value whatever its source; false when it is
// unset, which ZFS prints as "-".
func (d Dataset) Value(name string) (string, bool) {
	p, ok := d.properties[name]
	if !ok || p.Value == "-" {
		return "", false
	}
	return p.Value, true
}

// Own returns a property that is set on this very dataset, here or, after a
// replication, on the host that it was received from. Inherited values do not
// count: children and clones would show them too.
func (d Dataset) Own(name string) (string, bool) {
	p, ok := d.properties[name]
	if !ok || p.Source != "local" && p.Source != "received" {
		return "", false
	}
	return p.Value, true
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

// Bytes returns a number of bytes. "-" and "none" are unset, and are zero.
func (d Dataset) Bytes(name string) int64 {
	v, ok := d.Value(name)
	if !ok || v == "none" {
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
		if strings.Contains(name, ":") && (p.Source == "local" || p.Source == "received") {
			return false
		}
	}
	return true
}

// parseGet reads `zfs get -Hp -o name,property,value,source`. A value may hold
// tabs and newlines and so forge lines; our own values never do, and a
// property that appears twice betrays a forged one.
func parseGet(out string) ([]Dataset, error) {
	var list []Dataset
	index := map[string]int{}
	for line := range strings.Lines(out) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 4 {
			continue // a piece of a foreign value
		}
		name, property := fields[0], fields[1]
		i, ok := index[name]
		if !ok {
			i = len(list)
			index[name] = i
			list = append(list, Dataset{Name: name, properties: map[string]Property{}})
		}
		if _, twice := list[i].properties[property]; twice {
			return nil, fmt.Errorf("dataset %s shows property %s twice: one of its user properties holds a forged line", name, property)
		}
		source := fields[3]
		if strings.HasPrefix(source, "inherited from ") {
			source = "inherited"
		}
		list[i].properties[property] = Property{Value: fields[2], Source: source}
	}
	return list, nil
}

// KeyMissing reports that the dataset is encrypted and its key is not loaded.
func (d Dataset) KeyMissing() bool {
	v, _ := d.Value("keystatus")
	return v == "unavailable"
}
