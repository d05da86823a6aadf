package fake

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tarn-csi/tarn/pkg/zfs"
)

// children returns the filesystems and zvols directly below, by name.
func (f *ZFS) children(p *node) []*node {
	var list []*node
	for _, n := range f.nodes {
		if !n.snapshot && parent(n.name) == p.name {
			list = append(list, n)
		}
	}
	slices.SortFunc(list, func(a, b *node) int { return strings.Compare(a.name, b.name) })
	return list
}

// snapshots returns a dataset's snapshots.
func (f *ZFS) snapshots(p *node) []*node {
	var list []*node
	for _, n := range f.nodes {
		if n.snapshot && parent(n.name) == p.name {
			list = append(list, n)
		}
	}
	return list
}

// clones returns what was made from a snapshot.
func (f *ZFS) clones(snap *node) []*node {
	var list []*node
	for _, n := range f.nodes {
		if n.origin == snap {
			list = append(list, n)
		}
	}
	return list
}

// value returns a property and its source.
func (f *ZFS) value(n *node, name string) (value, source string, ok bool) {
	p, isNative := natives[name]
	for at := n; at != nil; at = f.nodes[parent(at.name)] {
		v, set := at.local[name]
		from := "local"
		if !set {
			v, set = at.received[name]
			from = "received"
		}
		if set {
			if at != n {
				from = "inherited"
				if name == "mountpoint" && strings.HasPrefix(v, "/") {
					v = filepath.Join(v, strings.TrimPrefix(n.name, at.name))
				}
			}
			return v, from, true
		}
		if p.own {
			break
		}
	}
	if !isNative || p.def == "" {
		return "", "", false
	}
	return p.def, "default", true
}

// number returns a property of bytes that is set on the dataset itself.
func (n *node) number(name string) int64 {
	v, ok := n.local[name]
	if !ok {
		v = n.received[name]
	}
	b, _ := strconv.ParseInt(v, 10, 64)
	return b
}

// properties is `zfs get all`.
func (f *ZFS) properties(n *node) map[string]zfs.Property {
	stat := func(v string) zfs.Property { return zfs.Property{Value: v, Source: "-"} }
	bytes := func(v int64) zfs.Property { return stat(strconv.FormatInt(v, 10)) }
	all := map[string]zfs.Property{
		"type":              stat(string(n.typ)),
		"creation":          bytes(n.created.Unix()),
		"createtxg":         stat(strconv.FormatUint(n.txg, 10)),
		"guid":              stat(strconv.FormatUint(n.guid, 10)),
		"referenced":        bytes(n.data),
		"logicalreferenced": bytes(n.data),
		"compressratio":     stat("1.00"),
	}
	for name := range f.userProperties(n) {
		if v, source, ok := f.value(n, name); ok {
			all[name] = zfs.Property{Value: v, Source: source}
		}
	}
	if f.encryptionRoot(n) != nil {
		all["keystatus"] = stat("available")
		if f.keyMissing(n) {
			all["keystatus"] = stat("unavailable")
		}
	}
	if n.snapshot {
		all["type"] = stat("snapshot")
		all["used"] = bytes(n.unique)
		all["userrefs"] = bytes(int64(n.userRefs))
		all["defer_destroy"] = stat(onOff(n.deferred))
		var names []string
		for _, c := range f.clones(n) {
			names = append(names, c.name)
		}
		slices.Sort(names)
		all["clones"] = stat(strings.Join(names, ","))
		if n.typ == zfs.Volume {
			all["volsize"] = zfs.Property{Value: strconv.FormatInt(n.volBytes, 10), Source: "local"}
		}
		return all
	}
	all["used"] = bytes(f.used(n))
	all["available"] = bytes(f.available(n))
	all["receive_resume_token"] = n.token()
	all["usedbydataset"] = bytes(n.unique)
	var bySnapshots int64
	for _, s := range f.snapshots(n) {
		bySnapshots += s.unique
	}
	all["usedbysnapshots"] = bytes(bySnapshots)
	all["usedbyrefreservation"] = bytes(max(0, n.number("refreservation")-n.unique))
	if n.origin != nil {
		all["origin"] = stat(n.origin.name)
	}
	for name, p := range natives {
		if p.only != "" && p.only != n.typ {
			continue
		}
		if v, source, ok := f.value(n, name); ok {
			all[name] = zfs.Property{Value: v, Source: source}
		}
	}
	if n.typ == zfs.Volume {
		all["volsize"] = zfs.Property{Value: strconv.FormatInt(n.volBytes, 10), Source: "local"}
		if n.receiving != nil {
			all["volsize"] = zfs.Property{Value: "0", Source: "default"}
		}
		all["volblocksize"] = zfs.Property{Value: strconv.FormatInt(n.blockBytes, 10), Source: n.blockSource}
		return all
	}
	all["mounted"] = stat(yesNo(n.mountedAt != ""))
	return all
}

// userProperties returns the names of what is set on the dataset or above it.
func (f *ZFS) userProperties(n *node) map[string]bool {
	names := map[string]bool{}
	for at := n; at != nil; at = f.nodes[parent(at.name)] {
		for _, m := range []map[string]string{at.local, at.received} {
			for name := range m {
				if userProperty(name) {
					names[name] = true
				}
			}
		}
	}
	return names
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
