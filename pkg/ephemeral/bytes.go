package ephemeral

import (
	"math"
	"strconv"
	"strings"
)

// units are Kubernetes' for quantities.
var units = []struct {
	suffix string
	bytes  int64
}{
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40}, {"Pi", 1 << 50},
	{"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15},
}

// parseBytes reads a number of bytes as Kubernetes writes quantities, without
// fractions: 1073741824, 1Gi, 1G. Zero is none.
func parseBytes(s string) (int64, bool) {
	unit := int64(1)
	for _, u := range units {
		if digits, ok := strings.CutSuffix(s, u.suffix); ok {
			s, unit = digits, u.bytes
			break
		}
	}
	// Without a sign, which ParseInt would take.
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || n == 0 || n > uint64(math.MaxInt64/unit) {
		return 0, false
	}
	return int64(n) * unit, true
}
