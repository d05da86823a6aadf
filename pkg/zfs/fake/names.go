package fake

import (
	"errors"
	"fmt"
	"strings"
)

// The bounds of names and values, in bytes (sys/fs/zfs.h, sys/zap.h).
const (
	maxDatasetName   = 255
	maxPropertyName  = 255
	maxPropertyValue = 8191
	maxNesting       = 50
)

// checkName holds a dataset or snapshot name to the rules of
// module/zcommon/zfs_namecheck.c.
func checkName(name string) error {
	if len(name) > maxDatasetName {
		return errors.New("name is too long")
	}
	if name == "" {
		return errors.New("empty component in name")
	}
	if strings.HasPrefix(name, "/") {
		return errors.New("leading slash in name")
	}
	if strings.HasSuffix(name, "/") {
		return errors.New("trailing slash in name")
	}
	dataset, snap, isSnapshot := strings.Cut(name, "@")
	components := strings.Split(dataset, "/")
	if isSnapshot {
		components = append(components, snap)
	}
	for _, c := range components {
		switch {
		case strings.Contains(c, "@"):
			return errors.New("multiple '@' and/or '#' delimiters in name")
		case c == "":
			return errors.New("empty component in name")
		case c == ".":
			return errors.New("self reference, '.' is found in name")
		case c == "..":
			return errors.New("parent reference, '..' is found in name")
		}
		for _, b := range []byte(c) {
			if !componentByte(b) {
				return fmt.Errorf("invalid character %c in name", b)
			}
		}
	}
	return nil
}

func componentByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || strings.IndexByte("-_.: ", b) >= 0
}

// userProperty reports whether a property name is a user's: those have a colon.
func userProperty(name string) bool { return strings.Contains(name, ":") }

// checkUserProperty holds a user property to zfsprops(7).
func checkUserProperty(name, value string) error {
	for _, b := range []byte(name) {
		if !(b >= 'a' && b <= 'z' || b >= '0' && b <= '9' || strings.IndexByte(":._-", b) >= 0) {
			return fmt.Errorf("invalid property '%s'", name)
		}
	}
	if len(name) > maxPropertyName {
		return fmt.Errorf("property name '%s' is too long", name)
	}
	if len(value) > maxPropertyValue {
		return fmt.Errorf("property value '%s' is too long", value)
	}
	return nil
}

// parent returns the name of a dataset's parent, or of a snapshot's dataset; ""
// for a pool.
func parent(name string) string {
	if i := strings.LastIndexAny(name, "/@"); i >= 0 {
		return name[:i]
	}
	return ""
}
