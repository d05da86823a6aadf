package fake

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tarn-csi/tarn/pkg/zfs"
)

// native is a property that ZFS knows (zfsprops(7)).
type native struct {
	// def is the default, in the form of `zfs get -p`.
	def string
	// only is the type that has it; empty: both.
	only zfs.Type
	// own is not inherited by children.
	own bool
	// once can be set at creation alone.
	once bool
	// bytes is a number of bytes; values are the words that it takes; neither:
	// any text.
	bytes  bool
	values []string
}

// auto is the refreservation of a zvol that is exactly thick.
const auto = "auto"

func words(s string) []string { return strings.Fields(s) }

var natives = map[string]native{
	"checksum":           {def: "on", values: words("on off fletcher2 fletcher4 sha256 noparity sha512 skein edonr")},
	"compression":        {def: "off", values: words("on off lz4 lzjb zle gzip gzip-1 gzip-6 gzip-9 zstd zstd-1 zstd-3 zstd-19 zstd-fast zstd-fast-1")},
	"copies":             {def: "1", values: words("1 2 3")},
	"dedup":              {def: "off", values: words("on off verify sha256 sha256,verify sha512 sha512,verify skein skein,verify edonr,verify")},
	"logbias":            {def: "latency", values: words("latency throughput")},
	"primarycache":       {def: "all", values: words("all none metadata")},
	"secondarycache":     {def: "all", values: words("all none metadata")},
	"sync":               {def: "standard", values: words("standard always disabled")},
	"readonly":           {def: "off", values: words("on off")},
	"redundant_metadata": {def: "all", values: words("all most")},
	"snapdev":            {def: "hidden", values: words("hidden visible")},
	"volmode":            {def: "default", values: words("default full geom dev none")},
	"refreservation":     {def: "0", own: true, bytes: true},
	"reservation":        {def: "0", own: true, bytes: true},

	"atime":        {def: "on", only: zfs.Filesystem, values: words("on off")},
	"relatime":     {def: "off", only: zfs.Filesystem, values: words("on off")},
	"devices":      {def: "on", only: zfs.Filesystem, values: words("on off")},
	"exec":         {def: "on", only: zfs.Filesystem, values: words("on off")},
	"setuid":       {def: "on", only: zfs.Filesystem, values: words("on off")},
	"overlay":      {def: "on", only: zfs.Filesystem, values: words("on off")},
	"xattr":        {def: "on", only: zfs.Filesystem, values: words("on off sa dir")},
	"acltype":      {def: "off", only: zfs.Filesystem, values: words("off noacl posix posixacl nfsv4")},
	"snapdir":      {def: "hidden", only: zfs.Filesystem, values: words("hidden visible")},
	"dnodesize":    {def: "legacy", only: zfs.Filesystem, values: words("legacy auto 1k 2k 4k 8k 16k")},
	"recordsize":   {def: "131072", only: zfs.Filesystem, bytes: true},
	"sharenfs":     {def: "off", only: zfs.Filesystem},
	"sharesmb":     {def: "off", only: zfs.Filesystem},
	"mountpoint":   {only: zfs.Filesystem},
	"canmount":     {def: "on", only: zfs.Filesystem, own: true, values: words("on off noauto")},
	"quota":        {def: "0", only: zfs.Filesystem, own: true, bytes: true},
	"refquota":     {def: "0", only: zfs.Filesystem, own: true, bytes: true},
	"volsize":      {only: zfs.Volume, own: true, bytes: true},
	"volblocksize": {def: "8192", only: zfs.Volume, own: true, once: true, bytes: true},
}

// canonical checks a value as libzfs does, before the kernel is asked, and
// returns it in the form that is kept.
func canonical(t zfs.Type, name, value string) (string, error) {
	p, ok := natives[name]
	if !ok {
		return "", fmt.Errorf("invalid property '%s'", name)
	}
	if p.only != "" && p.only != t {
		return "", fmt.Errorf("'%s' does not apply to datasets of this type", name)
	}
	switch {
	case value == auto && name == "refreservation":
		if t != zfs.Volume {
			return "", errors.New("'refreservation=auto' only allowed on volumes")
		}
	case p.bytes:
		n, err := parseBytes(value)
		if err != nil {
			return "", fmt.Errorf("bad numeric value '%s'", value)
		}
		if name == "volblocksize" || name == "recordsize" {
			if n < 512 || n > 1<<20 || n&(n-1) != 0 {
				return "", fmt.Errorf("'%s' must be power of 2 from 512B to 1M", name)
			}
		}
		return strconv.FormatInt(n, 10), nil
	case p.values != nil:
		if !slices.Contains(p.values, value) {
			return "", fmt.Errorf("'%s' must be one of '%s'", name, strings.Join(p.values, " | "))
		}
	case name == "mountpoint":
		if value != "none" && value != "legacy" && !strings.HasPrefix(value, "/") {
			return "", fmt.Errorf("'%s' must be an absolute path, 'none', or 'legacy'", name)
		}
	}
	return value, nil
}

// parseBytes reads 0, none, 16384, 16K or 1.5G (whole units only).
func parseBytes(s string) (int64, error) {
	if s == "none" {
		return 0, nil
	}
	unit := int64(1)
	if i := strings.IndexByte("KMGTP", upper(s)); i >= 0 && len(s) > 1 {
		unit, s = 1<<(10*(i+1)), s[:len(s)-1]
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err == nil && n < 0 {
		err = strconv.ErrRange
	}
	return n * unit, err
}

func bytesText(n int64) string { return strconv.FormatInt(n, 10) }

func upper(s string) byte {
	if s == "" {
		return 0
	}
	b := s[len(s)-1]
	if b >= 'a' && b <= 'z' {
		b -= 'a' - 'A'
	}
	return b
}
