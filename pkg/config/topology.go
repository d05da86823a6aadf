package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/tarn-csi/tarn/pkg/fault"
)

// The parts of a topology key, and a segment: at most 63 characters each
// (CSI specification, message Topology).
var (
	segment        = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	topologyPrefix = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)
)

const maxTopologyPrefix = 63

// checkTopology holds a node's segments to the specification.
func checkTopology(topology map[string]string) error {
	prefixes, seen := map[string]bool{}, map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(topology)) {
		prefix, name, ok := strings.Cut(key, "/")
		if !ok {
			prefix, name = "", key
		}
		if !segment.MatchString(name) || ok && (len(prefix) > maxTopologyPrefix || !topologyPrefix.MatchString(prefix)) {
			return bad("topology", key, fmt.Sprintf("keys such as zone or example.com/zone, each part of at most %d characters", maxTopologyPrefix))
		}
		if v := topology[key]; !segment.MatchString(v) {
			return bad("topology."+key, v, "1 to 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends")
		}
		if other, twice := seen[strings.ToLower(key)]; twice {
			return fault.New(fault.Invalid, "topology has %q and %q, which are one key", other, key)
		}
		seen[strings.ToLower(key)] = key
		if ok {
			prefixes[prefix] = true
		}
	}
	if len(prefixes) > 1 {
		return fault.New(fault.Invalid, "topology has the key prefixes %q; all keys must have the same", slices.Sorted(maps.Keys(prefixes)))
	}
	return nil
}
