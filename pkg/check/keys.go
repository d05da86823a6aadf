package check

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tarn-csi/tarn/pkg/chap"
	"github.com/tarn-csi/tarn/pkg/config"
)

const keyLine = "chap key"

// Keys looks at the CHAP key file that this mode reads. A container has it
// inside, so this is before the root is changed into the host's, and Run after
// it.
func (c *Checker) Keys() []Finding {
	switch {
	case !c.cfg.Serves("iscsi"):
		return nil
	case c.cfg.Mode == config.Node:
		return []Finding{c.key(c.cfg.NodeKeyFile, warn(keyLine,
			"print the key with `tarn key NODE` on the storage host and put it there, unless no pool has chap: derived",
			"%s is missing", c.cfg.NodeKeyFile))}
	case !c.cfg.NeedsCHAPKey():
		return nil
	}
	file := c.cfg.MasterKeyFile
	if c.cfg.Mode == config.All {
		// The daemon makes it on the host, where it finds it afterwards.
		if _, err := os.Stat(c.host.path(file)); errors.Is(err, fs.ErrNotExist) {
			file = filepath.Join(c.cfg.HostRoot, file)
		}
		return []Finding{c.key(file, ok(keyLine, "%s is made at the first start", file))}
	}
	return []Finding{c.key(file, fail(keyLine, "make it once with `tarn key --create`, and give each node its own with `tarn key NODE`",
		"%s is missing", file))}
}

// key judges a key file; missing is what it means that there is none. What is in
// it is never shown.
func (c *Checker) key(file string, missing Finding) Finding {
	path := c.host.path(file)
	_, err := chap.ReadKey(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return missing
	case errors.Is(err, fs.ErrPermission):
		return warn(keyLine, "run it again as root", "%s cannot be read", file)
	case err != nil:
		return fail(keyLine, "put the key back from where it is kept: a new one locks every node out", "%v", err)
	}
	if loose := c.loose(file, 0o077); loose != "" {
		return warn(keyLine, "chmod 600 "+file, "%s", loose)
	}
	if loose := c.loose(filepath.Dir(file), 0o022); loose != "" {
		return warn(keyLine, "chmod go-w "+filepath.Dir(file), "%s, so that the key in it can be replaced", loose)
	}
	return ok(keyLine, "%s", file)
}

// loose says that a file has one of the permissions, or returns "". A sticky
// directory keeps what others own.
func (c *Checker) loose(file string, bits fs.FileMode) string {
	st, err := os.Stat(c.host.path(file))
	if err != nil || st.Mode()&bits == 0 || st.Mode()&fs.ModeSticky != 0 {
		return ""
	}
	return file + " is open to others than its owner (" + st.Mode().String() + ")"
}

// pairs judges the files in which CHAP pairs of mode secrets are kept.
func (c *Checker) pairs() Finding {
	dir := filepath.Join(c.cfg.StateDir, "chap")
	var loose []string
	for _, file := range append(c.host.glob(strings.TrimPrefix(dir, "/")+"/*"), dir) {
		if text := c.loose(file, 0o077); text != "" {
			loose = append(loose, text)
		}
	}
	if len(loose) > 0 {
		return warn("chap pairs", "chmod -R go= "+dir, "%s", some(loose))
	}
	return ok("chap pairs", "in %s", dir)
}
